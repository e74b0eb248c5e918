"""Several processes, one run."""
