"""The record of a model of the demonstration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DemoModel:
    """A model with random weights and inputs.

    Attributes
    ----------
    name : str
        The name in the table.
    scatter : str
        The PyTorch operator through which it scatters.
    make : callable
        Returns the module and its example inputs for a size, ``"full"`` or ``"small"``.
    tolerance : float
        Largest error relative to the largest output that counts as right.
    """

    name: str
    scatter: str
    make: Callable[[str], tuple[Any, tuple[Any, ...]]]
    tolerance: float = 1e-4
