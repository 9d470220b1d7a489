"""Integers in the order of a tensor's elements, with "not a number" last, as PyTorch sorts."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from .call import TorchCall

_INTEGERS = {"float32": "int32", "float64": "int64"}
#: Elements of these types are their own keys.
_OWN_KEYS = ("int32", "int64")


def is_float(dtype: str) -> bool:
    """Whether values of the type may be "not a number"."""
    return dtype.startswith(("float", "bfloat"))


def unknown(call: TorchCall, data: Any) -> Any:
    """Which elements of a tensor of floats are "not a number". TVM cannot tell of bfloat16."""
    if str(data.ty.dtype) == "bfloat16":
        data = call.cast(data, "float32")
    return call.emit(relax.op.isnan(data))


def keys(call: TorchCall, data: Any, *, descending: bool = False, last: bool = True) -> Any:
    """A tensor of int32 or int64 that is in the order of ``data``, or in the opposite one.

    Parameters
    ----------
    call : TorchCall
        The operator.
    data : relax.Expr
        Any shape and type. Zeros of either sign have one key.
    descending : bool
        Whether a greater element has a smaller key.
    last : bool
        Whether "not a number" is greater than all numbers, or less.
    """
    if str(data.ty.dtype) in _OWN_KEYS and not descending:
        return data

    def ordered(data: te.Tensor) -> te.Tensor:
        def key(*at: Any) -> Any:
            found = key_of(data(*at), last=last)
            # Not ``~``, which CUDA has for single integers alone.
            return found ^ -1 if descending else found

        return te.compute(data.shape, key, name="keys")

    return call.compute(ordered, data, name="keys")


def key_of(value: Any, *, last: bool = True) -> Any:
    """The key of one element. The order of integers is that of the bits, but for the sign."""
    dtype = str(value.ty)
    if not is_float(dtype):
        return value if dtype in _OWN_KEYS else value.astype("int32")
    if dtype not in _INTEGERS:
        return key_of(value.astype("float32"), last=last)
    bits = tirx.reinterpret(_INTEGERS[dtype], value)
    greatest, infinite = tirx.max_value(bits.ty), _bits_of_infinity(dtype)
    size = bits & greatest
    unknown = greatest if last else -greatest
    number = tirx.Select(bits < 0, -size, size)
    return tirx.Select(size > infinite, unknown, number)


def later_of_unknown(key: Any, place: Any, dtype: str) -> Any:
    """A key at a place of a window, where of several "not a number" the last is the greatest."""
    if not is_float(dtype):
        return key
    infinite = _bits_of_infinity("float64" if dtype == "float64" else "float32")
    # Keys beyond infinity are all "not a number": there are 2**23 of them or more.
    rank = tirx.min(place, tirx.const(2**22, place.ty)).astype(str(key.ty))
    return tirx.Select(key > infinite, infinite + tirx.const(1, key.ty) + rank, key)


def values_of(call: TorchCall, order: Any, dtype: str) -> Any:
    """The elements of type ``dtype`` with the keys of a tensor."""

    def values(order: te.Tensor) -> te.Tensor:
        return te.compute(order.shape, lambda *at: value_of(order(*at), dtype), name="values")

    return call.compute(values, order, name="values")


def value_of(key: Any, dtype: str) -> Any:
    """The element of type ``dtype`` with a key; the inverse of :func:`key_of`."""
    if not is_float(dtype):
        return key if str(key.ty) == dtype else key.astype(dtype)
    if dtype not in _INTEGERS:
        return value_of(key, "float32").astype(dtype)
    bits = tirx.Select(key < 0, -key | tirx.min_value(key.ty), key)
    unknown = tirx.const(float("nan"), dtype)
    return tirx.Select(_is_unknown(key, dtype), unknown, tirx.reinterpret(dtype, bits))


def _is_unknown(key: Any, dtype: str) -> Any:
    infinite = _bits_of_infinity(dtype)
    return tirx.any(key > infinite, key < -infinite)


def _bits_of_infinity(dtype: str) -> Any:
    bits = {"float32": 0x7F800000, "float64": 0x7FF0000000000000}[dtype]
    return tirx.IntImm(_INTEGERS[dtype], bits)
