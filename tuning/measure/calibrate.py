"""Measures the rates of this machine's device, which costs go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.calibration import Probe
from tvm_scatter.selection.cost import coefficients
from tvm_scatter.selection.machine import Machine
from tvm_scatter.selection.targets import need_device
from tvm_scatter.selection.work import Work
from tvm_scatter.tuning.space.candidates import Candidate, need_strategy

from .here import times_here

#: A rate is looked for between the assumed one divided by this, and multiplied.
_MOST = 30.0
#: Clocks of processors differ less. What a busy machine takes for one must not be kept.
_MOST_OF = {"clock": 3.0}
_HALVINGS = 40
_ROUNDS = 5

Listener = Callable[[str], None]


def calibrate(target: Target, listener: Listener = lambda _: None) -> tuple[Machine, Machine]:
    """What is assumed of this machine's device, and what was measured of it.

    Raises
    ------
    ScatterError
        If the target has no device here, or nothing measures its kind.
    """
    calibration = backend_of(target).calibration
    if calibration is None:
        raise ScatterError(f"calibrate: nothing measures the rates of {target.kind.name}.")
    need_device(target)
    if not backend_of(target).device_name(target):
        raise ScatterError(f"calibrate: this machine's device is another than {target}.")
    assumed = calibration.device(target)
    times: dict[Probe, float] = {}
    for probe in calibration.probes(assumed):
        listener(f"measuring {probe.rate}: {probe.problem}")
        times[probe] = _microseconds(probe, target)
    return assumed, replace(explained(assumed, times, target), measured=True)


def explained(assumed: Machine, times: Mapping[Probe, float], target: Target) -> Machine:
    """The machine on which probes are predicted to take what they took, in microseconds.

    A rate that would have to be far from the assumed one stays as it is assumed.
    """
    machine = assumed
    # Each probe is about one rate, but the others take a part of its time.
    for _ in range(_ROUNDS):
        for probe, microseconds in times.items():
            machine = _solved(machine, assumed, probe, microseconds, target)
    return machine


def _microseconds(probe: Probe, target: Target) -> float:
    implementation = need_strategy(target).implementations[probe.implementation]
    config = implementation.config(probe.problem, target)
    candidate = Candidate.of(probe.implementation, config)
    times = times_here(probe.problem, target, [candidate], ["uniform"])
    return 1e6 * median(times[candidate]["uniform"])


def _solved(
    machine: Machine, assumed: Machine, probe: Probe, microseconds: float, target: Target
) -> Machine:
    implementation = need_strategy(target).implementations[probe.implementation]
    config = implementation.config(probe.problem, target)
    factors = coefficients(target.kind.name).get(probe.implementation, {})

    def with_rate(value: float) -> Machine:
        rates: dict[str, Any] = {probe.rate: value}
        return replace(machine, **rates)

    def predicted(rate: float) -> float:
        work = Work.of(probe.problem, with_rate(rate), "even")
        terms = implementation.cost(work, config) or {}
        return float(sum(value * factors.get(name, 1.0) for name, value in terms.items()))

    rate = getattr(assumed, probe.rate)
    most = _MOST_OF.get(probe.rate, _MOST)
    short, long = sorted((rate / most, rate * most), key=predicted)
    if not predicted(short) < microseconds < predicted(long):
        return with_rate(rate)
    for _ in range(_HALVINGS):
        middle = (short * long) ** 0.5
        if predicted(middle) < microseconds:
            short = middle
        else:
            long = middle
    return with_rate(float(f"{long:.4g}"))
