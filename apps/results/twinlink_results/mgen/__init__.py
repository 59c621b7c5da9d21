"""The logs of MGEN and of its bridge, and what they say of each message (docs/mgen.md).

MGEN is the Naval Research Laboratory's Multi-Generator.  The modules support 5.02b, the version in Debian and Ubuntu,
and read the logs of later ones.
"""
