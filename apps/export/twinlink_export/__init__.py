"""Recordings as other programs read them, and what those wrote as recordings (docs/export.md)."""
