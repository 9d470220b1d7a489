"""How often a measurement is repeated, and what its samples mean."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm
from harness import device_of

from tvm_scatter.runtime.loaded_libraries import loaded_libraries
from tvm_scatter.tuning.measure import call_times, device_time, wall_time
from tvm_scatter.tuning.measure.sampling import Budget, Summary, sample


def sleeping(seconds: float) -> Callable[[], float]:
    """A measurement that takes so long and says so."""

    def measure() -> float:
        time.sleep(seconds)
        return seconds

    return measure


@pytest.mark.parametrize(
    ("seconds", "budget", "count"),
    [
        (0.0, Budget.exactly(7), 7),
        (0.0, Budget(fewest=3, most=5, seconds=60), 5),
        (0.01, Budget(fewest=3, most=1000, seconds=0.0), 3),
        (0.01, Budget(fewest=3, most=5, seconds=60, patience=0.005), 1),
        (0.01, Budget(fewest=3, most=5, seconds=60, patience=1.0), 5),
    ],
)
def test_a_budget_says_how_many_samples_are_taken(
    seconds: float, budget: Budget, count: int
) -> None:
    assert len(sample(sleeping(seconds), budget)) == count


def test_a_budget_of_time_ends_the_samples() -> None:
    samples = sample(sleeping(0.02), Budget(fewest=1, most=1000, seconds=0.1))
    assert 1 < len(samples) <= 6


def test_no_sample_is_zero() -> None:
    assert min(sample(lambda: 0.0, Budget.exactly(3))) > 0


def test_a_summary_is_a_median_and_the_range_of_the_middle_half() -> None:
    assert Summary.of([1.0, 5.0, 2.0, 100.0, 3.0]) == Summary(3.0, 3.0)
    assert Summary.of([4.0]) == Summary(4.0, 0.0)


def test_time_between_calls_counts_the_wait_once_a_round() -> None:
    events: list[str] = []
    samples = wall_time.between_calls(
        lambda: events.append("call"), lambda: events.append("wait"), calls=4, rounds=2
    )
    assert len(samples) == 2
    assert events == (["call"] * 4 + ["wait"]) * 2


def test_time_to_a_result_waits_for_every_call() -> None:
    events: list[str] = []
    samples = wall_time.to_result(
        lambda: events.append("call"), lambda: events.append("wait"), Budget.exactly(2), warm_up=3
    )
    assert len(samples) == 2
    assert events == ["call"] * 3 + ["wait"] + ["call", "wait"] * 2


def test_the_first_call_on_a_cpu_warms_up_and_each_is_prepared() -> None:
    events: list[str] = []
    durations = itertools.chain([0.2], itertools.repeat(0.0))

    def call() -> None:
        events.append("call")
        time.sleep(next(durations))

    samples = device_time.on_cpu(
        call, lambda: events.append("prepare"), budget=Budget.exactly(3), cold=True
    )
    assert len(samples) == 3
    assert max(samples) < 0.2
    assert events == ["prepare", "call"] * 4


def test_a_long_call_on_a_cpu_is_made_once() -> None:
    calls: list[None] = []

    def call() -> None:
        calls.append(None)
        time.sleep(0.05)

    (seconds,) = device_time.on_cpu(call, budget=Budget(3, 5, 60, patience=0.01))
    assert seconds >= 0.05
    assert len(calls) == 1


def test_the_benchmark_shows_microseconds() -> None:
    times = call_times.on_cpu(lambda: time.sleep(0.02))
    assert 20_000 <= times.device < 200_000
    assert times.wall == times.device
    assert times.spread >= 0


def test_loaded_libraries_are_found_by_the_beginning_of_their_name() -> None:
    assert tvm.cpu().exist
    found = loaded_libraries("libtvm")
    assert found
    assert all(Path(path).is_file() for path in found)
    assert all(Path(path).name.startswith("libtvm") for path in found)
    assert loaded_libraries("tvm") == []


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.each_device
def test_every_call_on_a_device_is_prepared(
    device: str, cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(device_time.FLUSH_BYTES, "cuda", 1 << 20)
    on, budget = device_of(device), Budget.exactly(2)
    source, target = (tvm.runtime.empty((1 << 16,), "uint8", on) for _ in range(2))
    events: list[str] = []

    def prepare() -> None:
        events.append("prepare")

    def call() -> None:
        events.append("call")
        source.copyto(target)

    if device == "cuda":
        flush = device_time.gpu_flush(on, cold)
        samples = device_time.on_gpu(call, flush, on.sync, prepare, cold, budget)
    else:
        samples = device_time.on_cpu(call, prepare, cold, budget)
    assert len(samples) == 2
    assert all(0 < seconds < 1 for seconds in samples)
    # One warms up; where a GPU's caches shall be warm, one in front of each that counts as well.
    assert events == ["prepare", "call"] * (5 if device == "cuda" and not cold else 3)
