"""Messages of many steps compile in seconds: a scatter does not compute what takes longer."""

from __future__ import annotations

import re
import time

import pytest
import torch
import tvm
from machine_code import cuda
from torch.nn import functional
from torch_harness import check, compile_for, export, from_exported_program, through_tvm
from tvm import tirx

import tvm_scatter
from tvm_scatter.emit.computed_updates import BRANCH, function_name, parts_of
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.emit.single_precision import in_single_precision

#: Without a limit the last of each would take from half a minute to hours.
STEPS = {
    "clamp": lambda m: (m + 0.25).clamp(-1, 1),
    "relu": lambda m: (m - 0.25).relu(),
    "leaky_relu": lambda m: functional.leaky_relu(m, 0.125) + 0.25,
    "quotient": lambda m: 0.25 / (m.abs() + 0.5),
    "silu": functional.silu,
    "tanh": torch.tanh,
    "power": lambda m: (m.abs() + 1) ** 0.75,
    "copysign": lambda m: torch.copysign(m + 0.25, m - 0.25),
    "logaddexp": lambda m: torch.logaddexp(m, m * 0.5) - 1,
}
SECONDS = 30


def summed(step, times):
    def model(x, source, destination):
        messages = x[source]
        for _ in range(times):
            messages = step(messages)
        return torch.zeros(7, x.shape[1], dtype=x.dtype).index_add(0, destination, messages)

    return model


def inputs(dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-8, 8, (50, 8), generator=generator).to(dtype) / 4
    return x, *(torch.randint(0, size, (16,), generator=generator) for size in (50, 7))


#: Of which 16-bit floats compile as float32 does, but for a few more conversions.
ALIKE = ("relu", "leaky_relu", "silu", "tanh", "power", "copysign")


@pytest.mark.turns(12)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(
            name,
            dtype,
            marks=pytest.mark.exhaustive if name in ALIKE and dtype is torch.bfloat16 else (),
        )
        for name in STEPS
        for dtype in (torch.float32, torch.bfloat16)
    ],
)
@pytest.mark.parametrize(
    "times", [2, 8, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (1, 3, 5))]
)
def test_they_compile(name, dtype, times, device):
    model, given = summed(STEPS[name], times), inputs(dtype)
    before = time.process_time()
    [found] = through_tvm(model, given, device=device)
    assert time.process_time() - before < SECONDS
    wide = [each.double() if each.is_floating_point() else each for each in given]
    # Each step and the sum are rounded.
    tolerance = (2.0**-8 if dtype is torch.bfloat16 else 2.0**-22) * 4 * times
    torch.testing.assert_close(found.double(), model(*wide), rtol=tolerance, atol=tolerance)


def notes(model, given, device):
    program = export(model, given)
    with tvm_scatter.options(fuse=True):
        explained = tvm_scatter.explain(from_exported_program(program), device)
    return str(explained)


@pytest.mark.parametrize(("times", "fused"), [(1, True), (2, True), (3, False)])
def test_a_few_choices_by_choices_are_computed(times, fused):
    text = notes(summed(STEPS["clamp"], times), inputs(torch.float32), "llvm")
    assert ("computes its updates itself" in text) == fused
    assert ("it chooses too often by what it has chosen" in text) != fused


@pytest.mark.parametrize(("times", "kernels"), [(1, 1), (4, 1), (5, 2), (8, 2)])
def test_kernels_of_gpus_choose_a_few_times(times, kernels):
    """Four choices to a kernel: each of the others stores what the next goes on from."""

    def model(x):
        for _ in range(times):
            x = STEPS["relu"](x)
        return x * 2 + 1

    program = export(model, (torch.ones(64, 64),))
    source = cuda(from_exported_program(program))
    assert len(re.findall(r"__global__[^;]*\{", source)) == kernels


def test_independent_choices_are_one_kernel():
    """Of a function in pieces, no condition depends on what another one has chosen."""

    def model(x):
        result = x
        for bound in range(8):
            result = torch.where(x > bound, x * bound, result)
        return result

    source = cuda(from_exported_program(export(model, (torch.ones(64, 64),))))
    assert len(re.findall(r"__global__[^;]*\{", source)) == 1


@pytest.mark.parametrize(("times", "kernels"), [(1, 1), (2, 1), (3, 2)])
def test_kernels_of_gpus_write_a_value_out_a_few_times(times, kernels):
    """A tangent has its operand sixteen times; of three of them the first is stored."""

    def model(x):
        for _ in range(times):
            x = STEPS["tanh"](x)
        return x * 2 + 1

    source = cuda(from_exported_program(export(model, (torch.ones(64, 64),))))
    assert len(re.findall(r"__global__[^;]*\{", source)) == kernels


#: Each reads what it goes on from several times, most of them at another place. Without a limit
#: that counts where they read, the first took hours, the others up to half a minute.
MOVES = {
    "stack": lambda x: torch.stack([x, x.flip(0)], 0)[0] + x.flip(1) * 0.25,
    "mask": lambda x: torch.where((x > 0) & (x.flip(0) > 0) | (x.roll(1, 0) > 0), x, -x),
    "pad": lambda x: torch.maximum(functional.pad(x, (1, 0))[:, :-1], x),
    "flat": lambda x: x.flatten().flip(0).reshape(x.shape) * 0.25 + x * 0.5,
    "roll": lambda x: x * 0.5 + x.flip(0) * 0.25 + x.roll(1, 0) * 0.25,
}


@pytest.mark.turns(4)
@pytest.mark.parametrize("times", [4, pytest.param(12, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("step", MOVES.values(), ids=MOVES)
def test_what_moves_elements_compiles(step, times, device):
    def model(x, index):
        for _ in range(times):
            x = step(x)
        return x[index]

    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-8, 8, (12, 8), generator=generator) / 4
    before = time.process_time()
    check(model, x, torch.arange(9), device=device)
    assert time.process_time() - before < SECONDS


def test_a_read_behind_what_is_read_twice_compiles():
    """Each step doubles the paths to the first tensor: 2 to the power of 40 in all."""

    def model(x, index):
        for _ in range(40):
            x = x * 0.5 + x.flip(0)
        return x[index]

    program = from_exported_program(export(model, (torch.ones(8, 8), torch.arange(3))))
    before = time.process_time()
    cuda(program)
    assert time.process_time() - before < SECONDS


def test_a_few_roundings_are_computed():
    # A quotient is four steps: of an absolute value, a sum, a reciprocal and a product.
    for times, fused in ((1, True), (2, False)):
        text = notes(summed(STEPS["quotient"], times), inputs(torch.bfloat16), "llvm")
        assert ("each rounded to bfloat16, take too long to compile" in text) != fused


def test_what_a_branch_reads_is_read_within_it():
    """Steps have names in front of what uses them, but not in front of a branch."""
    axis, number = tirx.Var("i", "int64"), lambda value: tirx.const(value, "bfloat16")
    leaf = tirx.decl_buffer([4], "bfloat16")
    read = leaf[axis] * number(1.5) + number(0.25)
    guarded = tirx.if_then_else(axis < 4, read, number(0))
    single = in_single_precision((guarded * number(1.25) + number(0.5)) * number(2))
    outside = []

    def without_branches(expression):
        if isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH:
            return
        outside.extend([expression] if isinstance(expression, tvm.ir.TensorLoad) else [])
        is_let = isinstance(expression, tirx.Let)
        for part in [expression.value, expression.body] if is_let else parts_of(expression):
            without_branches(part)

    without_branches(single)
    assert not outside
    assert len(all_of(single, tvm.ir.TensorLoad)) == 1


def test_steps_of_one_side_are_computed_on_that_side(device):
    """What a mask leaves out is not read, also if both sides have equal steps."""

    def model(x, source, destination, keep):
        read = torch.where(keep[:, None], x[source] * 1.5 + 0.25, x[source] * 1.5 - 0.25)
        return torch.zeros(7, x.shape[1], dtype=x.dtype).index_add(0, destination, read * 1.25)

    x, source, destination = inputs(torch.bfloat16)
    keep = torch.arange(16) % 3 != 0
    check(model, x, source, destination, keep, device=device)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.uint8, torch.int32),
        *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (torch.int8, torch.int16)),
    ],
    ids=str,
)
def test_attention_by_indices_that_the_model_widens(dtype, device):
    """Logits are sums along rows of what is read by an index that is converted first."""

    def model(x, y, source, destination):
        source, destination = source.long(), destination.long()
        logits = (y[destination] * x[source]).sum(-1)
        zeros = torch.zeros(y.shape[0], y.shape[1])
        greatest = zeros.index_reduce(0, destination, logits, "amax", include_self=False)
        powers = (logits - greatest[destination]).exp()
        shares = powers / zeros.index_add(0, destination, powers)[destination]
        messages = shares[..., None] * x[source]
        return torch.zeros(y.shape).index_add(0, destination, messages)

    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(nodes, 3, 5, generator=generator) for nodes in (9, 7))
    source, destination = (
        torch.randint(0, nodes, (40,), generator=generator).to(dtype) for nodes in (9, 7)
    )
    compile_for(from_exported_program(export(model, (x, y, source, destination))), device)
    check(model, x, y, source, destination, device=device)
