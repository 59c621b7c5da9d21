"""Block descriptions for gnuradio-companion; ``python -m twinlink_replay.grc`` prints their folder."""

from pathlib import Path

PATH = Path(__file__).resolve().parent
