"""Types that TVM does not sort, as types that it does, in the same order."""

from __future__ import annotations

from tvm import relax, te, tirx

#: What holds all numbers of a type.
_WIDER = {"bool": "uint8", "int16": "int32", "uint16": "int32", "uint32": "int64"}


def sortable(bb: relax.BlockBuilder, tensor: relax.Expr) -> relax.Expr:
    """A tensor of a type that TVM sorts: the one given, or numbers in the same order."""
    dtype = str(tensor.ty.dtype)
    if dtype == "uint64":
        return bb.emit_te(_shifted, tensor, "int64", primfunc_name_hint="sortable")
    return bb.emit(relax.op.astype(tensor, _WIDER[dtype])) if dtype in _WIDER else tensor


def restored(bb: relax.BlockBuilder, tensor: relax.Expr, dtype: str) -> relax.Expr:
    """What :func:`sortable` was made of."""
    if dtype == "uint64":
        return bb.emit_te(_shifted, tensor, dtype, primfunc_name_hint="restored")
    return bb.emit(relax.op.astype(tensor, dtype)) if dtype in _WIDER else tensor


def _shifted(tensor: te.Tensor, dtype: str) -> te.Tensor:
    """Half of all numbers less or more: the bit of the sign is the other one."""
    half = tirx.reinterpret(tensor.dtype, tirx.const(1 << 63, "uint64"))

    def number(*at: object) -> object:
        return tirx.reinterpret(dtype, tirx.bitwise_xor(tensor(*at), half))

    return te.compute(tensor.shape, number, name="shifted")
