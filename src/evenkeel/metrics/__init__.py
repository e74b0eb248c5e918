"""What a run measures, how each figure is computed, and where it is kept."""
