"""Calibration: what tells the rates of a machine, for one kind of target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem

from .machine import Machine


@dataclass(frozen=True)
class Probe:
    """A scatter whose time tells a rate.

    Attributes
    ----------
    rate : str
        A field of :class:`Machine`. It is the one at which the scatter costs what it takes.
    implementation : str
        What computes it, with default knobs.
    problem : ScatterProblem
        Static; most of its time goes into what the rate is for.
    """

    rate: str
    implementation: str
    problem: ScatterProblem


@dataclass(frozen=True)
class Calibration:
    """How a kind of target is measured.

    Attributes
    ----------
    device : callable
        Returns what this machine's device for a target says of itself; rates are assumed.
    probes : callable
        Returns what to time on such a machine, in order: later ones build on the rates of earlier
        ones.
    """

    device: Callable[[Target], Machine]
    probes: Callable[[Machine], Sequence[Probe]]
