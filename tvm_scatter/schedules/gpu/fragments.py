"""Fragments of matrices, by which schedules replace loops.

A thread's part of each fragment of 16 x 16 elements lies where the first of these would lie, were
they all in the memory of that thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from tvm_scatter.passes.analysis.fragment_tiles import SIDE

from . import tensor_core_code as code


def loads(dtype: str, scope: str, is_left: bool, by_term: bool) -> str:
    """The name of the intrinsic that loads a fragment of a factor.

    Parameters
    ----------
    scope : str
        The scope of the shared memory where the factor is.
    is_left : bool
        Whether it is the left factor.
    by_term : bool
        Whether the terms of a sum are the rows of the factor there, and not its columns.
    """

    across, transposed = is_left == by_term, by_term

    def call(fragment: Any, tile: Any, stride: Any) -> Any:
        return code.load(fragment, tile, stride, across, transposed)

    return registered(
        f"tvm_scatter_load_{dtype}_{scope}_{is_left}_{by_term}",
        lambda: _copies(dtype, scope, "local", call),
    )


def stores(scope: str) -> str:
    """The name of the intrinsic that stores a fragment of sums in shared memory."""

    def call(tile: Any, sums: Any, stride: Any) -> Any:
        return code.store(tile, sums, stride)

    return registered(
        f"tvm_scatter_store_{scope}", lambda: _copies("float32", "local", scope, call)
    )


def clears(columns: int) -> str:
    """The name of the intrinsic that sets fragments of sums beside each other to zero."""
    return registered(f"tvm_scatter_clear_{columns}", lambda: _zeros(columns))


def multiplies(dtype: str, left_by_term: bool, right_by_term: bool) -> str:
    """The name of the intrinsic that adds the product of two fragments to a third."""
    return registered(
        f"tvm_scatter_multiply_{dtype}_{left_by_term}_{right_by_term}",
        lambda: _products(dtype, left_by_term, right_by_term),
    )


def registered(name: str, make: Callable[[], tuple[PrimFunc, PrimFunc]]) -> str:
    if TensorIntrin.get(name, allow_missing=True) is None:
        TensorIntrin.register(name, *make())
    return name


def _copies(
    dtype: str, origin: str, place: str, call: Callable[[Any, Any, Any], Any]
) -> tuple[PrimFunc, PrimFunc]:
    """A copy of a fragment, and the call that takes its place, of place, origin and stride."""
    is_load = place == "local"

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def loops(origin_pointer: T.handle, place_pointer: T.handle) -> None:
        A = T.match_buffer(
            origin_pointer, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope=origin
        )
        B = T.match_buffer(
            place_pointer, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope=place
        )
        with T.sblock("root"):
            T.reads(A[0:SIDE, 0:SIDE])
            T.writes(B[0:SIDE, 0:SIDE])
            for i, j in T.grid(SIDE, SIDE):
                with T.sblock("element"):
                    row, column = T.axis.remap("SS", [i, j])
                    B[row, column] = A[row, column]

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def instead(origin_pointer: T.handle, place_pointer: T.handle) -> None:
        a1 = T.int32()
        a0 = T.int32()
        b1 = T.int32()
        b0 = T.int32()
        A = T.match_buffer(
            origin_pointer, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope=origin,
            strides=[a1, a0],
        )  # fmt: skip
        B = T.match_buffer(
            place_pointer, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope=place,
            strides=[b1, b0],
        )  # fmt: skip
        with T.sblock("root"):
            T.reads(A[0:SIDE, 0:SIDE])
            T.writes(B[0:SIDE, 0:SIDE])
            T.evaluate(call(T.address_of(B[0, 0]), T.address_of(A[0, 0]), a1 if is_load else b1))

    return loops, instead


def _zeros(columns: int) -> tuple[PrimFunc, PrimFunc]:
    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def loops(pointer: T.handle) -> None:
        C = T.match_buffer(
            pointer, (SIDE, columns), "float32", align=64, offset_factor=SIDE, scope="local"
        )
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:SIDE, 0:columns])
            for i, j in T.grid(SIDE, columns):
                with T.sblock("element"):
                    row, column = T.axis.remap("SS", [i, j])
                    C[row, column] = T.float32(0)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def instead(pointer: T.handle) -> None:
        c1 = T.int32()
        c0 = T.int32()
        C = T.match_buffer(
            pointer, (SIDE, columns), "float32", align=64, offset_factor=SIDE, scope="local",
            strides=[c1, c0],
        )  # fmt: skip
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:SIDE, 0:columns])
            T.evaluate(code.clear(T.address_of(C[0, 0]), columns // SIDE))

    return loops, instead


def _products(dtype: str, left_by_term: bool, right_by_term: bool) -> tuple[PrimFunc, PrimFunc]:
    def of_left(row: Any, term: Any) -> Any:
        return (term, row) if left_by_term else (row, term)

    def of_right(column: Any, term: Any) -> Any:
        return (term, column) if right_by_term else (column, term)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def loops(left: T.handle, right: T.handle, sums: T.handle) -> None:
        A = T.match_buffer(left, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope="local")
        B = T.match_buffer(right, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope="local")
        C = T.match_buffer(
            sums, (SIDE, SIDE), "float32", align=64, offset_factor=SIDE, scope="local"
        )
        with T.sblock("root"):
            T.reads(C[0:SIDE, 0:SIDE], A[0:SIDE, 0:SIDE], B[0:SIDE, 0:SIDE])
            T.writes(C[0:SIDE, 0:SIDE])
            for i, j, k in T.grid(SIDE, SIDE, SIDE):
                with T.sblock("element"):
                    row, column, term = T.axis.remap("SSR", [i, j, k])
                    a0, a1 = T.meta_var(of_left(row, term))
                    b0, b1 = T.meta_var(of_right(column, term))
                    C[row, column] = C[row, column] + T.Cast("float32", A[a0, a1]) * T.Cast(
                        "float32", B[b0, b1]
                    )

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def instead(left: T.handle, right: T.handle, sums: T.handle) -> None:
        a1 = T.int32()
        a0 = T.int32()
        b1 = T.int32()
        b0 = T.int32()
        c1 = T.int32()
        c0 = T.int32()
        A = T.match_buffer(
            left, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope="local",
            strides=[a1, a0],
        )  # fmt: skip
        B = T.match_buffer(
            right, (SIDE, SIDE), dtype, align=64, offset_factor=SIDE, scope="local",
            strides=[b1, b0],
        )  # fmt: skip
        C = T.match_buffer(
            sums, (SIDE, SIDE), "float32", align=64, offset_factor=SIDE, scope="local",
            strides=[c1, c0],
        )  # fmt: skip
        with T.sblock("root"):
            T.reads(C[0:SIDE, 0:SIDE], A[0:SIDE, 0:SIDE], B[0:SIDE, 0:SIDE])
            T.writes(C[0:SIDE, 0:SIDE])
            T.evaluate(
                code.multiply(
                    T.address_of(C[0, 0]), T.address_of(A[0, 0]), T.address_of(B[0, 0]), dtype
                )
            )

    return loops, instead
