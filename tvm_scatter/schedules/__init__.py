"""Schedules of the functions that stand beside the scatters."""
