"""What a model needs when it is built and run: compiled kernels, CUDA graphs, buffers."""
