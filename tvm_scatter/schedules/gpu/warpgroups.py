"""What four warps compute together, by which schedules replace loops.

Each warp has 16 of the 64 rows, and all columns of the four. Its sums lie as fragments do
(:mod:`.fragments`), one beside the other.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from tvm_scatter.passes.analysis.fragment_tiles import SIDE

from . import warpgroup_code as code
from .fragments import registered


def multiplies(
    dtype: str, scope: str, columns: int, left_by_term: bool, right_by_term: bool
) -> str:
    """The name of the intrinsic that adds 16 rows of a product, over 16 terms.

    Parameters
    ----------
    scope : str
        The scope of the shared memory where the factors are: rows of 64 elements, which are terms
        of a line, or 64 lines of a term.
    columns : int
        The columns of the product.
    left_by_term, right_by_term : bool
        For both factors, whether these rows are terms.
    """
    return registered(
        f"tvm_scatter_group_{dtype}_{scope}_{columns}_{left_by_term}_{right_by_term}",
        lambda: _products(dtype, scope, columns, (left_by_term, right_by_term)),
    )


def place(line: Any, term: Any, by_term: bool) -> tuple[Any, Any, Any]:
    """Where an element of a factor lies, apart from what :mod:`.turned_rows` does."""
    if by_term:
        return T.floordiv(line, code.ROW), term, T.floormod(line, code.ROW)
    return T.floordiv(term, code.ROW), line, T.floormod(term, code.ROW)


def _products(
    dtype: str, scope: str, columns: int, by_term: tuple[bool, bool]
) -> tuple[PrimFunc, PrimFunc]:
    left_shape = (1, SIDE, SIDE)
    right_shape = (columns // code.ROW, SIDE, code.ROW) if by_term[1] else (1, columns, SIDE)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def loops(left: T.handle, right: T.handle, sums: T.handle) -> None:
        A = T.match_buffer(left, left_shape, dtype, align=64, offset_factor=SIDE, scope=scope)
        B = T.match_buffer(right, right_shape, dtype, align=64, offset_factor=SIDE, scope=scope)
        C = T.match_buffer(
            sums, (SIDE, columns), "float32", align=64, offset_factor=SIDE, scope="local"
        )
        with T.sblock("root"):
            T.reads(
                C[0:SIDE, 0:columns],
                A[0:1, 0:SIDE, 0:SIDE],
                B[0 : right_shape[0], 0 : right_shape[1], 0 : right_shape[2]],
            )
            T.writes(C[0:SIDE, 0:columns])
            for i, j, k in T.grid(SIDE, columns, SIDE):
                with T.sblock("element"):
                    row, column, term = T.axis.remap("SSR", [i, j, k])
                    a0, a1, a2 = T.meta_var(place(row, term, by_term[0]))
                    b0, b1, b2 = T.meta_var(place(column, term, by_term[1]))
                    C[row, column] = C[row, column] + T.Cast("float32", A[a0, a1, a2]) * T.Cast(
                        "float32", B[b0, b1, b2]
                    )

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def instead(left: T.handle, right: T.handle, sums: T.handle) -> None:
        a1 = T.int32()
        a0 = T.int32()
        b1 = T.int32()
        b0 = T.int32()
        c0 = T.int32()
        A = T.match_buffer(
            left, left_shape, dtype, align=64, offset_factor=SIDE, scope=scope, strides=[a0, a1, 1]
        )
        B = T.match_buffer(
            right, right_shape, dtype, align=64, offset_factor=SIDE, scope=scope,
            strides=[b0, b1, 1],
        )  # fmt: skip
        C = T.match_buffer(
            sums, (SIDE, columns), "float32", align=64, offset_factor=SIDE, scope="local",
            strides=[c0, 1],
        )  # fmt: skip
        with T.sblock("root"):
            T.reads(
                C[0:SIDE, 0:columns],
                A[0:1, 0:SIDE, 0:SIDE],
                B[0 : right_shape[0], 0 : right_shape[1], 0 : right_shape[2]],
            )
            T.writes(C[0:SIDE, 0:columns])
            T.evaluate(
                code.multiply(
                    T.address_of(C[0, 0]),
                    T.address_of(A[0, 0, 0]),
                    T.address_of(B[0, 0, 0]),
                    (T.floormod(A.elem_offset, code.ROW), T.floormod(B.elem_offset, code.ROW)),
                    b0,
                    columns,
                    dtype,
                    by_term,
                )
            )

    return loops, instead
