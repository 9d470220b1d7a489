"""What several passes must know of a function."""
