"""The live view: what a link carries, as a page in a browser."""
