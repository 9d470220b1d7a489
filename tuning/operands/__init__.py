"""What candidates are measured on: operands whose indices are valid by construction."""
