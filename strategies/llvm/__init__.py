"""Implementations for CPUs, in TIR. None has a race under any number of threads."""
