"""Which entries of index tensors are out of bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes


def violations(problem: ScatterProblem, indices: Sequence[Any]) -> list[tuple[int, int, int, int]]:
    """The index entries that are out of bounds.

    Returns
    -------
    found : list of (position, component, index, extent)
        Sorted. ``position`` is flat, row-major over the indices of one component.
    """
    sizes = Sizes.of(problem)
    components = len(problem.extents)
    if problem.interleaved:
        tuples = np.asarray(indices[0]).reshape(-1, components)
        indices = [tuples[:, component] for component in range(components)]
    found = []
    for component, (index, extent) in enumerate(zip(indices, sizes.extents, strict=True)):
        flat = np.asarray(index).reshape(-1).astype(np.int64)
        lowest = -extent if problem.wrap_negative else 0
        bad = np.flatnonzero((flat < lowest) | (flat >= extent))
        found += [(int(i), component, int(flat[i]), int(extent)) for i in bad]
    return sorted(found)
