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

#: Opaque, so that FuseTIR leaves the function alone, and scheduled, so that dlight does.
PRIM_FUNC_ATTRS = {"op_pattern": 8, "tirx.is_scheduled": True, "tirx.noalias": True}


class Parameters:
    """The buffer parameters of a PrimFunc under construction, and the symbolic sizes they bind."""

    def __init__(self) -> None:
        self.symbols: dict[str, Any] = {}
        self._declared: list[tuple[Any, tuple[Dim, ...], str]] = []

    def add(self, name: str, shape: Sequence[Dim], dtype: str) -> None:
        """Declare the next parameter."""
        for dim in shape:
            if isinstance(dim, str) and dim not in self.symbols:
                self.symbols[dim] = tirx.Var(dim, "int64")
        self._declared.append((T.arg(name, T.handle()), tuple(shape), dtype))

    def size(self, shape: Sequence[Dim]) -> Any:
        """The number of elements of a shape: an ``int`` or an int64 expression."""
        return SymbolicSize.product(shape).value(self.symbols)

    @contextmanager
    def in_body(self) -> Iterator[list[Any]]:
        """The body of the function, once all are declared: the parameters as flat buffers."""
        matched = [
            T.match_buffer(
                handle,
                tuple(self.symbols[dim] if isinstance(dim, str) else dim for dim in shape),
                dtype,
                # TVM would take a caller's tensor for aligned to 64 bytes, and a view need not be.
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
    """All that a function does, in one block that TVM's schedulers and tuner leave as it is.

    It stands in a block of its own: TVM's passes expect a function to begin with one for all, and
    one of them that each statement there has others in it.
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
