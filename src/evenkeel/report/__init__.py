"""What a person reads about a run."""
