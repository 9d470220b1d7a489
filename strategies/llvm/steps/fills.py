"""The number that a problem begins with everywhere, where the data are not in memory."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem

from . import loops


def fill_value(problem: ScatterProblem) -> Any:
    """The number that every element of the data of a problem is, as a constant."""
    number = float(problem.fill) if "float" in problem.data_dtype else int(problem.fill)
    return tirx.const(number, problem.data_dtype)


def fill_output(operands: Operands) -> None:
    """Set the output to the number that the problem begins with."""
    size = operands.sizes.data_size

    def fill(start: Any, length: Any) -> None:
        fill_range(operands, start, length)

    loops.for_each_chunk(size, loops.COPY_TASK, size, fill)


def fill_range(operands: Operands, start: Any, length: Any) -> None:
    """The same for ``length`` elements from ``start`` on, in one thread."""
    value = fill_value(operands.problem)
    with loops.serial(length) as i:
        T.buffer_store(operands.out, value, [start + i])
