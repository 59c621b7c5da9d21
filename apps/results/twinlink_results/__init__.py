"""The results of a run, from its records: figures, tables, pages, and comparisons of runs.

A run is the folder that a sweep or a demo writes (docs/results-format.md).  Nothing here measures.
"""
