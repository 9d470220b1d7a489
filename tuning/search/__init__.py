"""Which candidates are measured next."""
