"""MGEN's messages, logs and scripts, and the bridge that carries its traffic over a link.

MGEN is the Naval Research Laboratory's Multi-Generator.  What is written here holds for 5.02b, the version in Debian
and Ubuntu, and reads the logs of later ones.  docs/mgen.md says how to use it.
"""
