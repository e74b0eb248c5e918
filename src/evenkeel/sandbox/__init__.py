"""Running model-written code: in another process, with the verdict decided here. Start at `base.py`, then `pool.py`."""
