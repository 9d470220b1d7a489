"""Which implementation computes a problem: the strategy, what it was told, and for which target."""
