"""Chooses the implementation for a problem: by tuned records, the shipped log or default rules."""
