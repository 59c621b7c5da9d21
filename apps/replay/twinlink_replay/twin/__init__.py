"""The Digital Twin: source selection, analysis of records, recording, and control of PRB blocks."""
