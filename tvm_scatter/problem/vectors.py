"""What one instruction does to memory: how many elements it moves, and which it combines."""

from __future__ import annotations

from .reductions import HALVES, item_bytes
from .scatter_problem import ScatterProblem

_ACCESS_BYTES = 16


def widest_vector(problem: ScatterProblem) -> int:
    """The most elements of one access, of at most 16 bytes, that divide a row of the problem."""
    if problem.index_slice:
        return 1
    elements = _ACCESS_BYTES // item_bytes(problem.data_dtype)
    # The row is a multiple of its constant factor, whatever its symbolic factors are.
    while elements > 1 and problem.slice.constant % elements:
        elements //= 2
    return elements


def adds_vectors(problem: ScatterProblem) -> bool:
    """Whether GPUs have an instruction that adds several elements to memory."""
    return problem.reduces.has_vector_atomic and problem.data_dtype in ("float32", *HALVES)


def needs_swaps(problem: ScatterProblem) -> bool:
    """Whether combining an update in a GPU's memory takes a loop of compare-and-swap."""
    if problem.only_stores:
        return False
    if item_bytes(problem.data_dtype) >= 4:
        return not problem.reduces.has_atomic
    # Two 16-bit floats that lie next to each other in a row are added by one instruction.
    pairs = problem.slice.constant % 2 == 0 and not problem.index_slice
    return not (adds_vectors(problem) and pairs)
