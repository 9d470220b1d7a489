"""PyTorch's scatter operators for TVM's ``from_exported_program``."""
