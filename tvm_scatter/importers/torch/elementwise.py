"""Functions of single elements, and products, whose types TVM's importer does not convert."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import number_of

from .arithmetic import common_type, default_float
from .call import TorchCall
from .ordering import is_float

_OF_FLOATS = (
    *("acos", "acosh", "asin", "asinh", "atan", "cos", "cosh", "erf", "exp", "log"),
    *("rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
)

_ABOUT_FLOATS = ("isfinite", "isinf", "isnan")


def of_float(function: Callable[[Any], Any], call: TorchCall) -> Any:
    """A function whose value of an integer is a float."""
    data = call["self"]
    if is_float(str(data.ty.dtype)):
        return None
    return call.emit(function(call.cast(data, default_float())))


def of_any(number: bool, call: TorchCall) -> Any:
    """``isfinite``, ``isinf`` and ``isnan``: all integers are finite numbers."""
    data = call["self"]
    if is_float(str(data.ty.dtype)):
        return None
    return call.full(shape_of(data), number, "bool")


def exp2(call: TorchCall) -> Any:
    """``exp2``."""
    data = _float(call, call["self"])
    return call.emit(relax.op.power(relax.const(2, str(data.ty.dtype)), data))


def hypot(call: TorchCall) -> Any:
    """``hypot``, scaled so that no square overflows."""
    dtype = common_type(call["self"], call["other"])
    left, right = (call.emit(relax.op.abs(call.cast(call[x], dtype))) for x in ("self", "other"))
    greater, less = (
        call.emit(relax.op.maximum(left, right)),
        call.emit(relax.op.minimum(left, right)),
    )
    zero, one = relax.const(0, dtype), relax.const(1, dtype)
    safe = call.emit(relax.op.where(call.emit(relax.op.equal(greater, zero)), one, greater))
    ratio = call.emit(relax.op.divide(less, safe))
    root = call.emit(relax.op.sqrt(call.emit(relax.op.add(one, relax.op.multiply(ratio, ratio)))))
    return _of_extremes(call, left, right, call.emit(relax.op.multiply(greater, root)))


def _of_extremes(call: TorchCall, left: Any, right: Any, length: Any) -> Any:
    """The length of two sides, of which one may be infinite, or else not a number."""
    infinity = relax.const(float("inf"), str(length.ty.dtype))
    sides = call.emit(relax.op.add(left, right))
    length = call.emit(relax.op.where(call.emit(relax.op.isnan(sides)), sides, length))
    infinite = (call.emit(relax.op.equal(side, infinity)) for side in (left, right))
    return call.emit(relax.op.where(call.emit(relax.op.logical_or(*infinite)), infinity, length))


def any_of(call: TorchCall) -> Any:
    """``any`` of all, or along dimensions. "Not a number" is true."""
    return _as_truth_of(call, _any(call, _truth(call, call["self"])))


def all_of(call: TorchCall) -> Any:
    """``all``."""
    untrue = call.emit(relax.op.logical_not(_truth(call, call["self"])))
    return _as_truth_of(call, call.emit(relax.op.logical_not(_any(call, untrue))))


def logical(function: Callable[..., Any], call: TorchCall) -> Any:
    """``logical_and`` and so on, of tensors of any types."""
    operands = [_truth(call, call[name]) for name in ("self", "other") if name in call]
    return call.emit(function(*operands))


def product(call: TorchCall) -> Any:
    """Products of matrices that are not of single precision, in whose type TVM answers all."""
    left, right = (call[name] for name in ("self", "mat2" if "mat2" in call else "other"))
    dtype = str(left.ty.dtype)
    if dtype == "float32":
        return None
    return call.cast(call.emit(relax.op.matmul(left, right, out_dtype=sum_type(dtype))), dtype)


def added_product(call: TorchCall) -> Any:
    """``addmm`` and ``baddbmm``, for the same types."""
    names = ("mat1", "mat2") if "mat1" in call else ("batch1", "batch2")
    data, left, right = (call[name] for name in ("self", *names))
    dtype = str(data.ty.dtype)
    if dtype == "float32":
        return None
    wide = sum_type(dtype)
    result = call.emit(relax.op.matmul(left, right, out_dtype=wide))
    result = _scaled(call, result, call["alpha"])
    if call["beta"] != 0:
        own = _scaled(call, call.cast(data, wide), call["beta"])
        result = call.emit(relax.op.add(own, result))
    return call.cast(result, dtype)


def sum_type(dtype: str) -> str:
    """The type in which products are added up."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _float(call: TorchCall, data: Any) -> Any:
    return data if is_float(str(data.ty.dtype)) else call.cast(data, default_float())


def _scaled(call: TorchCall, data: Any, factor: Any) -> Any:
    if isinstance(factor, int | float) and factor == 1:
        return data
    return call.emit(relax.op.multiply(data, call.scalar(factor, str(data.ty.dtype))))


def _truth(call: TorchCall, data: Any) -> Any:
    """Whether elements are not zero. "Not a number" is none."""
    dtype = str(data.ty.dtype)
    if dtype == "bool":
        return data
    zero = call.emit(relax.op.equal(data, relax.const(0, dtype)))
    return call.emit(relax.op.logical_not(zero))


def _as_truth_of(call: TorchCall, found: Any) -> Any:
    """``any`` and ``all`` of uint8 are uint8, which PyTorch had before it had booleans."""
    return call.cast(found, "uint8") if str(call["self"].ty.dtype) == "uint8" else found


def _any(call: TorchCall, truth: Any) -> Any:
    """Whether one of several booleans is true; none of none is."""
    shape, dims = shape_of(truth), call.get("dim", None)
    dims = [dims] if isinstance(dims, int) else dims
    # An empty list of dimensions is not all of them: each element stays by itself.
    if not shape or (dims is not None and not dims):
        return truth
    axes = [call.axis(dim, len(shape)) for dim in dims or range(len(shape))]
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    if not call.get("keepdim", False):
        kept = [size for axis, size in enumerate(shape) if axis not in axes]
    if number_of(shape) == 0:
        return call.full(kept, False, "bool")
    # The least value of this type is zero, which an axis of size zero gives.
    found = relax.op.max(call.cast(truth, "uint8"), axes, call.get("keepdim", False))
    return call.cast(call.emit(found), "bool")


ELEMENTWISE: dict[str, Callable[[TorchCall], Any]] = {
    **{f"{name}.default": partial(of_float, getattr(relax.op, name)) for name in _OF_FLOATS},
    **{f"{name}.default": partial(of_any, name == "isfinite") for name in _ABOUT_FLOATS},
    "exp2.default": exp2,
    "hypot.default": hypot,
    "logical_and.default": partial(logical, relax.op.logical_and),
    "logical_or.default": partial(logical, relax.op.logical_or),
    "logical_xor.default": partial(logical, relax.op.logical_xor),
    "logical_not.default": partial(logical, relax.op.logical_not),
    **{f"any.{overload}": any_of for overload in ("default", "dim", "dims")},
    **{f"all.{overload}": all_of for overload in ("default", "dim", "dims")},
    "_is_any_true.default": any_of,
    "_is_all_true.default": all_of,
    **{f"{name}.default": product for name in ("mm", "bmm", "matmul")},
    "addmm.default": added_product,
    "baddbmm.default": added_product,
}
