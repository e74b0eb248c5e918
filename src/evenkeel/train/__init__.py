"""The training walk: `loop.py` calls the stages, `build.py` makes the parts that they are handed."""
