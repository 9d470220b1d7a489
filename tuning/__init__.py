"""Tasks, measurement, search, database and benchmark for scatter."""
