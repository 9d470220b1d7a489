"""Measurements on disk, and the results of tuning that they make up."""
