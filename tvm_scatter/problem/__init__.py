"""What a scatter is, free of any graph: sizes, the problem, its reductions and its meaning."""

from .scatter_problem import ScatterProblem

__all__ = ["ScatterProblem"]
