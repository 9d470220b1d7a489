"""Measuring candidates so that a bad one costs its own trial and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.tuning.space.candidates import Candidate

from .build import Failure, Library
from .tracker import Tracker, count_servers
from .trial import Trial, run_trial
from .workers import Worker, WorkerDied, WorkerError, Workers


@dataclass(frozen=True)
class Measured:
    """A candidate whose answer was right, and the seconds of its calls."""

    candidate: Candidate
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Runner:
    """Where and how candidates are measured.

    Attributes
    ----------
    workers : Workers
        One process for each device.
    kind : str
        The kind of target.
    cold : bool
        Whether caches shall hold nothing of the operands.
    timeout : float
        Seconds for one candidate, the upload of its operands included.
    tracker : Tracker or None
        ``None`` for this machine's own device.
    """

    workers: Workers
    kind: str
    cold: bool = True
    timeout: float = 30.0
    tracker: Tracker | None = None

    def measure(
        self,
        problem: ScatterProblem,
        library: Library,
        inputs: str,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[Measured | Failure]:
        """Measure the candidates of a library on one device, until told to stop.

        Raises
        ------
        ScatterError
            If the tracker or its servers are gone.
        """
        trials = [
            Trial(problem, built, library.path, inputs, self.kind, self.cold, self.tracker)
            for built in library.built
        ]
        with self.workers.lent() as worker:
            for trial in trials:
                if stopped():
                    return
                yield self._one(worker, trial)

    def _one(self, worker: Worker, trial: Trial) -> Measured | Failure:
        candidate = trial.built.candidate
        try:
            return Measured(candidate, tuple(worker.call(run_trial, trial, timeout=self.timeout)))
        except WorkerDied as error:
            self._check_tracker()
            return Failure(candidate, str(error))
        except WorkerError:
            # Whoever ran before may have damaged memory or device: once more, with both new.
            worker.stop()
        try:
            return Measured(candidate, tuple(worker.call(run_trial, trial, timeout=self.timeout)))
        except WorkerError as error:
            # Whoever comes next gets a new process if this one has left a damaged one behind.
            self._check_tracker()
            return Failure(candidate, str(error))

    def _check_tracker(self) -> None:
        if self.tracker is not None:
            count_servers(self.tracker)
