"""The Relax operator that multiplies groups of rows by a matrix each, as mixtures of experts do."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from tvm_scatter.errors import ScatterError

from .arguments import need_tensor
from .own_operators import call_of, register_operator
from .shapes import known_shape, same_size

GROUPED_PRODUCT = "relax.tvm_scatter.grouped_product"


def grouped_product(
    rows: relax.Expr,
    matrices: relax.Expr,
    ends: relax.Expr,
    *,
    operator: str = "grouped_product",
) -> relax.Expr:
    """Multiply each row by the matrix of its group.

    Parameters
    ----------
    rows : relax.Expr
        Floats of shape (S, K), sorted by group.
    matrices : relax.Expr
        Of the type of the rows and shape (G, K, N).
    ends : relax.Expr
        Integers of shape (G,), ascending: group ``g`` has the rows ``ends[g - 1]`` to ``ends[g] -
        1``. Rows behind the last group are in no group.
    operator : str
        The name of the operator in errors.

    Returns
    -------
    products : relax.Expr
        Shape (S, N), of the type of the rows. The products of rows in no group are zero.

    Raises
    ------
    ScatterError
        If an operand has another rank, or the shapes or types do not match.
    """
    for what, tensor, rank in (("rows", rows, 2), ("matrices", matrices, 3), ("ends", ends, 1)):
        need_tensor(operator, what, tensor)
        if tensor.ty.ndim != rank:
            raise ScatterError(
                f"{operator}: {what} of rank {tensor.ty.ndim} must have rank {rank}."
            )
    (_, inner), (groups, depth, _), (count,) = (
        tuple(
            int(size) if isinstance(size, tirx.IntImm) else size
            for size in known_shape(operator, each)
        )
        for each in (rows, matrices, ends)
    )
    if not same_size(inner, depth):
        raise ScatterError(f"{operator}: rows of {inner} elements times matrices of {depth} rows.")
    if not same_size(groups, count):
        raise ScatterError(f"{operator}: {groups} matrices for {count} groups.")
    if rows.ty.dtype != matrices.ty.dtype:
        raise ScatterError(
            f"{operator}: rows of type {rows.ty.dtype} times matrices of type {matrices.ty.dtype}."
        )
    return call_of(GROUPED_PRODUCT, [rows, matrices, ends], {"operator": operator})


def register() -> None:
    """Register the operator with TVM. Calling it again changes nothing."""
    register_operator(GROUPED_PRODUCT, _infer)


def _infer(call: relax.Call, _context: Any) -> Any:
    rows, matrices, _ = (tensor.ty for tensor in call.args)
    if rows.shape is None or matrices.shape is None:
        return relax.TensorType(None, rows.dtype, rows.vdevice, 2)
    return relax.TensorType([rows.shape[0], matrices.shape[2]], rows.dtype, rows.vdevice)
