"""What TVM's importers learn from this package: PyTorch's and ONNX's scatter operators."""
