"""What new processes find in place of PyTorch where a test wants them to start soon."""

raise ModuleNotFoundError("PyTorch takes long to load, and is left out", name="torch")
