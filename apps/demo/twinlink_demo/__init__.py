"""The demo: gNB, exporter and twin as processes, over each transport, and a report.

`session` runs the processes, which write raw files; `report` derives everything else from these files.
"""
