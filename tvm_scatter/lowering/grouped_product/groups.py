"""What the functions have in common: their operands, and the rows of each group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, Parameters

#: The type in which products of a type are added up, if it is not the type itself.
_WIDER = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True)
class Problem:
    """The sizes and types of a grouped product.

    Attributes
    ----------
    rows : int or str
        The number of rows, or the name of a symbolic one.
    inner, columns, groups : int
        The extent that is added up, the columns of the result, and the number of matrices.
    dtype, ends_dtype : str
        The type of rows, matrices and result, and that of the ends of groups.
    """

    rows: int | str
    inner: int
    columns: int
    groups: int
    dtype: str
    ends_dtype: str

    @property
    def sum_dtype(self) -> str:
        """The type in which products are added up."""
        return _WIDER.get(self.dtype, self.dtype)


class Operands:
    """The tensors of a function that is being built, addressed by positions."""

    def __init__(self, problem: Problem, rows: Any, buffers: list[Any]) -> None:
        self.problem = problem
        self.rows = rows
        self._rows, self._matrices, self._ends, self._result = buffers

    def row_element(self, row: Any, k: Any) -> Any:
        """An element of a row, in the type of the sum."""
        return self._wide(self._rows[row * self.problem.inner + k])

    def matrix_element(self, group: Any, k: Any, column: Any) -> Any:
        """An element of a matrix, in the type of the sum."""
        row = group * self.problem.inner + k
        return self._wide(self._matrices[row * self.problem.columns + column])

    def store(self, row: Any, column: Any, value: Any) -> None:
        """Write an element of the result."""
        value = value if self.problem.sum_dtype == self.problem.dtype else self._narrow(value)
        T.buffer_store(self._result, value, [row * self.problem.columns + column])

    def begin(self, group: Any) -> Any:
        """The first row of a group; the rows in no group follow the last one."""
        before = tirx.max(group - 1, int64(0))
        return tirx.if_then_else(group > 0, self._end(before), int64(0))

    def end(self, group: Any) -> Any:
        """The end of a group; the rows in no group follow the last one."""
        last = int64(self.problem.groups)
        return tirx.if_then_else(group < last, self._end(tirx.min(group, last - 1)), self.rows)

    def _end(self, group: Any) -> Any:
        # A wrong end must not lead to memory outside of the tensors.
        found = tirx.Cast("int64", self._ends[group])
        return tirx.max(tirx.min(found, self.rows), int64(0))

    def _wide(self, value: Any) -> Any:
        wide = self.problem.sum_dtype
        return value if wide == self.problem.dtype else tirx.Cast(wide, value)

    def _narrow(self, value: Any) -> Any:
        return tirx.Cast(self.problem.dtype, value)


class Function:
    """A function under construction; ``result`` is the function as soon as it is complete."""

    result: tirx.PrimFunc

    def __init__(self, problem: Problem, kind: str) -> None:
        self.problem = problem
        self.kind = kind

    @contextmanager
    def body(self) -> Iterator[Operands]:
        """Begin the function; its parameters are rows, matrices, ends and result."""
        problem = self.problem
        with IRBuilder() as builder:
            with T.prim_func(s_tir=True):
                T.func_attr({**PRIM_FUNC_ATTRS, MADE_FOR: self.kind})
                parameters = Parameters()
                parameters.add("rows", (problem.rows, problem.inner), problem.dtype)
                shape = (problem.groups, problem.inner, problem.columns)
                parameters.add("matrices", shape, problem.dtype)
                parameters.add("ends", (problem.groups,), problem.ends_dtype)
                parameters.add("result", (problem.rows, problem.columns), problem.dtype)
                with parameters.in_body() as buffers:
                    rows = parameters.size((problem.rows,))
                    yield Operands(problem, int64(rows), buffers)
        self.result = builder.get()


def int64(value: Any) -> Any:
    """A number as a constant of type int64; expressions have that type already."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else value
