"""Tasks: where they come from and in which order they are trained. Start at `base.py`."""
