"""Search in sorted sequences: ``searchsorted``, ``bucketize`` and ``repeat_interleave``."""

from __future__ import annotations

from typing import Any

from tvm import relax, te
from tvm.script import tirx as T

from tvm_scatter.emit.parameters import SEARCHES
from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops.expectations import EQUAL, NOT_NEGATIVE
from tvm_scatter.ops.shapes import is_empty, number_of

from .arithmetic import common_type
from .call import TorchCall
from .ordering import keys
from .sizes import read_size


def search_sorted(call: TorchCall) -> Any:
    """``searchsorted``, in one sequence or in one for each line of values."""
    sequence, values = call["sorted_sequence"], call["self"]
    right = bool(call["right"]) or call["side"] == "right"
    if call["sorter"] is not None:
        sequence = call.emit(
            relax.op.gather_elements(sequence, call.cast(call["sorter"], "int64"), axis=-1)
        )
    return _found(call, sequence, values, right=right)


def bucketize(call: TorchCall) -> Any:
    """``bucketize``."""
    return _found(call, call["boundaries"], call["self"], right=bool(call["right"]))


def repeat_interleave(call: TorchCall) -> Any:
    """``repeat_interleave``: the number ``i`` as often as ``repeats[i]`` says.

    PyTorch decomposes the other forms into this one and a read. Only the run time knows the size of
    the result, unless ``output_size`` is given.
    """
    repeats, size = call["repeats"], call["output_size"]
    if repeats.ty.ndim != 1:
        raise call.error(f"repeats must be a vector, but its rank is {repeats.ty.ndim}.")
    if str(repeats.ty.dtype) not in ("int32", "int64"):
        raise call.error(f"repeats of type {repeats.ty.dtype} must be of type int32 or int64.")
    if is_empty(repeats):
        return call.emit(relax.op.zeros((0,), "int64"))
    counts = call.cast(repeats, "int64")
    counts = call.expect_numbers("a number of repeats", counts, counts, NOT_NEGATIVE)
    ends = call.emit(relax.op.cumsum(counts, axis=0))
    # The greatest one of no ends is the least integer. A sum that overflows was greater than any
    # memory before.
    total = call.emit(relax.op.maximum(relax.op.max(ends), relax.const(0, "int64")))
    total = call.reshape(total, (1,))
    if size is None:
        size = read_size(call, total)
    else:
        ends = call.expect_numbers("the sum of repeats (output_size)", ends, total, EQUAL, size)
    count = shape_of(repeats)[0]

    def place(size: Any) -> te.Tensor:
        return te.compute((size,), lambda i: i.astype("int64"), name="place")

    places = call.compute(place, size, name="place")
    found = bounds(
        call, call.reshape(ends, (1, count)), call.reshape(places, (1, size)), right=True
    )
    return call.cast(call.reshape(found, (size,)), str(repeats.ty.dtype))


def bounds(call: TorchCall, sequence: Any, values: Any, *, right: bool) -> Any:
    """The first position of a sorted line from which on elements are not less than a value.

    Parameters
    ----------
    call : TorchCall
        The operator.
    sequence : relax.Expr
        Integers of shape (lines, size) in ascending order, or (1, size) for all lines of values.
    values : relax.Expr
        Integers of the same type, of shape (lines, count).
    right : bool
        Whether the elements from the position on are greater than the value.

    Returns
    -------
    positions : relax.Expr
        int64 of the shape of the values, at most ``size``.
    """
    shape = shape_of(values)
    if is_empty(values) or is_empty(sequence):
        return call.emit(relax.op.zeros(shape, "int64"))
    function = call.bb.add_func(_search(str(values.ty.dtype), right), "search_sorted")
    out = relax.TensorType(list(shape), "int64")
    return call.emit(relax.call_tir(function, [sequence, values], out))


def _found(call: TorchCall, sequence: Any, values: Any, *, right: bool) -> Any:
    """The positions of values in sequences, in the type and shape that the call asks for."""
    dtype = common_type(sequence, values)
    if not isinstance(values, relax.Expr) or not isinstance(values.ty, relax.TensorType):
        values = call.scalar(values, dtype)
    shape, size = shape_of(values), shape_of(sequence)[-1]
    lines = shape_of(sequence)[:-1]
    if lines and len(lines) != len(shape) - 1:
        raise call.error(
            f"sequences of shape {text(shape_of(sequence))} and values of shape {text(shape)} must "
            "agree in all dimensions but the last."
        )
    if lines:
        values = call.expect_shape("values", values, (*lines, shape[-1]))
    count = number_of(lines)
    sequence = keys(call, call.reshape(call.cast(sequence, dtype), (count, size)))
    each = shape[-1] if lines else number_of(shape)
    values = keys(call, call.reshape(call.cast(values, dtype), (count, each)))
    positions = bounds(call, sequence, values, right=right)
    return call.cast(call.reshape(positions, shape), "int32" if call["out_int32"] else "int64")


def _search(dtype: str, right: bool) -> Any:
    """A binary search for each value. TVM has none in several sequences."""

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def search(sequence: T.handle, values: T.handle, found: T.handle) -> None:
        T.func_attr({"op_pattern": 8, "tirx.noalias": True, SEARCHES: True})
        sequences, size, lines, count = T.int64(), T.int64(), T.int64(), T.int64()
        S = T.match_buffer(sequence, (sequences, size), dtype)
        V = T.match_buffer(values, (lines, count), dtype)
        F = T.match_buffer(found, (lines, count), "int64")
        for i, j in T.grid(lines, count):
            with T.sblock("search"):
                line, at = T.axis.remap("SS", [i, j])
                T.reads(S[0:sequences, 0:size], V[line, at])
                T.writes(F[line, at])
                low = T.sblock_alloc_buffer((1,), "int64", scope="local")
                high = T.sblock_alloc_buffer((1,), "int64", scope="local")
                low[0] = T.int64(0)
                high[0] = size
                while low[0] < high[0]:
                    element = S[T.min(line, sequences - 1), (low[0] + high[0]) // 2]
                    if (element <= V[line, at]) if right else (element < V[line, at]):
                        low[0] = (low[0] + high[0]) // 2 + 1
                    else:
                        high[0] = (low[0] + high[0]) // 2
                F[line, at] = low[0]

    return search
