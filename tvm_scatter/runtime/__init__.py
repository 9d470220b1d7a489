"""Building and running models: the kernel cache, CUDA graphs, CUDA's driver and toolkit."""
