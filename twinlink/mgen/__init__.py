"""MGEN's messages, logs and scripts, and the bridge that carries its traffic over a link.

MGEN is the Naval Research Laboratory's Multi-Generator.  The modules support 5.02b, the version in Debian and Ubuntu,
and read the logs of later ones.  docs/mgen.md says how to use them.
"""
