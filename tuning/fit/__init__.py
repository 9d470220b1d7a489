"""How the default choice is fitted to measurements."""
