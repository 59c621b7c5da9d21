"""The whole job in one command: gNB, exporter and twin as processes, over each transport, and a report on it.

`session` runs the parts and leaves raw files; `report` derives everything else from these files alone.
"""
