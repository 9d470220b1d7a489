"""The three policies for bad indices, on a host and on a device."""
