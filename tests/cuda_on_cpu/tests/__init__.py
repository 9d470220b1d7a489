"""Tests of the simulated device by itself."""
