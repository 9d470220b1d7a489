"""The frame of a generated function: its attributes, its parameters and its one block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.signature import Dim
from tvm_scatter.problem.symbolic_size import SymbolicSize

#: TVM's attribute of a function whose loops are to stay as they are.
SCHEDULED = "tirx.is_scheduled"
#: Attributes that keep TVM from changing the function: opaque for FuseTIR, scheduled for dlight.
PRIM_FUNC_ATTRS = {"op_pattern": 8, SCHEDULED: True, "tirx.noalias": True}
#: The attribute that names the kind of target that a function was made for.
MADE_FOR = "tvm_scatter.made_for"
#: The attribute of a function that searches for values of shape (lines, count) in sequences of
#: shape (lines, size) by bisection, so that its results are positions from 0 to the size.
SEARCHES = "tvm_scatter.searches"


class Parameters:
    """The buffer parameters of the current PrimFunc, and the symbolic sizes that they bind."""

    def __init__(self) -> None:
        self.symbols: dict[str, Any] = {}
        self.names: list[str] = []
        self._declared: list[tuple[Any, tuple[Dim, ...], str]] = []

    def add(self, name: str, shape: Sequence[Dim], dtype: str) -> None:
        """Declare the next parameter."""
        for dim in shape:
            if isinstance(dim, str) and dim not in self.symbols:
                self.symbols[dim] = tirx.Var(dim, "int64")
        self.names.append(name)
        self._declared.append((T.arg(name, T.handle()), tuple(shape), dtype))

    def size(self, shape: Sequence[Dim]) -> Any:
        """The number of elements of a shape: an ``int`` or an int64 expression."""
        return SymbolicSize.product(shape).value(self.symbols)

    @contextmanager
    def in_body(self) -> Iterator[list[Any]]:
        """Begin the body of the function; yields the parameters as flat buffers."""
        matched = [
            T.match_buffer(
                handle,
                tuple(self.symbols[dim] if isinstance(dim, str) else dim for dim in shape),
                dtype,
                # By default TVM assumes alignment to 64 bytes, which a view of a tensor need not
                # have.
                align=item_bytes(dtype),
            )
            for handle, shape, dtype in self._declared
        ]
        with opaque_block():
            yield [
                T.decl_buffer((self.size(shape),), dtype, data=buffer.data)
                for buffer, (_, shape, dtype) in zip(matched, self._declared, strict=True)
            ]


@contextmanager
def opaque_block() -> Iterator[None]:
    """Begin the block around the whole body, which TVM's schedulers and tuner leave as it is.

    The block is nested in a root block, as TVM's passes expect.
    """
    with _untouched("root"), _untouched("opaque"):
        yield


@contextmanager
def _untouched(name: str) -> Iterator[None]:
    with T.sblock(name):
        T.reads()
        T.writes()
        T.sblock_attr({"schedule_rule": "None"})
        yield
