"""Programs that other compilers have fused into wrong answers, silently."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import check  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def reduced_and_expanded_back(features: Any, batch: Any) -> Any:
    """pytorch#171493: with a single graph, the rows were read before they were summed."""
    scaled = features**2 + 0.5
    zeros = torch.zeros(1, features.shape[1])
    sums = zeros.index_add(0, batch, scaled)
    return scaled / (sums[batch] + 1e-6)


def gathered_from_what_was_scattered(x: Any, index: Any) -> Any:
    """pytorch#191571: zeros were read in place of the sum."""
    sums = torch.zeros(1, x.shape[1])
    sums.scatter_add_(0, index.unsqueeze(-1).expand(-1, x.shape[1]), x * 2)
    return torch.index_select(sums, 0, index)


def a_scalar_is_scattered(x: Any, bias: Any, index: Any) -> Any:
    """pytorch#178871: threads beyond the last update added the scalar, too."""
    updates = x + bias
    zeros = torch.zeros(1, 1)
    return zeros.scatter_reduce(0, index.unsqueeze(-1).expand_as(updates), updates, "sum")


def doubled_by_itself(x: Any) -> Any:
    """pytorch#174074: what had been written was read once more."""
    twice = torch.zeros(2, dtype=torch.int64)
    x[twice] += x[twice]
    return x


def written_and_then_reversed(x: Any) -> Any:
    """pytorch#198270: rows were read while others were written."""
    x.index_put_((torch.arange(x.shape[0]),), x * 2.0)
    x.add_(x.flip(0))
    return x


def permuted_by_its_own_rows(x: Any, index: Any) -> Any:
    """A scatter in place that gathers from the tensor that it overwrites."""
    x = x + 1
    x.index_add_(0, index, x[index.flip(0)] * x)
    return x


def rotated_into_a_cache(cache: Any, keys: Any, angles: Any, place: Any) -> Any:
    """iree#19565: a rotary embedding as the producer of a cache write."""
    halves = keys.chunk(2, -1)
    turned = torch.cat([-halves[1], halves[0]], -1)
    cache = cache * 1.0
    cache[:, place] = keys * angles.cos() + turned * angles.sin()
    return cache


def messages_of_repeated_edges(x: Any, weight: Any, source: Any, target: Any) -> Any:
    """iree#19584: updates that meet are no parallel loop, as their producer is."""
    messages = torch.relu(x[source] * weight[:, None] - x[target])
    return torch.zeros_like(x).index_add(0, target, messages)


def case(function: Any) -> tuple[Any, ...]:
    """Arguments for one of the programs: whole numbers, so that sums are exact."""
    generator = torch.Generator().manual_seed(0)

    def whole(*shape: int) -> Any:
        return torch.randint(-4, 5, shape, generator=generator).float()

    return {
        reduced_and_expanded_back: (torch.ones(37, 3), torch.zeros(37, dtype=torch.int64)),
        gathered_from_what_was_scattered: (whole(8, 4), torch.zeros(8, dtype=torch.int64)),
        a_scalar_is_scattered: (whole(37, 1), whole(1), torch.zeros(37, dtype=torch.int64)),
        doubled_by_itself: (whole(5, 3),),
        written_and_then_reversed: (whole(33, 17),),
        permuted_by_its_own_rows: (whole(9, 5), torch.tensor([3, 3, 0, 8, 1, 1, 1, 7, 2])),
        rotated_into_a_cache: (
            whole(2, 16, 8),
            whole(2, 3, 8),
            whole(3, 8),
            torch.tensor([4, 5, 6]),
        ),
        messages_of_repeated_edges: (
            whole(6, 8),
            whole(50),
            *torch.randint(0, 6, (2, 50), generator=generator),
        ),
    }[function]


@pytest.mark.parametrize(
    "function",
    [
        reduced_and_expanded_back,
        gathered_from_what_was_scattered,
        a_scalar_is_scattered,
        doubled_by_itself,
        written_and_then_reversed,
        permuted_by_its_own_rows,
        rotated_into_a_cache,
        messages_of_repeated_edges,
    ],
)
@pytest.mark.parametrize("in_place", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_what_others_got_wrong(device: str, function: Any, in_place: bool) -> None:
    with tvm_scatter.options(fuse=True, in_place=in_place):
        check(function, *case(function), device=device)


@pytest.mark.parametrize("rows", [2, 33, 64])
def test_any_number_of_scalars(rows: int) -> None:
    """The error of pytorch#178871 depended on the distance from a power of two."""
    arguments = (torch.ones(rows, 1), torch.ones(1), torch.zeros(rows, dtype=torch.int64))
    with tvm_scatter.options(fuse=True):
        check(a_scalar_is_scattered, *arguments)
