"""MGEN's scripts and processes, and the bridge that carries its traffic over a link (docs/mgen.md).

MGEN is the Naval Research Laboratory's Multi-Generator.
"""
