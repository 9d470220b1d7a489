"""Sums of a few rows are computed by the scatter that reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import target_of
from torch_harness import check, export
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter

AUTO = torch.export.Dim.AUTO


def mixed(x: torch.Tensor, source: torch.Tensor, to: torch.Tensor, share: torch.Tensor) -> Any:
    """The messages of a layer whose edges weight some bases."""
    messages = (x[source] * share[:, :, None]).sum(1)
    return torch.zeros(x.shape[0], x.shape[2]).index_add(0, to, messages)


def greatest(x: torch.Tensor, to: torch.Tensor) -> Any:
    """Sums that keep their axis, in two layers, behind which something follows."""
    messages = torch.relu(x.sum(2, keepdim=True) - 0.5).sum(1).reshape(x.shape[0], -1)
    start = torch.full((7, messages.shape[1]), -1.0)
    return start.index_reduce(0, to, messages, "amax") * 2


def inputs(bases: int, width: int, edges: int = 40, nodes: int = 9) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    ends = torch.randint(0, nodes, (2, edges))
    return torch.randn(nodes, bases, width), ends[0], ends[1], torch.randn(edges, bases)


def notes(function: Any, *tensors: torch.Tensor, device: str) -> list[str]:
    module = from_exported_program(export(function, tensors))
    found = tvm_scatter.explain(module, target_of(device)).notes
    return [str(each) for each in found if each.switch == "fuse"]


@pytest.mark.each_device
def test_weighted_bases(device: str) -> None:
    check(mixed, *inputs(4, 16), device=device)


def test_sizes_that_the_run_time_finds(device: str) -> None:
    sizes = ({0: AUTO}, {0: AUTO}, {0: AUTO}, {0: AUTO})
    check(mixed, *inputs(3, 20), device=device, dynamic=sizes)


def test_sums_of_sums(device: str) -> None:
    torch.manual_seed(0)
    check(greatest, torch.randn(30, 2, 5, 24), torch.randint(0, 7, (30,)), device=device)


@pytest.mark.parametrize(
    ("bases", "width", "is_computed"),
    [(4, 16, True), (8, 16, True), (9, 16, False), (4, 15, False)],
)
def test_which_sums_are_computed(bases: int, width: int, is_computed: bool) -> None:
    [found] = notes(mixed, *inputs(bases, width), device="cuda")
    assert ("computes its updates itself" in found and "sum" in found) == is_computed


def test_a_sum_that_is_too_long_stays_apart_and_what_follows_it_is_computed() -> None:
    def message(
        x: torch.Tensor, source: torch.Tensor, to: torch.Tensor, share: torch.Tensor
    ) -> Any:
        terms = x[source] * share[:, :, None]
        for _ in range(9):
            terms = torch.where(terms > 0.5, terms * terms, terms - 0.5)
        messages = torch.relu(terms.sum(1)) * 2
        return torch.zeros(x.shape[0], x.shape[2]).index_add(0, to, messages)

    [found] = notes(message, *inputs(8, 16), device="cuda")
    assert "computes its updates itself" in found and "sum" not in found


def test_sums_that_several_messages_need_are_computed_once() -> None:
    def read(x: torch.Tensor, source: torch.Tensor, to: torch.Tensor, share: torch.Tensor) -> Any:
        messages = x.sum(1)[source] * share[:, :1]
        return torch.zeros(x.shape[0], x.shape[2]).index_add(0, to, messages)

    def spread(x: torch.Tensor, source: torch.Tensor, to: torch.Tensor, share: torch.Tensor) -> Any:
        messages = (x[source].sum(1)[:, None] * share[:, :, None]).reshape(-1, 16)
        zeros = torch.zeros(x.shape[0], x.shape[2])
        return zeros.index_add(0, to.repeat_interleave(4), messages)

    def put(x: torch.Tensor, source: torch.Tensor, to: torch.Tensor, share: torch.Tensor) -> Any:
        zeros = torch.zeros(x.shape[0], x.shape[2])
        return zeros.index_put((to,), torch.relu(x[0].sum(0) + share[0, 0]), accumulate=True)

    for function in (read, spread):
        [found] = notes(function, *inputs(4, 16), device="cuda")
        assert "computes its updates itself" in found and "sum" not in found
    assert not any(
        "sum" in each and "itself" in each for each in notes(put, *inputs(4, 16), device="cuda")
    )


def test_a_sum_that_several_scatters_read_is_computed_once() -> None:
    def function(x: torch.Tensor, source: torch.Tensor, to: torch.Tensor, *_: torch.Tensor) -> Any:
        messages, zeros = x[source].sum(1), torch.zeros(x.shape[0], x.shape[2])
        return zeros.index_add(0, to, messages), zeros.index_add(0, source, messages * 2)

    found = notes(function, *inputs(4, 16), device="cuda")
    assert not any("sum" in each.split("itself")[-1] for each in found if "itself" in each)


def test_sums_of_16_bits_are_rounded_once_and_stay_apart() -> None:
    tensors = [each.half() if each.is_floating_point() else each for each in inputs(4, 16)]

    def halves(x: torch.Tensor, *rest: torch.Tensor) -> Any:
        messages = (x[rest[0]] * rest[2][:, :, None]).sum(1)
        zeros = torch.zeros(x.shape[0], x.shape[2], dtype=x.dtype)
        return zeros.index_add(0, rest[1], messages)

    [found] = notes(halves, *tensors, device="cuda")
    assert found.endswith("reads its updates from memory: elements of float16 are added up apart")


def test_why_other_sums_stay_apart() -> None:
    def message(axes: Any, *more: int) -> Callable[..., Any]:
        def function(x: torch.Tensor, source: torch.Tensor, to: torch.Tensor, *_: Any) -> Any:
            messages = x[source].reshape(len(to), *more, -1).sum(axes)
            return torch.zeros(x.shape[0], messages.shape[-1]).index_add(0, to, messages)

        return function

    for function, given, reason in (
        (mixed, inputs(9, 16), "9 rows, other than 1 to 8, are added up apart"),
        (mixed, inputs(4, 15), "rows of fewer than 16 elements are added up apart"),
        (message((1, 2), 2, 2), inputs(4, 16), "several axes are added up apart"),
    ):
        [found] = notes(function, *given, device="cuda")
        assert found.endswith(f"reads its updates from memory: {reason}")
