"""Analyses of a function that several passes share."""
