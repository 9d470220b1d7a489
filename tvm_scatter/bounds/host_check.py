"""The ``raise`` policy on the host, and the error for a bad index.

The check is a call of its own, so implementations do not report errors. Relax orders calls by data
flow only. So the check returns a token, which the scatter takes as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.error_text import raise_error
from tvm_scatter.emit.index_check import CheckOperands, IndexCheck
from tvm_scatter.emit.mailbox import STATUS
from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, Parameters
from tvm_scatter.emit.wrapping import as_signed, kept_apart, wrapping_add, wrapping_sub
from tvm_scatter.problem.sizes import as_expression, at_least, at_most, ceil_div

CHECK_NAME = "check_indices"
_HOST_CHUNKS = 64
_HOST_CHUNK = 16384


def check_on_host(
    bb: relax.BlockBuilder, check: IndexCheck, returned: relax.Expr | None = None
) -> relax.Expr:
    """Emit a check. The result is a token that the scatter must take.

    The token is the tensor ``returned``, or else an index tensor. It is not a new tensor, because
    the check may stand in a branch: TVM might reuse memory that is allocated there in the other
    branch.
    """
    # TVM's other code generators for hosts have no text to raise an error with.
    with check_function(check, {MADE_FOR: "llvm"}) as (builder, parameters):
        T.arg("returned", T.handle())
        with parameters.in_body() as buffers:
            status = T.alloc_buffer((len(STATUS),), "int64", scope="local")
            _find_first(check_operands(parameters, buffers, check), status)
            with T.If(status[0] >= 0):
                with T.Then():
                    raise_for(check, status)
    func = bb.add_func(builder.get(), CHECK_NAME)
    arguments = [*check_arguments(check), check.indices[-1] if returned is None else returned]
    token = len(arguments) - 1
    return bb.emit(relax.op.call_tir_inplace(func, arguments, token, arguments[token].ty))


def check_arguments(check: IndexCheck) -> list[relax.Expr]:
    """The arguments of a check. The data is passed for its shape, which holds the extents."""
    return [check.data, *check.indices]


@contextmanager
def check_function(
    check: IndexCheck, attributes: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[tuple[IRBuilder, Parameters]]:
    """Begin a PrimFunc that checks, with parameters for :func:`check_arguments`."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_attr({**PRIM_FUNC_ATTRS, **attributes})
        parameters = Parameters()
        parameters.add("data", check.data_shape, check.data_dtype)
        for i, (shape, dtype) in enumerate(zip(check.shapes, check.index_dtypes, strict=True)):
            parameters.add(f"index{i}", shape, dtype)
        yield builder, parameters


def check_operands(
    parameters: Parameters, buffers: Sequence[Any], check: IndexCheck
) -> CheckOperands:
    """The buffers, lengths and extents of a check whose parameters are declared."""
    lengths = [parameters.size(shape) for shape in check.shapes]
    unknown = [length for length in lengths if not isinstance(length, int)]
    if len(set(check.shapes)) > 1 and unknown:
        # Index tensors are broadcast. If one is empty, no entry of the others is used or checked.
        none = tirx.any(tirx.const(False, "bool"), *(length == 0 for length in unknown))
        lengths = [tirx.Select(none, as_expression(0), as_expression(length)) for length in lengths]
    return CheckOperands(
        check=check,
        indices=buffers[1:],
        lengths=lengths,
        extents=[parameters.size((dim,)) for dim in check.extents],
    )


def is_bad(index: Any, extent: Any, wrap_negative: bool) -> Any:
    """Whether an int64 index lies outside the extent."""
    lowest = 0 - extent if wrap_negative else 0
    return tirx.any(index < lowest, index >= kept_apart(extent))


def _find_first(operands: CheckOperands, status: Any) -> None:
    """Store the first bad entry in ``status``. Chunks of entries are searched in parallel."""
    T.buffer_store(status, tirx.IntImm("int64", -1), [0])
    for component, (which, stride, offset) in enumerate(operands.components):
        index, extent = operands.indices[which], operands.extents[component]
        entries = operands.lengths[which] // stride
        chunks = at_most(at_least(ceil_div(entries, _HOST_CHUNK), 1), _HOST_CHUNKS)
        first_bad = T.alloc_buffer((_HOST_CHUNKS,), "int64", scope="global")

        def entry(at: Any, index: Any = index, stride: int = stride, offset: int = offset) -> Any:
            return as_signed(index[at * stride + offset])

        loop = T.serial if isinstance(chunks, int) and chunks == 1 else T.parallel
        with loop(chunks) as c:
            wraps = operands.check.wraps(which)
            _scan_chunk(entry, extent, wraps, entries, chunks, first_bad, c)
        with T.serial(chunks) as c:
            at = tirx.Cast("int64", first_bad[c])
            with T.If(tirx.all(at < entries, tirx.any(status[0] < 0, at < status[0]))):
                with T.Then():
                    T.buffer_store(status, at, [0])
                    T.buffer_store(status, tirx.IntImm("int64", component), [1])
                    T.buffer_store(status, entry(at), [2])
                    T.buffer_store(status, tirx.Cast("int64", extent), [3])


def _scan_chunk(
    entry: Callable[[Any], Any],
    extent: Any,
    wraps: bool,
    entries: Any,
    chunks: Any,
    first_bad: Any,
    c: Any,
) -> None:
    chunk = ceil_div(entries, chunks)
    start = T.bind(tirx.Cast("int64", chunk * c))
    length = T.bind(tirx.max(tirx.min(entries - start, tirx.Cast("int64", chunk)), 0))
    T.buffer_store(first_bad, entries, [c])
    # Nearly always all indices are good. Then the distances to both ends of the range are not
    # negative, and neither is their bitwise or. Distances that overflow are negative as well.
    # Without a branch this loop vectorises.
    below_zero = extent if wraps else 0
    distances = T.alloc_buffer((1,), "int64", scope="local")
    T.buffer_store(distances, tirx.IntImm("int64", 0), [0])
    with T.serial(length) as j:
        index = entry(start + j)
        to_lowest = wrapping_add(index, below_zero, "int64")
        to_highest = wrapping_sub(extent - 1, index, "int64")
        both = tirx.bitwise_or(to_lowest, to_highest)
        T.buffer_store(distances, tirx.bitwise_or(distances[0], both), [0])
    with T.If(distances[0] < 0):
        with T.Then():
            with T.serial(length) as j:
                at = start + j
                with T.If(is_bad(entry(at), extent, wraps)):
                    with T.Then():
                        T.buffer_store(first_bad, tirx.min(first_bad[c], at), [c])


def raise_for(check: IndexCheck, status: Any) -> None:
    """Emit statements that raise the error for the bad entry in ``status`` (:data:`STATUS`)."""
    raise_error(*check.error(status))
