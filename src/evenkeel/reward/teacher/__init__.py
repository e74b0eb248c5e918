"""Teachers: rewards that judge how an answer is written. `offline.py` ships; each is a `Reward` like any other."""
