"""Groups of rows times a matrix each: one function for CPUs, one for GPUs."""
