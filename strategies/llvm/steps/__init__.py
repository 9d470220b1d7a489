"""Loops that several implementations share."""
