"""The Relax operator that lists the true positions of a mask: a stream compaction.

How many there are is known only at run time. Everything in a model whose size depends on a mask can
be said with this operator: ``nonzero``, ``x[mask]``, ``masked_select``.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError

from .arguments import need_tensor
from .own_operators import call_of, register_operator
from .shapes import is_empty

TRUE_POSITIONS = "relax.tvm_scatter.true_positions"


def true_positions(mask: relax.Expr, *, operator: str = "true_positions") -> relax.Expr:
    """List the positions in the flattened mask at which it is true.

    The result has no known size. ``BlockBuilder.match_cast`` to a tensor type of a new symbolic
    size gives it one.

    Parameters
    ----------
    mask : relax.Expr
        A boolean tensor of any shape.
    operator : str
        The name of the operator in errors.

    Returns
    -------
    positions : relax.Expr
        Ascending positions: int64 of shape (count,).

    Raises
    ------
    ScatterError
        If the mask is no tensor of booleans.
    """
    need_tensor(operator, "mask", mask)
    if isinstance(mask.ty, relax.TensorType) and str(mask.ty.dtype) != "bool":
        raise ScatterError(f"{operator}: mask of type {mask.ty.dtype} must be of type bool.")
    return call_of(TRUE_POSITIONS, [mask])


def is_true(tensor: te.Tensor) -> te.Tensor:
    """The mask of the elements that are not zero, as NumPy has it: NaN is true, -0.0 is not."""

    def element(*at: Any) -> Any:
        value = tensor(*at)
        if "float" not in str(tensor.dtype):
            return value != 0
        # By the bits without the sign, because with fast arithmetic the smallest numbers compare
        # equal to zero.
        bits = tvm.DataType(tensor.dtype).bits
        unsigned = tirx.reinterpret(f"uint{bits}", value)
        magnitude = tirx.const((1 << bits - 1) - 1, f"uint{bits}")
        return tirx.bitwise_and(unsigned, magnitude) != 0

    return te.compute(tensor.shape, element, name="is_true")


def register() -> None:
    """Register the operator with TVM. Calling it again changes nothing."""
    # TVM legalizes other operators only if the shape of their result is known.
    register_operator(TRUE_POSITIONS, _infer, FDataDependent=True)


def _infer(call: relax.Call, _context: Any) -> Any:
    mask = call.args[0]
    if is_empty(mask):
        return relax.TensorType([0], "int64", mask.ty.vdevice)
    return relax.TensorType(None, "int64", mask.ty.vdevice, 1)
