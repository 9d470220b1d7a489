"""Parts of generated functions: parameters, operands, errors, and signals from device to host."""
