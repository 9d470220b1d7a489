"""Sums that are divided by the number of their updates are means, without a tensor of counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from harness import device_of, target_of
from torch_harness import check, export, from_exported_program
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put

OPTIONS = {"fuse": True, "bounds": "drop"}


def clamped(builder, count, form="where", least=1.0):
    """At least 1: as an operator, or as a front end writes a clamp."""
    op, one = relax.op, relax.const(least, str(count.ty.dtype))
    if form == "maximum":
        return builder.emit(op.maximum(count, one))
    if form == "less":
        return builder.emit(op.where(builder.emit(op.less(count, one)), one, count))
    more = builder.emit(op.greater(count, one))
    if form == "where":
        more = builder.emit(op.logical_or(builder.emit(op.isnan(count)), more))
    return builder.emit(op.where(more, count, one))


def mean(
    form="where",
    shape=(9, 4),
    edges=40,
    dtype="float32",
    ones=1.0,
    least=1.0,
    fill=0.0,
    other_index=False,
    again=False,
    broadcast=True,
):
    """The module ``sum / count`` with one of the two spellings of a count of at least 1."""
    builder, op = relax.BlockBuilder(), relax.op
    updates = relax.Var("updates", relax.TensorType([edges, *shape[1:]], dtype))
    index, other = (relax.Var(name, relax.TensorType([edges], "int64")) for name in "io")
    with builder.function("main", [updates, index, other]):
        with builder.dataflow():
            data = builder.emit(op.full(list(shape), relax.const(fill, dtype), dtype))
            total = builder.emit(index_put(data, [index], updates, [0], "add"))
            none = builder.emit(op.zeros([shape[0]], dtype))
            each = builder.emit(op.full([edges], relax.const(ones, dtype), dtype))
            where = other if other_index else index
            count = builder.emit(index_put(none, [where], each, [0], "add"))
            count = clamped(builder, count, form, least)
            if len(shape) > 1:
                count = builder.emit(op.reshape(count, [shape[0], *[1] * (len(shape) - 1)]))
                if broadcast:
                    count = builder.emit(op.broadcast_to(count, list(shape)))
            result = builder.emit(op.divide(total, count))
            results = [result, total] if again else [result]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get()


def means(module, device, **options):
    with tvm_scatter.options(**{**OPTIONS, **options}):
        found = tvm_scatter.explain(module, target_of(device))
    return [each.problem for each in found if each.problem.reduction == "mean"], found


def run(module, device, *arrays, **options):
    with tvm_scatter.options(**{**OPTIONS, **options}):
        executable = tvm.compile(module, target_of(device))
    on = device_of(device)
    results = relax.VirtualMachine(executable, on)["main"](
        *[tvm.runtime.tensor(each, on) for each in arrays]
    )
    return [each.numpy() for each in results]


def arrays(shape=(9, 4), edges=40, dtype="float32"):
    generator = np.random.default_rng(0)
    updates = generator.standard_normal((edges, *shape[1:])).astype(dtype)
    # Two destinations get nothing, and one index is out of bounds.
    index, other = generator.integers(0, shape[0] - 2, (2, edges))
    index[5] = shape[0]
    return updates, index, other


@pytest.mark.turns(6)
@pytest.mark.parametrize("form", ["where", "maximum", "greater", "less"])
@pytest.mark.parametrize("shape", [(9,), (9, 4), (9, 2, 4)])
def test_a_mean_is_found_and_is_the_same(device, form, shape):
    module = mean(form, shape)
    found, every = means(module, device)
    assert len(found) == len(every) == 1
    assert any("is a mean" in str(each) for each in every.notes)
    given = arrays(shape)
    [result], [wanted] = run(module, device, *given), run(module, "llvm", *given, fuse=False)
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)
    assert not result[-2:].any()


@pytest.mark.turns(2)
@pytest.mark.parametrize("least", [1, 1.0])
def test_a_clamp_that_the_importer_writes_is_known(device, least):
    """As graph libraries write a mean: whatever becomes of ``clamp``, this knows it."""

    def model(x, index):
        total = torch.zeros(9, 4).index_add(0, index, x)
        count = torch.zeros(9).index_add(0, index, torch.ones(40))
        return total / count.clamp(min=least)[:, None]

    updates, index, _ = (torch.from_numpy(each) for each in arrays())
    index[5] = 8
    module = from_exported_program(export(model, (updates, index)))
    found, every = means(module, device)
    assert len(found) == len(every) == 1
    check(model, updates, index, device=device)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(device, dtype):
    module = mean(dtype=dtype, broadcast=False)
    assert means(module, device)[0]
    given = arrays(dtype=dtype)
    [result], [wanted] = run(module, device, *given), run(module, "llvm", *given, fuse=False)
    tolerance = 5e-3 if dtype == "float16" else 1e-14
    np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "changed",
    [
        {"other_index": True},
        {"ones": 2.0},
        {"least": 2.0},
        {"fill": 1.0},
        {"again": True},
    ],
)
def test_what_is_no_mean(device, changed):
    """Another index, weights, another divisor, a sum that begins elsewhere or is needed itself."""
    module = mean(**changed)
    assert not means(module, device)[0]
    assert means(mean(), device)[0]


def test_off_leaves_it_alone(device):
    assert not means(mean(), device, fuse=False)[0]
