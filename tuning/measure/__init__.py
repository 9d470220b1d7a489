"""How candidates are built, checked and timed."""
