"""Which packages there are; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

inside = find_packages(include=["tvm_scatter", "tvm_scatter.*"])
# These stand beside the package in the repository and inside it once installed.
beside = find_packages(include=["strategies", "strategies.*", "tuning", "tuning.*"])

setup(packages=[*inside, *(f"tvm_scatter.{name}" for name in beside)])
