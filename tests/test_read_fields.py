"""Fields of tuples that a function makes: read where they are, and others not computed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from harness import device_of, target_of
from torch_harness import export
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from tvm_scatter.ops.operators import scatter_elements
from tvm_scatter.passes import ReadFields


def program(read):
    """What ``read(builder, tuple)`` makes of ``((data + 1, data * 2), a sum of updates)``."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType([4], "float32"))
    index = relax.Var("index", relax.TensorType([3], "int64"))
    updates = relax.Var("updates", relax.TensorType([3], "float32"))
    with builder.function("main", [data, index, updates]):
        with builder.dataflow():
            more = builder.emit(relax.op.add(data, relax.const(1, "float32")))
            twice = builder.emit(relax.op.multiply(data, relax.const(2, "float32")))
            summed = builder.emit(scatter_elements(data, index, updates, 0, "add"))
            pair = builder.emit(relax.Tuple([more, twice]))
            made = builder.emit(relax.Tuple([pair, summed]))
            result = builder.emit_output(read(builder, made))
        builder.emit_func_output(result)
    return builder.get()


def inner(builder, made):
    return builder.emit(relax.TupleGetItem(builder.emit(relax.TupleGetItem(made, 0)), 1))


def inner_output(builder, made):
    return relax.TupleGetItem(builder.emit(relax.TupleGetItem(made, 0)), 1)


def both(builder, made):
    first = builder.emit(relax.TupleGetItem(builder.emit(relax.TupleGetItem(made, 0)), 0))
    return relax.op.add(first, builder.emit(relax.TupleGetItem(made, 1)))


def whole(builder, made):
    return builder.emit(relax.TupleGetItem(made, 0))


DATA, INDEX, UPDATES = [1.0, 2.0, 3.0, 4.0], [0, 3, 0], [10.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("read", "computed", "expected"),
    [
        (inner, {"multiply"}, [2.0, 4.0, 6.0, 8.0]),
        (inner_output, {"multiply"}, [2.0, 4.0, 6.0, 8.0]),
        (both, {"add", "scatter_elements"}, [43.0, 5.0, 7.0, 29.0]),
        (whole, {"add", "multiply"}, [[2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0]]),
    ],
    ids=["inner", "output", "both", "whole"],
)
def test_by_eye(device, read, computed, expected):
    module = program(read)
    text = ReadFields()(module).script()
    found = {name for name in ("add", "multiply", "scatter_elements") if f"{name}(" in text}
    assert found == computed
    machine = relax.VirtualMachine(tvm.compile(module, target_of(device)), device_of(device))
    given = (np.array(DATA, "float32"), np.array(INDEX), np.array(UPDATES, "float32"))
    result = machine["main"](*(tvm.runtime.tensor(each, device_of(device)) for each in given))
    fields = result if isinstance(expected[0], list) else [result]
    np.testing.assert_array_equal([each.numpy() for each in fields], np.reshape(expected, (-1, 4)))


def test_a_tuple_that_outlives_its_fields_stays():
    """Variables of a dataflow block end with it, other than what it puts out."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType([4], "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            fields = [builder.emit(relax.op.add(data, data)), builder.emit(relax.op.abs(data))]
            made = builder.emit_output(relax.Tuple(fields))
        between = builder.emit(relax.op.negative(data))
        with builder.dataflow():
            read = builder.emit(relax.TupleGetItem(made, 0))
            result = builder.emit_output(relax.op.add(read, between))
        builder.emit_func_output(result)
    module = ReadFields()(builder.get())
    relax.analysis.well_formed(module)
    machine = relax.VirtualMachine(tvm.compile(module, target_of("llvm")), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(np.array(DATA, "float32")))
    np.testing.assert_array_equal(found.numpy(), DATA)


def test_a_program_without_tuples_is_left_as_it_is():
    module = program(lambda builder, _made: builder.emit(relax.op.zeros([4], "float32")))
    assert ReadFields()(module).same_as(module)


def test_bags_compute_what_is_read_only():
    """PyTorch's operator also returns of which bag a word is, and the numbers of greatest words."""
    bags = torch.nn.EmbeddingBag(9, 4, mode="sum")
    module = from_exported_program(export(bags, (torch.arange(2000) % 9, torch.arange(5))))
    read = ReadFields()(module).script()
    numbers = "R.zeros(R.shape([5]), "
    assert numbers in module.script() and numbers not in read
    assert read.count("expect_numbers(") == module.script().count("expect_numbers(") > 0
