"""Checking and timing one candidate: what runs in a worker process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.backend import backend_for
from tvm_scatter.tuning.operands.inputs import Inputs, index_sizes, update_size
from tvm_scatter.tuning.space.candidates import Built

from . import device_time
from .answer import TASKS
from .tracker import Tracker


@dataclass(frozen=True)
class Trial:
    """One candidate to be measured.

    Attributes
    ----------
    library : str
        Path of a library of :func:`~tvm_scatter.tuning.measure.build.compile_library`.
    inputs : str
        Path of a file of :meth:`~tvm_scatter.tuning.operands.inputs.Inputs.save`.
    kind : str
        The kind of target: ``llvm`` or ``cuda``.
    cold : bool
        Whether caches shall hold nothing of the operands.
    tracker : Tracker or None
        ``None`` for this machine's own device.
    """

    problem: ScatterProblem
    built: Built
    library: str
    inputs: str
    kind: str
    cold: bool
    tracker: Tracker | None = None


class WrongAnswer(Exception):
    """A candidate's result differs from the reference."""


def run_trial(trial: Trial) -> list[float]:
    """Check a candidate's answer and time it.

    Returns
    -------
    seconds : list of float
        Of single calls.

    Raises
    ------
    WrongAnswer
        If the result is not the reference's, before or after the timed calls.
    """
    opened = _open(trial)
    data, indices, updates, out = opened.operands
    function = opened.library[trial.built.function]
    arguments = [*indices, updates]
    arguments = [out, *arguments] if trial.problem.in_place else [data, *arguments, out]
    if trial.built.workspace_bytes is not None:
        arguments.append(opened.empty(trial.built.workspace_bytes, "uint8"))
    call = partial(function, *arguments)

    opened.poison()
    opened.restore()
    call()
    opened.check(out)
    flush_bytes = device_time.FLUSH_BYTES[trial.kind] if trial.cold else 0
    if trial.tracker is not None:
        return device_time.behind_rpc(
            opened.library,
            trial.built.function,
            arguments,
            opened.device,
            opened.restore,
            flush_bytes,
        )
    if backend_for(trial.kind).is_gpu:
        flush = device_time.gpu_flush(opened.device, trial.cold)
        seconds = device_time.on_gpu(call, flush, opened.device.sync, opened.restore, trial.cold)
    else:
        seconds = device_time.on_cpu(call, opened.restore, trial.cold)
    opened.check(out)
    return seconds


class _Opened:
    """The operands of a problem on a device, and a library that knows how to check them."""

    def __init__(self, trial: Trial, library: Any, device: Any) -> None:
        self.trial = trial
        self.library, self.device = library, device
        problem, sizes = trial.problem, Sizes.of(trial.problem)
        inputs = Inputs.load(Path(trial.inputs), problem.data_dtype)
        dtype, size = problem.data_dtype, int(sizes.data_size)
        self._expected = self.upload(inputs.expected)
        self._poison = self.upload(inputs.poison)
        self._allowed = self.upload(inputs.allowed)
        self._counts = self.empty(TASKS, "int32")
        data = self.empty(size, dtype)
        library["widen_data"](self.upload(inputs.data), data)
        updates = self.empty(update_size(problem), dtype)
        library["widen_updates"](self.upload(inputs.updates), updates)
        indices = [self.upload(index) for index in inputs.indices]
        assert [index.shape[0] for index in indices] == index_sizes(problem)
        self.operands = (data, indices, updates, self.empty(size, dtype))
        self.device.sync()

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        return tvm.runtime.tensor(array, device=self.device)

    def empty(self, size: int, dtype: str) -> Any:
        return tvm.runtime.empty((size,), dtype, self.device)

    def poison(self) -> None:
        """Leave nothing of an earlier candidate's answer."""
        self.library["widen_data"](self._poison, self.operands[3])

    def restore(self) -> None:
        """Give a candidate that works in place the data it starts from."""
        if self.trial.problem.in_place:
            self.operands[0].copyto(self.operands[3])

    def check(self, out: Any) -> None:
        """Compare a result with the reference."""
        self.library["differences"](out, self._expected, self._allowed, self._counts)
        wrong = int(self._counts.numpy().sum())
        if wrong:
            size = self.operands[3].shape[0]
            raise WrongAnswer(f"its answer is wrong in {wrong} of {size} elements")


#: What was loaded last, the newest last: a round measures a library on a few sets of operands.
_libraries: dict[Any, tuple[Any, Any]] = {}
_operands: dict[Any, _Opened] = {}
_MOST_LIBRARIES = 2
_MOST_OPERANDS = 4
_MOST_ELEMENTS = 1 << 27
#: A tracker, the connection to one of its servers, and when that was made.
_session: tuple[Tracker, Any, float] | None = None
_SESSION_SECONDS = 60.0
_uploads = count()


def _open(trial: Trial) -> _Opened:
    """The trial's operands and library, those of earlier trials where they are the same."""
    which = (trial.library, trial.tracker)
    if which not in _libraries:
        _keep_newest(_libraries, _MOST_LIBRARIES - 1)
        _libraries[which] = _load(trial)
    library, device = _libraries[which]
    # Behind RPC operands go with the library that they were uploaded for: both live in a session.
    operands = (trial.inputs, trial.tracker and which)
    if operands not in _operands:
        large = trial.problem.elements > _MOST_ELEMENTS // _MOST_OPERANDS
        _keep_newest(_operands, 0 if large else _MOST_OPERANDS - 1)
        _operands[operands] = _Opened(trial, library, device)
    opened = _operands[operands]
    opened.library = library
    return opened


def forget() -> None:
    """Free the operands and libraries of earlier trials."""
    _operands.clear()
    _libraries.clear()


def _keep_newest(kept: dict[Any, Any], count: int) -> None:
    for oldest in list(kept)[: max(len(kept) - count, 0)]:
        del kept[oldest]


def _load(trial: Trial) -> tuple[Any, Any]:
    """The library and its device, here or behind an RPC connection."""
    device_of: Callable[[str, int], Any]
    if trial.tracker is None:
        library, device_of = tvm.runtime.load_module(trial.library), tvm.device
    else:
        session = _remote(trial.tracker)
        # What is loaded already must not be overwritten: every round calls its library the same.
        name = f"{next(_uploads)}_{Path(trial.library).name}"
        session.upload(trial.library, name)
        library, device_of = session.load_module(name), session.device
    return library, device_of(backend_for(trial.kind).device, 0)


def _remote(tracker: Tracker) -> Any:
    """A session on a server, kept for a while: starting one takes longer than measuring a library.

    Not for long: others may wait for the server.
    """
    global _session
    if _session is not None and (
        _session[0] != tracker or time.monotonic() - _session[2] > _SESSION_SECONDS
    ):
        _libraries.clear()
        _operands.clear()
        _session = None
    if _session is None:
        session = tracker.connect().request(tracker.key, session_timeout=tracker.session_seconds)
        _session = (tracker, session, time.monotonic())
    else:
        # Whoever stops a tracker wants its runs to end, not to go on until a session does.
        tracker.need()
    return _session[1]
