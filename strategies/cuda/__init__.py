"""Implementations for NVIDIA GPUs: TIR launches, device routines in CUDA C++ (``device/``)."""
