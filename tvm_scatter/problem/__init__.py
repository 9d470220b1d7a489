"""Scatter problems, independent of Relax: sizes, the problem, reductions and a reference."""

from .scatter_problem import ScatterProblem

__all__ = ["ScatterProblem"]
