"""Turns calls of the scatter operators into calls of TVM functions."""
