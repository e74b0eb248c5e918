"""The student: loading, adapters, log-probabilities."""
