"""Implementations for CPUs, in TIR. They have no races, whatever the number of threads."""
