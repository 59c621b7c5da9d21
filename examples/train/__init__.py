"""From recordings to a signed model that decides over the link: ``python -m examples.train`` (docs/train.md)."""
