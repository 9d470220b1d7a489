"""Extends TVM's importers with PyTorch's and ONNX's operators that write or read by index."""
