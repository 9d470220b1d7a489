"""``gcd`` and ``lcm`` of integers."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx, topi
from tvm.script import tirx as T

from tvm_scatter.ops.shapes import is_empty, number_of

from .arithmetic import as_tensors, common_type, is_integral
from .call import TorchCall

_ZERO = tirx.IntImm("int64", 0)


def greatest_common_divisor(call: TorchCall) -> Any:
    """``gcd``."""
    left, right, shape = _operands(call)
    return call.reshape(_divisors(call, left, right), shape)


def least_common_multiple(call: TorchCall) -> Any:
    """``lcm``, which is 0 of zeros. Those of up to 32 bits wrap."""
    left, right, shape = _operands(call)
    divisors, dtype = _divisors(call, left, right), str(left.ty.dtype)

    def multiple(left: te.Tensor, right: te.Tensor, divisors: te.Tensor) -> te.Tensor:
        def at(i: Any) -> Any:
            one, other, divisor = (each[i].astype("int64") for each in (left, right, divisors))
            # The least integer divided by -1 would end the process.
            size = tirx.Select(divisor < _ZERO, -divisor, divisor)
            safe = tirx.Select(size == _ZERO, tirx.IntImm("int64", 1), size)
            product = tirx.truncdiv(one, safe) * other
            product = product if dtype.endswith("64") else _wrapped(product)
            product = tirx.Select(product < _ZERO, -product, product)
            return tirx.Select(size == _ZERO, _ZERO, product).astype(dtype)

        return te.compute(left.shape, at, name="multiple")

    if is_empty(left):
        return call.reshape(left, shape)
    return call.reshape(call.compute(multiple, left, right, divisors, name="lcm"), shape)


def _wrapped(value: Any) -> Any:
    """The lowest 32 bits with their sign. PyTorch computes narrower integers by these, too.

    TVM takes a cast to int32 and back for nothing.
    """
    sign = tirx.IntImm("int64", 1 << 31)
    return ((value & tirx.IntImm("int64", (1 << 32) - 1)) ^ sign) - sign


def _operands(call: TorchCall) -> tuple[Any, Any, Any]:
    """Both operands as vectors of one type, and the shape of the result."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if not is_integral(dtype) or dtype == "bool":
        raise call.error(f"values must be integers, not of type {dtype}.")
    tensors = as_tensors(call, operands, dtype)
    shape = call.broadcast(*tensors)
    full = [
        call.compute(topi.broadcast_to, each, relax.ShapeExpr(shape), name="broadcast")
        for each in tensors
    ]
    left, right = (call.reshape(each, (number_of(shape),)) for each in full)
    return left, right, shape


def _divisors(call: TorchCall, left: Any, right: Any) -> Any:
    if is_empty(left):
        return left
    function = call.bb.add_func(_euclid(str(left.ty.dtype)), "gcd")
    return call.emit(relax.call_tir(function, [left, right], left.ty))


def _euclid(dtype: str) -> Any:
    """Euclid's algorithm for each pair. The least integer has no positive counterpart."""
    zero = tirx.const(0, dtype)

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def euclid(left: T.handle, right: T.handle, found: T.handle) -> None:
        T.func_attr({"op_pattern": 8, "tirx.noalias": True})
        n = T.int64()
        A = T.match_buffer(left, (n,), dtype)
        B = T.match_buffer(right, (n,), dtype)
        F = T.match_buffer(found, (n,), dtype)
        for i in range(n):
            with T.sblock("euclid"):
                at = T.axis.remap("S", [i])
                T.reads(A[at], B[at])
                T.writes(F[at])
                low = T.sblock_alloc_buffer((1,), dtype, scope="local")
                high = T.sblock_alloc_buffer((1,), dtype, scope="local")
                rest = T.sblock_alloc_buffer((1,), dtype, scope="local")
                low[0] = T.Select(A[at] < zero, zero - A[at], A[at])
                high[0] = T.Select(B[at] < zero, zero - B[at], B[at])
                while low[0] != zero:
                    rest[0] = T.truncmod(high[0], low[0])
                    high[0] = low[0]
                    low[0] = rest[0]
                F[at] = high[0]

    return euclid
