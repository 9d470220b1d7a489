"""A pass does not compute again, or later, from a tensor that was written to in the meantime."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from test_reuse_buffers import Function
from test_shared_memory import kept_apart
from tvm import relax
from tvm.relax import op

import tvm_scatter
from tvm_scatter.ops import operators as ops
from tvm_scatter.passes import FoldBroadcastIndex, MergeScatterChains

_LLVM = tvm.target.Target("llvm")
_SHAPE = (300, 4)


@tvm.register_global_func("tvm_scatter.test.clear", override=True)
def _clear(tensor):
    tvm.runtime.tensor(np.full(tensor.shape, 2, tensor.dtype)).copyto(tensor)


def clear(f, tensor):
    """Somebody writes 2 all over a tensor."""
    f.emit(relax.Call(relax.ExternFunc("tvm_scatter.test.clear"), [tensor], ty_args=[_nothing()]))


def _nothing():
    return relax.TupleType([])


def index_is_overwritten(f):
    column = f.emit(op.expand_dims(f["index"], 1))
    wide = f.emit(op.broadcast_to(column, (5, 4)))
    clear(f, column)
    return [f.emit(ops.scatter_elements(f["x"], wide, f["rows"], 0))]


def row_is_read_before(f):
    d = f.add(f["x"], f["y"])
    row = f.emit(op.take(d, relax.const(3, "int64"), 0))
    clear(f, d)
    written = f.emit(ops.index_put(row, [relax.const([1], "int64")], f.emit(op.sum(f["rows"]))))
    back = f.emit(op.expand_dims(written, 0))
    return [f.emit(ops.index_put(d, [relax.const([3], "int64")], back))]


def zeros_are_no_zeros_any_more(f):
    first, second = (f.emit(op.zeros(_SHAPE, "float32")) for _ in range(2))
    clear(f, first)
    with f.builder.dataflow():
        results = [f.put(first), f.put(second)]
        results = [f.builder.emit_output(result) for result in results]
    # Both are read afterwards, so neither is overwritten.
    return [*results, f.emit(op.negative(first)), f.emit(op.negative(second))]


def scatters_with_a_write_between(f):
    d = f.add(f["x"], f["y"])
    first = f.put(d)
    updates = f.emit(op.negative(f["rows"]))
    second = f.put(first, updates)
    clear(f, first)
    clear(f, updates)
    return [second, f.put(second, f.emit(op.abs(f["rows"])))]


CASES = (
    index_is_overwritten,
    row_is_read_before,
    zeros_are_no_zeros_any_more,
    scatters_with_a_write_between,
)


def module(cases):
    builder = relax.BlockBuilder()
    for case in cases:
        f = Function(builder)
        with builder.function(case.__name__, list(f.parameters.values()), pure=False):
            builder.emit_func_output(builder.emit(relax.Tuple(case(f))))
    return builder.get()


def test_results() -> None:
    mod = module(CASES)
    everything = dict.fromkeys(("fold_broadcast_index", "bulk", "in_place"), True) | {"batch": True}
    machines = [
        relax.VirtualMachine(
            tvm.compile(mod, _LLVM, relax_pipeline=tvm_scatter.pipeline(_LLVM, **options)),
            tvm.cpu(),
        )
        for options in (everything | {"bounds": "drop"}, dict.fromkeys(everything, False))
    ]
    for case in CASES:
        left, right = (kept_apart(machine, case.__name__) for machine in machines)
        for result, expected in zip(left, right, strict=True):
            np.testing.assert_array_equal(result, expected, err_msg=case.__name__)


def _chain(writes):
    def chain(f):
        tensor = f.emit(op.zeros((4000, 64), "float32"))
        if writes:
            clear(f, tensor)
        for at in range(4):
            rows = f.emit(op.full((500, 64), relax.const(at, "float32"), "float32"))
            index = f.emit(op.add(f.emit(op.arange(500)), f.emit(op.sum(f["index"]))))
            tensor = f.emit(ops.index_put(tensor, [index], rows))
        return [tensor]

    return chain


@pytest.mark.parametrize("writes", [False, True])
def test_a_choice_among_what_is_no_number_any_more(writes) -> None:
    with tvm.target.Target("nvidia/nvidia-h100"):
        text = str(MergeScatterChains()(module([_chain(writes)])))
    assert "tvm_scatter.select_rows" in text
    assert ('select_rows(R.const(0.0, "float32")' in text) is not writes


def test_printing_is_no_write() -> None:
    def printed(f):
        wide = f.emit(op.broadcast_to(f.emit(op.expand_dims(f["index"], 1)), (5, 4)))
        f.emit(op.print(f["x"], format="{}"))
        return [f.emit(ops.scatter_elements(f["x"], wide, f["rows"], 0))]

    with _LLVM:
        assert "broadcast_to" not in str(FoldBroadcastIndex()(module([printed])))
