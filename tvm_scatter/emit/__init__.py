"""What every generated function is made of: parameters, operands, errors, waiting for a stream."""
