"""Stage 3, score: from completions to rewards. Start at `score.py`, then `base.py` and the built-in rewards beside it."""
