"""Sizes that a front end's operator compares and a scatter does not: one clear error, or right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import tvm

torch = pytest.importorskip("torch")

from torch_harness import compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402
from tvm_scatter.problem.scatter_problem import BOUNDS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten
M, K, N = (torch.export.Dim(name, max=4000) for name in ("m", "k", "n"))


def zeros(*shape: int) -> Any:
    return torch.zeros(shape)


def source(*shape: int) -> Any:
    """Numbers that stand nowhere else."""
    return torch.arange(101.0, 101 + torch.Size(shape).numel()).reshape(shape)


def first(*shape: int) -> Any:
    return torch.arange(torch.Size(shape).numel()).reshape(shape)


class Form(NamedTuple):
    """What is called, how it is exported, inputs that PyTorch takes, and inputs that it refuses."""

    function: Callable[..., Any]
    dynamic: Sequence[Any]
    good: Sequence[tuple[Any, ...]]
    bad: Sequence[tuple[Any, ...]]
    said: str


FORMS = {
    "put": Form(
        lambda x, i, v: x.put(i, v),
        ({}, {0: M}, {0: K}),
        [(zeros(12), first(3), source(3)), (zeros(12), first(0), source(0))],
        [(zeros(12), first(3), source(4)), (zeros(12), first(8), source(2)),
         (zeros(12), first(8), source(1)), (zeros(12), first(2), source(0))],
        "put: source of size .* must have size",
    ),
    "put, one element": Form(
        lambda x, i, v: x.put(i, v, True),
        ({}, {0: M}, {}),
        [],
        [(zeros(12), first(3), source(1)), (zeros(12), first(0), source(1))],
        "put: source of size 1 in dimension 0 must have size [03]",
    ),
    "put, no index": Form(
        lambda x, i, v: x.put(i, v),
        ({}, {}, {0: K}),
        [(zeros(12), first(0), source(0))],
        [(zeros(12), first(0), source(2))],
        "put: source of size 2 in dimension 0 must have size 0",
    ),
    "slice_scatter": Form(
        lambda x, v: x.slice_scatter(v, 0, 1, -1),
        ({0: N}, {0: M}),
        [(zeros(6), source(4)), (zeros(2), source(0)), (zeros(1), source(0))],
        [(zeros(7), source(n)) for n in (4, 6, 1, 0)],
        "slice_scatter: src of size . in dimension 0 must have size 5 there",
    ),
    "slice_scatter, step": Form(
        lambda x, v: x.slice_scatter(v, 0, 1, 9, 3),
        ({0: N}, {0: M}),
        [(zeros(6), source(2)), (zeros(12), source(3)), (zeros(0), source(0))],
        [(zeros(6), source(3)), (zeros(12), source(2))],
        "slice_scatter: src of size . in dimension 0 must have size",
    ),
    "slice_scatter, width": Form(
        lambda x, v: x.slice_scatter(v, 0, 1, 3),
        ({1: N}, {1: M}),
        [(zeros(4, 5), source(2, 5))],
        [(zeros(4, 5), source(2, n)) for n in (1, 4, 6)],
        "slice_scatter: src of size . in dimension 1 must have size 5",
    ),
    "diagonal_scatter": Form(
        lambda x, v: x.diagonal_scatter(v, 1),
        ({0: N, 1: M}, {0: K}),
        [(zeros(5, 7), source(5)), (zeros(4, 4), source(3)), (zeros(3, 1), source(0))],
        [(zeros(5, 7), source(4)), (zeros(5, 7), source(0)), (zeros(4, 4), source(4))],
        "diagonal_scatter: src of size . in dimension 0 must have size",
    ),
    "mask of the data": Form(
        lambda x, m, v: aten.index_put(x, [m], v),
        ({0: N}, {0: M}, {}),
        [(zeros(5), first(5) > 2, source(1))],
        [(zeros(5), first(4) > 2, source(1)), (zeros(5), first(6) > 2, source(1))],
        "index_put: mask of size . in dimension 0 must have size 5",
    ),
    "mask, values' width": Form(
        lambda x, m, v: aten.index_put(x, [m], v),
        ({1: N}, {}, {1: M}),
        [(zeros(5, 4), first(5) > 2, source(2, 4))],
        [(zeros(5, 4), first(5) > 2, source(2, 3)), (zeros(5, 4), first(5) > 2, source(2, 5))],
        "index_put: values of size . in dimension 1 must have size 4",
    ),
}  # fmt: skip


def test_strides_beyond_the_end() -> None:
    """PyTorch compares them with the memory of a tensor when it is called; so do we."""

    def rows(x: Any, y: Any, i: Any) -> Any:
        return y.index_add(0, i, x.as_strided((2, 2), (3, 2), 1))

    def make(n: int) -> tuple[Any, ...]:
        return source(n), zeros(4, 2), torch.tensor([3, 1])

    machine = compile_for(from_exported_program(export(rows, make(9), ({0: N}, {}, {}))))
    for n in (7, 20):
        torch.testing.assert_close(run(machine, make(n))[0], rows(*make(n)))
    for n, said in ((6, "index 6 .* extent 6"), (2, "index 3 .* extent 2"), (0, "index 1")):
        with pytest.raises(IndexError, match=f"as_strided: {said}"):
            run(machine, make(n))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.turns(2)
def test_sizes_that_differ_at_run_time(name: str) -> None:
    form = FORMS[name]
    example = _example(form)
    machine = compile_for(from_exported_program(export(form.function, example, form.dynamic)))
    for inputs in form.good:
        torch.testing.assert_close(run(machine, inputs)[0], form.function(*inputs))
    for inputs in form.bad:
        with pytest.raises(ValueError, match=form.said):
            run(machine, inputs)


def _example(form: Form) -> tuple[Any, ...]:
    """Inputs to export with: dynamic sizes must not be 0 or 1 then."""
    known = [*form.good, *form.bad]
    sizes = [
        [tensor.shape[d] for tensor, dims in zip(inputs, form.dynamic, strict=True) for d in dims]
        for inputs in known
    ]
    return next(inputs for inputs, each in zip(known, sizes, strict=True) if min(each) > 1)


@pytest.mark.turns(2)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_sizes_are_compared_on_every_target(device: str, bounds: str) -> None:
    form = FORMS["put"]
    program = export(form.function, form.good[0], form.dynamic)
    with tvm_scatter.options(bounds=bounds):
        machine = compile_for(from_exported_program(program), device)
    for inputs in form.good:
        torch.testing.assert_close(run(machine, inputs, device)[0], form.function(*inputs))
    for inputs in form.bad:
        with pytest.raises(ValueError, match=form.said):
            run(machine, inputs, device)


def test_a_target_without_a_strategy_compiles() -> None:
    form = FORMS["slice_scatter"]
    program = export(form.function, form.good[0], form.dynamic)
    assert tvm.compile(from_exported_program(program), tvm.target.Target("c"))


def mask(*chosen: int) -> Any:
    return torch.tensor(chosen) > 0


#: Of masks. PyTorch refuses the bad ones; what is kept under ``drop`` stands beside them.
MASKS = {
    "values": Form(
        lambda x, m, v: aten.index_put(x, [m], v),
        ({}, {}, {0: K}),
        [(source(5), mask(0, 1, 0, 1, 0), torch.tensor([7.0, 8.0])),
         (source(5), mask(0, 1, 0, 1, 1), torch.tensor([7.0])),
         (source(5), mask(0, 0, 0, 0, 0), torch.tensor([])),
         (source(5), mask(0, 0, 0, 0, 0), torch.tensor([7.0]))],
        [(source(5), mask(0, 1, 1, 1, 1), torch.tensor([7.0, 8.0]), [101.0, 7, 8, 104, 105]),
         (source(5), mask(0, 0, 0, 1, 0), torch.tensor([7.0, 8.0]), [101.0, 102, 103, 7, 105]),
         (source(5), mask(0, 0, 0, 1, 0), torch.tensor([]), [101.0, 102, 103, 104, 105])],
        "index_put: the mask has . true positions, but values has . entries for them; "
        "there must be one for each, or a single one",
    ),
    "accumulated": Form(
        lambda x, m, v: aten.index_put(x, [m], v, True),
        ({}, {}, {}),
        [(source(2, 2), mask(1, 1, 0, 1).reshape(2, 2), torch.tensor([7.0, 8.0, 9.0]))],
        [(source(2, 2), mask(1, 1, 1, 1).reshape(2, 2), torch.tensor([7.0, 8.0, 9.0]),
          [[108.0, 110], [112, 104]])],
        "index_put: the mask has 4 true positions, but values has 3 entries",
    ),
    "index": Form(
        lambda x, m, i, v: aten.index_put(x, [m, i], v),
        ({}, {}, {}, {}),
        [(zeros(3, 2), mask(1, 0, 1), first(2), source(2)),
         (zeros(3, 2), mask(0, 0, 1), first(2), source(2))],
        [(zeros(3, 2), mask(1, 1, 1), first(2), source(2), [[101.0, 0], [0, 102], [0, 0]]),
         (zeros(3, 2), mask(0, 0, 0), first(2), source(2), [[0.0, 0], [0, 0], [0, 0]])],
        "index_put: the mask has . true positions, but the index beside it has 2 entries for "
        "them; there must be one for each, or a single true position",
    ),
    "dynamic index": Form(
        lambda x, i, m, v: aten.index_put(x, [i, m], v, True),
        ({}, {0: M}, {}, {0: M}),
        [(zeros(3, 2, 2), first(3), mask(1, 0, 1, 1).reshape(2, 2), source(3)),
         (zeros(3, 2, 2), first(2), mask(0, 0, 1, 0).reshape(2, 2), source(2)),
         (zeros(3, 2, 2), first(1), mask(0, 0, 1, 0).reshape(2, 2), source(1))],
        [(zeros(3, 2, 2), first(2), mask(0, 0, 0, 0).reshape(2, 2), source(2),
          zeros(3, 2, 2).tolist())],
        "index_put: the mask has 0 true positions, but the index beside it has 2 entries",
    ),
    "single index": Form(
        lambda x, m, i, v: aten.index_put(x, [m, i], v),
        ({}, {}, {}, {0: K}),
        [(zeros(3, 2), mask(1, 0, 1), first(1), source(2)),
         (zeros(3, 2), mask(1, 1, 1), first(1), source(1))],
        [(zeros(3, 2), mask(1, 1, 1), first(1), source(2), [[101.0, 0], [102, 0], [0, 0]])],
        "index_put: the mask has 3 true positions, but values has 2 entries",
    ),
    "masked_scatter": Form(
        lambda x, m, v: x.masked_scatter(m, v),
        ({}, {}, {0: K}),
        [(source(5), mask(0, 1, 0, 1, 1), torch.tensor([7.0, 8.0, 9.0])),
         (source(5), mask(0, 1, 0, 1, 0), torch.tensor([7.0, 8.0, 9.0])),
         (source(5), mask(0, 0, 0, 0, 0), torch.tensor([]))],
        [(source(5), mask(0, 1, 0, 1, 1), torch.tensor([7.0, 8.0]), [101.0, 7, 103, 8, 105]),
         (source(5), mask(0, 1, 0, 1, 1), torch.tensor([7.0]), [101.0, 7, 103, 104, 105]),
         (source(5), mask(0, 1, 0, 1, 1), torch.tensor([]), [101.0, 102, 103, 104, 105])],
        "masked_scatter: the mask has 3 true positions, but source has . entries for them; "
        "there must be one for each",
    ),
    "masked_scatter, no source": Form(
        lambda x, m, v: x.masked_scatter(m, v),
        ({}, {}, {}),
        [(source(5), mask(0, 0, 0, 0, 0), torch.tensor([]))],
        [(source(5), mask(0, 1, 0, 1, 1), torch.tensor([]), [101.0, 102, 103, 104, 105])],
        "masked_scatter: the mask has 3 true positions, but source has 0 entries",
    ),
}  # fmt: skip
_FEW_MASKS = ("values", "index", "masked_scatter")


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.turns(4)
def test_masks_that_choose_another_number(name: str, bounds: str, device: str) -> None:
    if (device != "llvm" or bounds != "raise") and name not in _FEW_MASKS:
        pytest.skip("the host compares, whatever the device and the policy are")
    if device != "llvm" and bounds == "drop":
        pytest.skip("as for the other policies")
    form = MASKS[name]
    program = export(form.function, form.good[0], form.dynamic)
    with tvm_scatter.options(bounds=bounds):
        machine = compile_for(from_exported_program(program), device)
    for inputs in form.good:
        torch.testing.assert_close(run(machine, inputs, device)[0], form.function(*inputs))
    for *inputs, kept in form.bad:
        if bounds == "raise":
            with pytest.raises(ValueError, match=form.said):
                run(machine, inputs, device)
        elif bounds == "drop" or "index" not in name:
            assert run(machine, inputs, device)[0].tolist() == kept
