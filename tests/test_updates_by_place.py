"""Places look up their updates, where an update is written to places far apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from cuda_cases import cuda_target
from torch_harness import assert_same, check, compile_for, export, run
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter.passes.places_or_updates import PlacesOrUpdates

Tensor = torch.Tensor


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PlacesOrUpdates]]:
    """Places look up their updates whatever that costs; gives what they look up."""
    found: list[PlacesOrUpdates] = []
    monkeypatch.setattr(PlacesOrUpdates, "gains", property(lambda ways: not found.append(ways)))
    yield found


def explained(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> str:
    with tvm_scatter.options(**options):
        module = from_exported_program(export(function, inputs))
        return str(tvm_scatter.explain(module, cuda_target("sm_90")))


# Literal cases: two images of two channels and three pixels.

ZEROS = torch.zeros(2, 2, 3)
NUMBERS = torch.arange(12.0).reshape(2, 2, 3)
IMAGE, PIXEL = torch.tensor([0, 1, 1]), torch.tensor([2, 0, -1])
UPDATES = torch.tensor([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]])
CHANNEL = torch.arange(2)


def channels_between(data: Tensor, image: Tensor, pixel: Tensor, updates: Tensor) -> Tensor:
    return data.clone().index_put((image[:, None], CHANNEL, pixel[:, None]), updates)


def sliced(data: Tensor, image: Tensor, pixel: Tensor, updates: Tensor) -> Tensor:
    data = data.clone()
    data[image, :, pixel] = updates
    return data


@pytest.mark.parametrize("function", [channels_between, sliced])
def test_literal(on_cuda: str, always: list[Any], function: Callable[..., Any]) -> None:
    program = export(function, (ZEROS, IMAGE, PIXEL, UPDATES))
    [result] = run(
        compile_for(from_exported_program(program), on_cuda),
        (NUMBERS, IMAGE, PIXEL, UPDATES),
        on_cuda,
    )
    expected = [[[0, 1, 10], [3, 4, 20]], [[30, 7, 50], [40, 10, 60]]]
    assert result.tolist() == expected
    assert len(always) == 1


def shuffled(data: Tensor, pixel: Tensor, updates: Tensor) -> Tensor:
    channel = torch.tensor([1, 0])
    return data.index_put((torch.tensor(1), channel, pixel[:, None]), updates)


def diagonal(data: Tensor, updates: Tensor) -> Tensor:
    return data[0].index_put((torch.arange(2), torch.arange(2)), updates[:2, 0])


def test_what_runs_along_no_axis(on_cuda: str, always: list[Any]) -> None:
    """Channels in another order, and two axes that are run along together."""

    def both(data: Tensor, pixel: Tensor, updates: Tensor) -> tuple[Tensor, Tensor]:
        return shuffled(data, pixel, updates), diagonal(data, updates)

    check(both, NUMBERS, torch.tensor([2, 0, 1]), UPDATES, device=on_cuda)


def emptied(data: Tensor, none: Tensor, updates: Tensor) -> list[Tensor]:
    """Updates of which there are none."""
    made = [data.clone() for _ in range(4)]
    made[0][:, :, none.reshape(2, 0)] = 1.0
    made[1][:, :, none.reshape(0, 2)] = 1.0
    made[2][none[:, None] + CHANNEL, :, none[:, None]] = updates[0]
    made[3][:, :, none] = 1.0
    return made


def test_no_entries(on_cuda: str, always: list[Any]) -> None:
    check(emptied, NUMBERS, torch.zeros(0, dtype=torch.int64), UPDATES, device=on_cuda)


def test_errors_count_all_index_tensors(on_cuda: str, always: list[Any]) -> None:
    """Also that which runs over the axis of channels."""
    program = export(channels_between, (NUMBERS, IMAGE, PIXEL, UPDATES))
    with tvm_scatter.options(bounds="raise"):
        machine = compile_for(from_exported_program(program), on_cuda)
    with pytest.raises(IndexError, match="of component 2"):
        run(machine, (NUMBERS, IMAGE, PIXEL + 3, UPDATES), on_cuda)


def canvas(image: Tensor, pixel: Tensor, updates: Tensor) -> Tensor:
    return torch.relu(sliced(torch.full((2, 2, 3), 0.5), image, pixel, updates) - 1)


def test_what_follows_is_computed_with_it(on_cuda: str, always: list[Any]) -> None:
    check(canvas, IMAGE, PIXEL, UPDATES, device=on_cuda)


@pytest.mark.parametrize("first", [0, 1])
def test_the_last_of_several_wins(on_cuda: str, always: list[Any], first: int) -> None:
    """Where equal bits are asked for."""
    image, pixel = torch.tensor([1, 1, 0, 1]), torch.tensor([first, first, 2, first])
    updates = torch.arange(8.0).reshape(4, 2)
    with tvm_scatter.options(deterministic=True):
        check(sliced, NUMBERS, image, pixel, updates, device=on_cuda)


def test_bad_indices_are_dropped(on_cuda: str, always: list[Any]) -> None:
    program = export(sliced, (NUMBERS, IMAGE, PIXEL, UPDATES))
    image, pixel = torch.tensor([0, 2, 1]), torch.tensor([3, 0, 1 << 40])
    with tvm_scatter.options(bounds="drop"):
        machine = compile_for(from_exported_program(program), on_cuda)
    [result] = run(machine, (NUMBERS, image, pixel, UPDATES), on_cuda)
    assert_same(result, NUMBERS)


def test_bad_indices_raise(on_cuda: str, always: list[Any]) -> None:
    program = export(sliced, (NUMBERS, IMAGE, PIXEL, UPDATES))
    with tvm_scatter.options(bounds="raise"):
        machine = compile_for(from_exported_program(program), on_cuda)
    for pixel, text in ((PIXEL, ""), (torch.tensor([2, 3, 0]), "index 3 at")):
        if not text:
            run(machine, (NUMBERS, IMAGE, pixel, UPDATES), on_cuda)
            continue
        with pytest.raises(IndexError, match=text):
            run(machine, (NUMBERS, IMAGE, pixel, UPDATES), on_cuda)


@pytest.mark.parametrize("bounds", ["drop", "trust"])
def test_number_of_updates_is_not_known(on_cuda: str, always: list[Any], bounds: str) -> None:
    count = torch.export.Dim("count", min=0, max=1 << 20)
    dynamic = (None, {0: count}, {0: count}, {0: count})
    program = export(sliced, (NUMBERS, IMAGE, PIXEL, UPDATES), dynamic)
    with tvm_scatter.options(bounds=bounds):
        machine = compile_for(from_exported_program(program), on_cuda)
    for number in (3, 0, 1):
        inputs = (NUMBERS, IMAGE[:number], PIXEL[:number], UPDATES[:number])
        [result] = run(machine, inputs, on_cuda)
        assert_same(result, sliced(*inputs))
    assert len(always) == 1


def placed(data: Tensor, place: Tensor, updates: Tensor) -> Tensor:
    return data.index_put((place[:, 0, None], CHANNEL, place[:, 1, None]), updates)


def test_numbers_of_indices_and_updates_must_agree(on_cuda: str, always: list[Any]) -> None:
    """Where a model has two names for them, the error is that of the scatter as it stands."""
    auto, place = {0: torch.export.Dim.AUTO}, torch.stack([IMAGE, PIXEL], 1)
    errors = []
    for by_place in (True, False):
        program = export(placed, (NUMBERS, place, UPDATES), (None, auto, auto))
        with tvm_scatter.options(by_place=by_place):
            machine = compile_for(from_exported_program(program), on_cuda)
        [result] = run(machine, (NUMBERS, place[:2], UPDATES[:2]), on_cuda)
        assert_same(result, placed(NUMBERS, place[:2], UPDATES[:2]))
        with pytest.raises(ValueError, match="index_put") as error:
            run(machine, (NUMBERS, place[:2], UPDATES), on_cuda)
        errors.append(str(error.value))
    assert len(always) == 1
    assert errors[0] == errors[1]


TYPES = [torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float64]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_types(on_cuda: str, always: list[Any], dtype: torch.dtype) -> None:
    check(sliced, NUMBERS.to(dtype), IMAGE, PIXEL, (UPDATES > 20).to(dtype), device=on_cuda)


def _random_form(random: Random) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """A scatter along some axes of random data, the others of which are slices or counted."""
    rank = random.randint(2, 5)
    shape = [random.choice((1, 2, 3, 4)) for _ in range(rank)]
    indexed = sorted(random.sample(range(rank), random.randint(1, rank - 1)))
    if rank - 1 not in indexed:
        indexed[-1] = rank - 1
    counts = [random.choice((1, 2, 3)) for _ in range(random.randint(1, 2))]
    generator = torch.Generator().manual_seed(random.randrange(1 << 30))

    def numbers(*sizes: int) -> Tensor:
        return torch.randint(0, 100, sizes, generator=generator).float()

    # Places differ, so that it does not matter which of several updates wins.
    places = int(np.prod([shape[axis] for axis in indexed]))
    count = int(np.prod(counts))
    if count > places:
        counts, count = [places], places
    flat = torch.randperm(places, generator=generator)[:count].reshape(counts)
    indices: list[Tensor] = []
    for axis in reversed(indexed):
        negative = random.choice((0, shape[axis]))
        indices.insert(0, flat % shape[axis] - negative)
        flat = flat // shape[axis]
    if random.random() < 0.5:
        slices: list[Any] = [slice(None)] * rank
        updates = numbers(*numbers(*shape)[_at(slices, indexed, indices)].shape)
        return partial(_assigned, slices, indexed), (numbers(*shape), updates, *indices)
    # The other axes are counted, each along an axis of the indices of its own.
    others = [axis for axis in range(rank) if axis not in indexed]
    updates = numbers(*counts, *(shape[axis] for axis in others))
    return partial(_counted, indexed, others), (numbers(*shape), updates, *indices)


def _at(slices: list[Any], indexed: list[int], indices: Any) -> tuple[Any, ...]:
    made = list(slices)
    for axis, index in zip(indexed, indices, strict=True):
        made[axis] = index
    return tuple(made)


def _assigned(
    slices: list[Any], indexed: list[int], data: Tensor, updates: Tensor, *indices: Tensor
) -> Tensor:
    data = data.clone()
    data[_at(slices, indexed, indices)] = updates
    return data


def _counted(
    indexed: list[int], others: list[int], data: Tensor, updates: Tensor, *indices: Tensor
) -> Tensor:
    made: dict[int, Tensor] = {}
    for axis, index in zip(indexed, indices, strict=True):
        made[axis] = index.reshape(*index.shape, *([1] * len(others)))
    for number, axis in enumerate(others):
        behind = [1] * (len(others) - number - 1)
        made[axis] = torch.arange(data.shape[axis]).reshape(-1, *behind)
    return data.index_put(tuple(made[axis] for axis in range(data.ndim)), updates)


@pytest.mark.parametrize("seed", range(4))
def test_random_forms(on_cuda: str, always: list[Any], seed: int) -> None:
    random = Random(seed)
    forms = [_random_form(random) for _ in range(6)]
    counts = [len(inputs) for _, inputs in forms]

    def all_of(*tensors: Tensor) -> list[Tensor]:
        found, at = [], 0
        for (function, _), count in zip(forms, counts, strict=True):
            found.append(function(*tensors[at : at + count]))
            at += count
        return found

    check(all_of, *(tensor for _, inputs in forms for tensor in inputs), device=on_cuda)
    assert always


# What is chosen without being forced.


def pillars(image: Tensor, pixel: Tensor, updates: Tensor) -> Tensor:
    return sliced(torch.zeros(4, 64, 214_272), image, pixel, updates)


PILLARS = (torch.zeros(24_000, dtype=torch.int64), torch.arange(24_000), torch.zeros(24_000, 64))


def test_pillars_are_looked_up() -> None:
    assert "by_place: main.lv1 looks up the update of each place: predicted" in explained(
        pillars, *PILLARS
    )


def test_switch() -> None:
    assert "by_place" not in explained(pillars, *PILLARS, by_place=False)


def test_an_implementation_that_is_asked_for_stays() -> None:
    assert "by_place" not in explained(pillars, *PILLARS, implementation="sort_based")


def rows(data: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    return data.index_put((index,), updates)


def few(image: Tensor, pixel: Tensor, updates: Tensor) -> Tensor:
    return sliced(torch.zeros(4, 64, 96), image, pixel, updates)


def test_rows_and_what_is_small_are_written() -> None:
    assert "by_place" not in explained(
        rows, torch.zeros(100_000, 64), torch.arange(5000), torch.zeros(5000, 64)
    )
    assert "by_place" not in explained(few, IMAGE, PIXEL, torch.zeros(3, 64))
