"""Stage 2, sample: N completions per task."""
