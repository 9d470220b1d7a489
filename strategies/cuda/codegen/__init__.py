"""Generates the source of CUDA kernels, and launches them from TIR."""
