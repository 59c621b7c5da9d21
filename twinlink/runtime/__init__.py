"""The threads of a link: which one receives, which one transmits, and the heartbeat."""
