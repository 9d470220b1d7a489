"""Buffers that a PyTorch module changes: arguments and results of the imported function."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import tvm
from harness import device_of, target_of
from torch_harness import check
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter.passes import ReuseBuffers


class Cache(torch.nn.Module):
    """Keys and values of a decoder, and how many there are."""

    def __init__(self, persistent=True):
        super().__init__()
        self.register_buffer("keys", torch.randn(2, 160, 4), persistent=persistent)
        self.register_buffer("values", torch.zeros(2, 160, 4), persistent=persistent)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.randn(4))
        self.project = torch.nn.Linear(4, 4)

    def forward(self, value, position):
        self.keys.index_copy_(1, position, self.project(value))
        self.values[:, position] = value * self.scale
        self.count.add_(1)
        return (self.keys * self.values).sum(-1)


def imported(model, **named):
    example = (torch.randn(2, 1, 4), torch.tensor([3]))
    with torch.no_grad():
        return from_exported_program(torch.export.export(model.eval(), example), **named)


def compiled(mod, device="llvm", **switches):
    target = target_of(device)
    pipeline = tvm_scatter.pipeline(target, **switches)
    executable = tvm.compile(mod, target, relax_pipeline=pipeline)
    return relax.VirtualMachine(executable, device_of(device))


def run(machine, model, mod, device="llvm", weights=()):
    """Three steps beside PyTorch; the buffers at first and at last."""
    on = device_of(device)
    first = list(tvm_scatter.buffers(mod, on).values())
    state = first
    for step in range(3):
        value, position = torch.randn(2, 1, 4), torch.tensor([step + 5])
        arguments = [tvm.runtime.tensor(each.numpy(), on) for each in (value, position)]
        result, *state = machine["main"](*arguments, *state, *weights)
        with torch.no_grad():
            right = model(value, position)
        np.testing.assert_allclose(result.numpy(), right.numpy(), rtol=1e-5, atol=1e-5)
        for tensor, name in zip(state, ("keys", "values", "count"), strict=True):
            buffer = getattr(model, name).numpy()
            np.testing.assert_allclose(tensor.numpy(), buffer, rtol=1e-5, atol=1e-5)
    return first, state


def test_names_and_first_values() -> None:
    model = Cache()
    buffers = tvm_scatter.buffers(imported(model))
    assert list(buffers) == ["keys", "values", "count"]
    np.testing.assert_array_equal(buffers["keys"].numpy(), model.keys.numpy())


@pytest.mark.turns(2)
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_steps(persistent, in_place) -> None:
    model = Cache(persistent)
    mod = imported(model)
    first, last = run(compiled(mod, in_place=in_place), model, mod)
    for before, after in list(zip(first, last, strict=True))[:2]:
        # The same memory if and only if the scatter was in place.
        assert np.array_equal(before.numpy(), after.numpy()) == in_place


def test_a_buffer_of_bfloat16(device) -> None:
    """NumPy has no such type."""

    class Keys(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.randn(4, 3).bfloat16())

        def forward(self, value, position):
            self.keys.index_copy_(0, position, value)
            return self.keys * 2

    model, example = Keys(), (torch.randn(2, 3).bfloat16(), torch.tensor([3, 1]))
    mod = from_exported_program(torch.export.export(model, example))
    machine, on = compiled(mod, device), device_of(device)
    arguments = [tvm.runtime.from_dlpack(each.clone()).copyto(on) for each in example]
    found = machine["main"](*arguments, *tvm_scatter.buffers(mod, on).values())
    for tensor, right in zip(found, (model(*example), model.keys), strict=True):
        assert torch.equal(torch.from_dlpack(tensor.copyto(tvm.cpu())), right)


def test_weights_that_are_arguments() -> None:
    model = Cache()
    mod = imported(model, keep_params_as_input=True)
    weights = mod["main"].attrs["params"]
    run(compiled(mod), model, mod, weights=weights)


class Held(Cache):
    """A cache that the model reaches through another object too, as StaticCache of transformers."""

    def __init__(self):
        super().__init__()
        self.held = [(self.keys, self.values, self.count)]

    def forward(self, value, position):
        keys, values, count = self.held[0]
        keys.index_copy_(1, position, self.project(value))
        values[:, position] = value * self.scale
        count.add_(1)
        return (keys * self.values).sum(-1)


def test_buffers_with_a_second_way_to_them() -> None:
    model = Held()
    mod = imported(model)
    assert list(tvm_scatter.buffers(mod)) == ["keys", "values", "count"]
    run(compiled(mod), model, mod)


def test_state_that_is_no_buffer_is_refused() -> None:
    class Unregistered(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.held = [torch.zeros(2, 160, 4)]

        def forward(self, value, position):
            return self.held[0].index_copy_(1, position, value) * 2

    with pytest.raises(RuntimeError, match="register it as buffer"):
        imported(Unregistered())


def test_literals_may_be_written_to() -> None:
    def model(x: torch.Tensor, at: torch.Tensor) -> list[torch.Tensor]:
        sums, last, factor = (torch.tensor([1.0, 2.0, 3.0]) for _ in range(3))
        sums.scatter_add_(0, at, x)
        last[at] = x
        last[0] = 7.0
        factor += x
        return [sums, last, factor.mul_(2)]

    x, at = torch.randn(3), torch.tensor([1, 2, 2])
    x[2] = x[1]
    check(model, x, at)


def test_on_cuda(device) -> None:
    if device == "llvm":
        pytest.skip("done above")

    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.randn(2, 160, 4))

        def forward(self, value, position):
            self.keys.index_copy_(1, position, value)
            return value + value

    mod = imported(Small())
    machine, on = compiled(mod, device), device_of(device)
    (keys,) = tvm_scatter.buffers(mod, on).values()
    value = np.ones((2, 1, 4), "float32")
    machine["main"](tvm.runtime.tensor(value, on), tvm.runtime.tensor(np.array([7]), on), keys)
    assert (keys.numpy()[:, 7] == 1).all()


def test_only_the_changed_buffers_are_donated() -> None:
    mod = imported(Cache())
    with target_of("llvm"):
        text = str(ReuseBuffers()(mod)["main"])
    assert text.count("in_place=True") == 2
    assert len(mod["main"].params) == 5


def test_two_buffers_must_not_be_one_tensor() -> None:
    mod = imported(Cache())
    machine = compiled(mod)
    keys, _, count = tvm_scatter.buffers(mod).values()
    value = tvm.runtime.tensor(np.ones((2, 1, 4), "float32"))
    position = tvm.runtime.tensor(np.array([7]))
    with pytest.raises(ValueError, match="shares memory with the argument b_"):
        machine["main"](value, position, keys, keys, count)


class Codebook(torch.nn.Module):
    """A moving average: what is written is made of the results of scatters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(6, 4))

    def forward(self, x, at):
        sums = torch.zeros(6, 4).index_add(0, at, x)
        self.codes.mul_(0.9).add_(sums, alpha=0.1)
        return self.codes[at]


def test_moving_averages_of_scatters() -> None:
    model = Codebook()
    x, at = torch.randn(5, 4), torch.tensor([1, 5, 1, 0, 2])
    mod = from_exported_program(torch.export.export(model, (x, at)))
    machine = compiled(mod)
    state = list(tvm_scatter.buffers(mod).values())
    inputs = [tvm.runtime.tensor(each.numpy()) for each in (x, at)]
    for _ in range(2):
        result, *state = machine["main"](*inputs, *state)
        np.testing.assert_allclose(result.numpy(), model(x, at).numpy(), rtol=1e-5)
    np.testing.assert_allclose(state[0].numpy(), model.codes.numpy(), rtol=1e-5)


def test_buffers_that_no_scatter_writes_stay_with_tvm(caplog) -> None:
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, value, position):
            self.count.add_(1)
            return torch.zeros(8).index_add(0, position, value[0, 0, :1])

    mod = imported(Counter())
    assert len(mod["main"].params) == 2
    assert tvm_scatter.buffers(mod) == {}
    assert "What the model writes to count is lost" in caplog.text


class Inputs(torch.nn.Module):
    """Changes an input and a buffer, and returns neither; changes another input and returns it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 160, 4))

    def forward(self, cache, returned, value, position):
        returned.index_add_(1, position, value)
        cache[:, position] = value
        self.kept.index_copy_(1, position, value)
        return value * 2, returned


@pytest.mark.parametrize("donate", [(), ("cache",)])
def test_changed_inputs_come_back(donate) -> None:
    model = Inputs().eval()
    example = (torch.ones(2, 160, 4), torch.ones(2, 160, 4), torch.randn(2, 1, 4))
    example = (*example, torch.tensor([3]))
    mod = from_exported_program(torch.export.export(model, example))
    assert len(mod["main"].params) == 5
    arguments = [tvm.runtime.tensor(each.numpy()) for each in example]
    before = arguments[0].numpy()
    machine = compiled(mod, donate=donate)
    results = machine["main"](*arguments, *tvm_scatter.buffers(mod).values())
    # The model changes what it is given.
    doubled, returned = model(*example)
    expected = [doubled, returned, example[0], model.kept]
    assert len(results) == len(expected)
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result.numpy(), right.numpy())
    assert np.array_equal(arguments[0].numpy(), before) == (not donate)


@pytest.mark.parametrize("returned", [False, True])
def test_inputs_that_no_scatter_writes_stay_with_tvm(returned, caplog) -> None:
    class Adds(torch.nn.Module):
        def forward(self, total, position):
            total.add_(1)
            result = torch.zeros(8).index_add(0, position, total[:1])
            return (total, result) if returned else (result,)

    example = (torch.zeros(4), torch.tensor([3]))
    mod = from_exported_program(torch.export.export(Adds(), example))
    assert len(mod["main"].ret_ty.fields) == 1 + returned
    assert ("What the model writes to total is lost" in caplog.text) == (not returned)


@pytest.mark.each_device
def test_a_buffer_that_is_passed_as_the_input_too(device: str) -> None:
    """Buffers are donated unasked. The error is raised on the host, wherever the tensors are."""

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(6, 8))

        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            self.rows.index_copy_(0, index, x)
            return self.rows * 1

    program = torch.export.export(Rows(), (torch.ones(6, 8), torch.arange(6)))
    executable = tvm.compile(from_exported_program(program), target_of(device))
    on = device_of(device)
    x, index = (tvm.runtime.tensor(each, on) for each in (np.ones((6, 8), "float32"), np.arange(6)))
    machine = relax.VirtualMachine(executable, on)
    with pytest.raises(ValueError, match="rows: it is donated and shares memory with the argument"):
        machine["main"](x, index, x)
    rows = tvm.runtime.tensor(np.zeros((6, 8), "float32"), on)
    machine["main"](x, index, rows)
    np.testing.assert_array_equal(rows.numpy(), 1)
