"""Arguments of PyTorch models that are no tensors: flags, numbers, texts and ``None``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from harness import device_of  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import compile_for, run  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Sums(torch.nn.Module):
    """Takes what transformers pass beside tensors."""

    def forward(
        self, x: Any, doubled: Any, index: Any, factor: Any = 1, *, mask: Any = None
    ) -> tuple[Any, Any]:
        sums = torch.zeros(3, 2).index_add(0, index, x)
        return (sums * 2 if doubled else sums) * (1 if factor is None else factor), mask


@pytest.mark.parametrize(
    ("doubled", "factor", "expected"),
    [
        (True, 3, [[18.0, 18.0], [12.0, 12.0], [12.0, 12.0]]),
        (False, 0.5, [[1.5, 1.5], [1.0, 1.0], [1.0, 1.0]]),
        ("yes", None, [[6.0, 6.0], [4.0, 4.0], [4.0, 4.0]]),
        (None, 1, [[3.0, 3.0], [2.0, 2.0], [2.0, 2.0]]),
    ],
)
def test_constants_are_left_out(doubled: Any, factor: Any, expected: Any) -> None:
    x, index = torch.ones(7, 2), torch.arange(7) % 3
    program = torch.export.export(Sums(), (x, doubled, index, factor), {"mask": None})
    module = from_exported_program(program)
    assert [each.name for each in module["main"].params] == ["x", "index"]
    [sums, nothing] = compile_for(module)["main"](*map(tvm.runtime.from_dlpack, (x, index)))
    np.testing.assert_array_equal(sums.numpy(), expected)
    assert nothing is None


def test_parameters_as_inputs_stay() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, flag: Any, x: Any) -> Any:
            return x * self.weight if flag else x

    program = torch.export.export(Scaled(), (True, torch.ones(3, 2)))
    main = from_exported_program(program, keep_params_as_input=True)["main"]
    assert [each.name for each in main.params] == ["x", "p_weight"]
    assert main.attrs["num_input"] == 1


class Cache(torch.nn.Module):
    """A cache of which the caller says how much is written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 16, 4))

    def forward(self, x: Any, start: int) -> Any:
        self.rows[:, start : start + x.shape[1]] = x
        seen = self.rows[:, : start + x.shape[1]]
        return torch.softmax(x @ seen.transpose(1, 2), -1) @ seen


def numbers(*values: int) -> list[Any]:
    return [tvm.runtime.ShapeTuple([each]) for each in values]


def test_a_position_in_a_cache(device: str) -> None:
    x = torch.arange(16.0).reshape(2, 2, 4) / 16
    program = torch.export.export(Cache(), (x, 5), dynamic_shapes=(None, Dim.AUTO))
    built, on = compile_for(from_exported_program(program), device), device_of(device)
    eager, rows = Cache(), tvm.runtime.tensor(np.zeros((2, 16, 4), "float32"), on)
    for start in (0, 2, 4, 14, 1):
        step = x * (start + 1)
        [result, rows] = built["main"](tvm.runtime.tensor(step.numpy(), on), *numbers(start), rows)
        np.testing.assert_allclose(result.numpy(), eager(step, start).numpy(), rtol=1e-5)
        np.testing.assert_allclose(rows.numpy(), eager.rows.numpy())
    said = r"main: start must be at most 14, but is 15\.$"
    with pytest.raises(ValueError, match=said):
        built["main"](tvm.runtime.tensor(x.numpy(), on), *numbers(15), rows)


class Arithmetic(torch.nn.Module):
    def forward(self, x: Any, n: int, m: int) -> Any:
        return x * n + m, x[0] * (n // 2), torch.full((2,), n % 3)


@pytest.mark.parametrize(("n", "m"), [(0, 1), (1, 0), (5, 7), (-1, -5), (-4, 2**33)])
@pytest.mark.turns(3)
def test_numbers_are_any_numbers(n: int, m: int) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    built = arithmetic()
    results = built["main"](tvm.runtime.from_dlpack(x), *numbers(n, m))
    for result, expected in zip(results, Arithmetic()(x, n, m), strict=True):
        np.testing.assert_allclose(result.numpy(), expected.numpy())


def arithmetic() -> relax.VirtualMachine:
    dynamic = (None, Dim.DYNAMIC, Dim.DYNAMIC)
    program = torch.export.export(Arithmetic(), (torch.ones(2, 2), 5, 7), dynamic_shapes=dynamic)
    return compile_for(from_exported_program(program))


class Rows(torch.nn.Module):
    def forward(self, x: Any, n: int) -> Any:
        return x[:n].sum(0), x.reshape(n, -1)


@pytest.mark.parametrize(("rows", "n"), [(6, 3), (6, 2), (6, 1), (6, 6), (1, 1)])
def test_a_number_as_a_size(rows: int, n: int) -> None:
    built, x = rows_of_a_number(), torch.arange(4.0 * rows).reshape(rows, 4)
    results = built["main"](tvm.runtime.from_dlpack(x), *numbers(n))
    for result, expected in zip(results, Rows()(x, n), strict=True):
        np.testing.assert_array_equal(result.numpy(), expected.numpy())


@pytest.mark.parametrize(("rows", "n", "said"), [(6, 5, "n is 5"), (4, 8, ""), (6, 0, "n is 0")])
def test_a_number_beyond_what_was_exported(rows: int, n: int, said: str) -> None:
    x = tvm.runtime.tensor(np.zeros((rows, 4), "float32"))
    with pytest.raises(ValueError, match=said):
        rows_of_a_number()["main"](x, *numbers(n))


def rows_of_a_number() -> relax.VirtualMachine:
    dynamic = ({0: Dim.AUTO}, Dim.AUTO)
    program = torch.export.export(Rows(), (torch.ones(6, 4), 3), dynamic_shapes=dynamic)
    return compile_for(from_exported_program(program))


def test_a_flag_beside_a_buffer(device: str) -> None:
    """The order of inputs stays: buffers that are written come last."""

    class Counted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("counts", torch.zeros(3))

        def forward(self, flag: bool, index: Any) -> Any:
            self.counts.index_add_(0, index, torch.ones(index.shape[0]))
            return self.counts + 1 if flag else self.counts

    program = torch.export.export(Counted(), (True, torch.tensor([0, 2, 2])))
    built = compile_for(from_exported_program(program), device)
    result, counts = run(built, [torch.tensor([0, 2, 2]), torch.zeros(3)], device)
    assert result.tolist() == [2, 1, 3]
    assert counts.tolist() == [1, 0, 2]


class Results(torch.nn.Module):
    def forward(self, x: Any, n: int, flag: bool) -> Any:
        return x + 1, 24 // n, 3, 2.5, "a", None, flag, n, [x.shape[0] % n, {"twice": x * 2}]


def test_results_that_are_no_tensors() -> None:
    dynamic = ({0: Dim.AUTO}, Dim.AUTO, None)
    program = torch.export.export(Results(), (torch.ones(4), 3, True), dynamic_shapes=dynamic)
    built = compile_for(from_exported_program(program))
    x = tvm.runtime.tensor(np.ones(5, "float32"))
    first, *plain, twice = built["main"](x, *numbers(3))
    assert [*plain] == [8, 3, 2.5, "a", None, True, 3, 2]
    assert [*built["main"](x, *numbers(-2))][1] == -12
    assert first.shape == twice.shape == (5,)
    # PyTorch raises an error. A division by zero would end the process.
    built["main"](x, *numbers(0))
