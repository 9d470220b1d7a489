"""The measurement hook: arguments for TVM's own runners, with indices that are never random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import tvm

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import numpy_dtype
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .inputs import Circumstance, index_sizes, make_inputs, update_size


@dataclass(frozen=True)
class ArgumentAllocator:
    """An ``f_alloc_argument`` for MetaSchedule's ``LocalRunner`` and ``RPCRunner``.

    MetaSchedule fills arguments at random; a random index crashes a scatter or writes anywhere, and
    zeros are the worst contention there is. This fills indices from a named distribution.

    Parameters
    ----------
    problem : ScatterProblem
        A static problem, whose PrimFunc is measured.
    circumstance : Circumstance
        Distribution and seed of the indices.
    """

    problem: ScatterProblem
    circumstance: Circumstance = field(default_factory=Circumstance)

    def __call__(self, *arguments: Any) -> list[list[Any]]:
        """Allocate arguments.

        Parameters
        ----------
        *arguments
            What a runner passes: ``[session,] device, args_info, alloc_repeat``.

        Returns
        -------
        repeated : list of list of tensor
            Data, indices, updates, output and workspace, as far as the function takes them.

        Raises
        ------
        ScatterError
            If the arguments asked for are not those of the problem.
        """
        device, wanted, repeats = arguments[-3:]
        arrays = self._arrays(wanted)
        return [
            [tvm.runtime.tensor(array, device=device) for array in arrays] for _ in range(repeats)
        ]

    def _arrays(self, wanted: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        problem, sizes = self.problem, Sizes.of(self.problem)
        inputs = make_inputs(problem, self.circumstance)
        width = int(sizes.slice)
        data = _widen(inputs.data, inputs.columns, width)
        columns, width = (inputs.columns, width) if problem.update_slice else (1, 1)
        given = [data, *inputs.indices, _widen(inputs.updates, columns, width)]
        if not problem.in_place:
            given.append(np.zeros_like(data))
        expected = [(problem.data_dtype, int(sizes.data_size))]
        expected += [(problem.index_dtype, size) for size in index_sizes(problem)]
        expected.append((problem.data_dtype, update_size(problem)))
        if not problem.in_place:
            expected.append((problem.data_dtype, int(sizes.data_size)))
        asked = [(str(dtype), prod(int(n) for n in shape)) for _, dtype, shape in wanted]
        if asked[: len(expected)] != expected or len(asked) > len(expected) + 1:
            raise ScatterError(
                f"f_alloc_argument: arguments {asked} are not those of [{problem}]: {expected} and "
                "a workspace."
            )
        extra = asked[len(expected) :]
        given += [np.zeros(size, numpy_dtype(dtype)) for dtype, size in extra]
        shapes = [tuple(int(n) for n in shape) for _, _, shape in wanted]
        return [array.reshape(shape) for array, shape in zip(given, shapes, strict=True)]


def _widen(narrow: np.ndarray[Any, Any], columns: int, width: int) -> np.ndarray[Any, Any]:
    rows = narrow.reshape(-1, columns)
    return np.ascontiguousarray(rows[:, np.arange(width) % columns])
