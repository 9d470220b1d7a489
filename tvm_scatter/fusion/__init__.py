"""Fusion by TVM of the functions that stand beside the scatters."""
