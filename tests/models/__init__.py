"""Whole models from libraries, imported, compiled and compared with PyTorch."""
