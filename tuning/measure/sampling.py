"""The one loop that repeats a measurement, and what is made of its samples."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_SHORTEST = 1e-9


@dataclass(frozen=True)
class Budget:
    """How many samples are enough.

    Attributes
    ----------
    fewest, most : int
        At least and at most so many samples.
    seconds : float
        After so long no more samples than ``fewest`` are taken.
    patience : float
        A first sample of more seconds than this stays the only one.
    """

    fewest: int
    most: int
    seconds: float
    patience: float = math.inf

    @staticmethod
    def exactly(count: int) -> Budget:
        """So many samples, however long they take."""
        return Budget(count, count, math.inf)


@dataclass(frozen=True)
class Summary:
    """The median of samples, and the range between their first and third quartile."""

    median: float
    spread: float

    @staticmethod
    def of(samples: Sequence[float]) -> Summary:
        """Of one sample or more, in their unit."""
        low, middle, high = np.percentile(samples, [25, 50, 75])
        return Summary(float(middle), float(high - low))


def sample(measure: Callable[[], float], budget: Budget) -> list[float]:
    """Repeat a measurement that returns seconds, as often as the budget allows."""
    samples: list[float] = []
    begin = time.perf_counter()
    while True:
        samples.append(max(measure(), _SHORTEST))
        if len(samples) == budget.most or samples[0] > budget.patience:
            return samples
        if len(samples) >= budget.fewest and time.perf_counter() - begin >= budget.seconds:
            return samples


def seconds_of(call: Callable[[], object]) -> float:
    """How long the host is in a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
