"""Checks at run time of indices, sizes and aliases, on the host and on a device."""
