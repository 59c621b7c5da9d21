"""The gNB's side of the twin: E3 indications out on flow ``spectrum``, the twin's PRB blocks in on flow ``control``."""
