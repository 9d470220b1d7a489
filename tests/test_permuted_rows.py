"""The second of two sorts of rows is the inverse of the first one's order: a scatter of places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tvm
from harness import target_of
from tvm import relax

import tvm_scatter

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_harness import check, export, through_tvm  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def ranks(x: Any, axis: int = -1) -> Any:
    return x.argsort(dim=axis, stable=True).argsort(dim=axis, stable=True)


def sorts(
    function: Callable[..., Any], *inputs: Any, dynamic: Any = None, device: str = "llvm"
) -> int:
    """How many sorts are left of a function."""
    mod = from_exported_program(export(function, inputs, dynamic))
    with tvm_scatter.options() as wanted, target_of(device):
        passed = tvm.transform.Sequential(tvm_scatter.passes.passes(wanted))(mod)
    return str(passed.script()).count("R.argsort(")


def test_literal_cases(device: str) -> None:
    x = torch.tensor([[0.5, float("nan"), -1, 0.5], [3, 2, -float("inf"), -0.0]])
    rows, columns = through_tvm(lambda x: (ranks(x, 1), ranks(x, 0)), [x], device=device)
    assert rows.tolist() == [[1, 3, 0, 2], [3, 2, 0, 1]]
    assert columns.tolist() == [[0, 1, 1, 1], [1, 0, 0, 0]]


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((7,), 0), ((3, 5), 1), ((5, 3), 0), ((2, 70, 3), 1), ((4, 1, 2), 1)],
    ids=str,
)
@pytest.mark.turns(4)
def test_ranks(shape: Sequence[int], axis: int, device: str, unknown: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    real = torch.randn(shape, generator=generator)
    real.view(-1)[::5] = float("nan")
    few = torch.randint(0, 3, shape, generator=generator)

    def some(real: Any, few: Any) -> Sequence[Any]:
        order = real.argsort(dim=axis, stable=True)
        back = order.argsort(dim=axis, stable=True)
        return order, back, real.gather(axis, back), ranks(few.int(), axis), back.argsort(axis)

    dynamic = [{at: Dim.AUTO for at, size in enumerate(shape) if size > 1}] * 2
    dynamic = dynamic if unknown else None
    check(some, real, few, dynamic=dynamic, device=device)
    assert sorts(some, real, few, dynamic=dynamic, device=device) == 2


def test_what_is_no_permutation_is_sorted(device: str) -> None:
    """Of another axis, from above, of part of an order, and of what may be equal."""

    def some(x: Any, few: Any) -> Sequence[Any]:
        order = x.argsort(1)
        return (
            order.argsort(dim=0, stable=True),
            order.argsort(1, descending=True),
            order[:, :3].argsort(1),
            (order // 2).argsort(dim=1, stable=True),
            (order + 1).argsort(1),
            few.argsort(dim=1, stable=True),
        )

    generator = torch.Generator().manual_seed(1)
    x = torch.randn((9, 9), generator=generator)
    few = torch.randint(0, 9, (9, 9), generator=generator)
    check(some, x, few, device=device)
    assert sorts(some, x, few, device=device) == 7


@pytest.mark.on_cpu
def test_rows_that_are_shuffled_and_restored(device: str) -> None:
    def masked(x: Any, noise: Any) -> Any:
        order = noise.argsort(1)
        back = order.argsort(1)
        kept = x.gather(1, order[:, :3, None].expand(-1, -1, x.shape[2]))
        whole = torch.cat([kept, torch.zeros(x.shape[0], 4, x.shape[2])], 1)
        return whole.gather(1, back[:, :, None].expand(-1, -1, x.shape[2]))

    generator = torch.Generator().manual_seed(2)
    given = torch.randn((5, 7, 8), generator=generator), torch.randn((5, 7), generator=generator)
    for dynamic in (None, [{0: Dim.AUTO}, {0: Dim.AUTO}]):
        check(masked, *given, dynamic=dynamic, device=device)
        assert sorts(masked, *given, dynamic=dynamic, device=device) == 1


def test_nothing_is_known_of_rows_that_tvm_sorts_as_floats() -> None:
    """TVM may list an element twice where one is not a number."""
    x = relax.Var("x", relax.TensorType([3, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            order = builder.emit(relax.op.argsort(x, 1, dtype="int64"))
            back = builder.emit_output(relax.op.argsort(order, 1, dtype="int64"))
        builder.emit_func_output(back)
    with tvm_scatter.options() as wanted, target_of("llvm"):
        passed = tvm.transform.Sequential(tvm_scatter.passes.passes(wanted))(builder.get())
    assert passed.script().count("R.argsort(") == 2
