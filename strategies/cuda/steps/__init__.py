"""Launches that several implementations share."""
