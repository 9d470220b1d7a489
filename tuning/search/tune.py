"""Tuning: from tasks to records, in rounds of build and measurement."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.records import Decision, typical
from tvm_scatter.tasks import Task
from tvm_scatter.tuning.measure import machine
from tvm_scatter.tuning.measure.build import Failure, build
from tvm_scatter.tuning.measure.runner import Measured, Runner
from tvm_scatter.tuning.measure.tracker import Tracker, count_servers
from tvm_scatter.tuning.measure.workers import WorkerError, Workers
from tvm_scatter.tuning.operands.inputs import Circumstance, make_inputs
from tvm_scatter.tuning.space.candidates import Candidate, candidates, need_strategy
from tvm_scatter.tuning.store.database import Database, open_database
from tvm_scatter.tuning.store.results import Result, default_candidates

from . import agenda
from .cost_model import CostModel
from .features import features
from .search import next_round

#: Indices that repeat a little and indices that repeat a lot: a choice should stand both.
DISTRIBUTIONS = ("uniform", "zipf(1.2)")
_ROUND = 32
_MOST_BUILDERS = 16


@dataclass(frozen=True)
class Settings:
    """How to tune.

    Parameters
    ----------
    trials : int
        Candidates to measure for each task, those of an earlier run included.
    seconds : float, optional
        After so long nothing more is measured, if anything has been tried.
    distributions : tuple of str
        Where indices come from: keys of
        :data:`~tvm_scatter.tuning.operands.distributions.DISTRIBUTIONS` or ``.npy`` files. A
        candidate is measured on all of them. Problems whose destinations are unique get
        permutations instead.
    seed : int
        Of indices, values and search.
    cold : bool, optional
        Whether caches shall hold nothing of the operands; by default yes on a GPU and no on a CPU.
    timeout : float
        Seconds that one candidate may take, the upload of its operands included.
    tracker : Tracker, optional
        Measure on the servers of an RPC tracker instead of this machine's device.
    imports : tuple of str
        Modules that add implementations; the worker processes import them too.
    builders : int, optional
        Processes that compile; by default one for each core on a GPU's machine, one on a CPU.
    implementations : tuple of str
        Where a task has records already, measure only a few candidates of these. This completes a
        log that is older than an implementation.
    rivals : tuple of str
        Begin with tasks without records and those in which one of these is near the best.
    """

    trials: int = 64
    seconds: float | None = None
    distributions: tuple[str, ...] = DISTRIBUTIONS
    seed: int = 0
    cold: bool | None = None
    timeout: float = 30.0
    tracker: Tracker | None = None
    imports: tuple[str, ...] = ()
    builders: int | None = None
    implementations: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()


Listener = Callable[[Result], None]


def tune(
    tasks: Sequence[Task],
    target: Target,
    folder: Path,
    settings: Settings = Settings(),
    resume: bool = False,
    listener: Listener = lambda _: None,
) -> list[Result]:
    """Measure candidates of every task and write the records to a directory.

    Parameters
    ----------
    folder : Path
        A directory for the database; see :mod:`tvm_scatter.tuning.store.database`.
    resume : bool
        Whether to go on where an earlier run in the directory stopped.
    listener : callable
        Called after every round with the result so far of its task.

    Returns
    -------
    results : list of Result
        One for each task.

    Raises
    ------
    ScatterError
        If there is nothing to do, the directory cannot be used, or the tracker is gone.
    """
    if not tasks:
        raise ScatterError("tuning: there is no scatter to tune.")
    if settings.trials < 1:
        raise ScatterError(f"tuning: {settings.trials} trials measure nothing; ask for at least 1.")
    if not 0 < settings.timeout < math.inf:
        raise ScatterError(
            f"tuning: no candidate is done in {settings.timeout:g} s; the timeout must be positive "
            "and finite."
        )
    if settings.seconds is not None and math.isnan(settings.seconds):
        raise ScatterError("tuning: nan is no number of seconds to measure for.")
    if settings.seconds is not None and settings.seconds < 0:
        raise ScatterError(f"tuning: {settings.seconds:g} s are over; seconds must be at least 0.")
    if settings.seed < 0:
        raise ScatterError(f"tuning: the seed {settings.seed} must be at least 0.")
    if settings.builders is not None and settings.builders < 1:
        raise ScatterError(f"tuning: {settings.builders} builders compile nothing; ask for 1.")
    names = need_strategy(target).implementations
    agenda.need_names((*settings.implementations, *settings.rivals), names)
    servers = 1 if settings.tracker is None else count_servers(settings.tracker)
    with ExitStack() as stack:
        database = stack.enter_context(open_database(folder, target))
        if len(database) and not resume:
            raise ScatterError(
                f"tuning: {str(folder)!r} holds {len(database)} records; resume that run or name "
                "another directory."
            )
        on_gpu = backend_of(target).is_gpu
        builders = settings.builders or (min(os.cpu_count() or 1, _MOST_BUILDERS) if on_gpu else 1)
        measurers = stack.enter_context(Workers(servers, settings.imports))
        # A CPU that compiles is none to measure on: there one process does both, in turn.
        overlaps = on_gpu or settings.tracker is not None
        compilers = measurers
        if overlaps:
            compilers = stack.enter_context(Workers(builders, settings.imports))
        run = _Run(
            target=target,
            settings=settings,
            database=database,
            runner=Runner(
                workers=measurers,
                kind=target.kind.name,
                cold=on_gpu if settings.cold is None else settings.cold,
                timeout=settings.timeout,
                tracker=settings.tracker,
            ),
            builders=compilers,
            listener=listener,
        )
        run.learn()
        database.add_run(run.description())
        overlap = max(builders, servers) if overlaps else 1
        return run.all(tasks, min(overlap, len(tasks)))


@dataclass
class _Run:
    target: Target
    settings: Settings
    database: Database
    runner: Runner
    builders: Workers
    listener: Listener
    model: CostModel = field(default_factory=CostModel)
    known: dict[ScatterProblem, list[tuple[Decision, float]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)
    #: Whether a candidate was measured or failed.
    tried: bool = False
    #: How many libraries a round is built in: as many as workers would be idle otherwise.
    parts: int = 1

    def description(self) -> dict[str, object]:
        """The entry of this run in the metadata."""
        here = machine.describe(self.target.kind.name)
        return {
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "machine": here if self.settings.tracker is None else {"behind": "an RPC tracker"},
            "trials": self.settings.trials,
            "distributions": [_short(name) for name in self.settings.distributions],
            "seed": self.settings.seed,
            "cache": self.cache,
        }

    @property
    def cache(self) -> str:
        return "cold" if self.runner.cold else "warm"

    def learn(self) -> None:
        """Learn from the records that the directory holds already."""
        for problem, decision, seconds in self.database.records():
            self._note(problem, problem, decision, seconds)

    def _note(
        self,
        problem: ScatterProblem,
        measured: ScatterProblem,
        decision: Decision,
        seconds: Sequence[float],
    ) -> None:
        """Remember a time for a problem, measured on a static problem that stands for it."""
        self.known.setdefault(problem, []).append((decision, typical(seconds)))
        distribution = decision.circumstances.get("distribution", "uniform")
        if measured.is_static and not _is_recorded(distribution):
            candidate = Candidate.of(decision.implementation, decision.config)
            row = features(measured, candidate, distribution, self.target)
            self.model.add(row, typical(seconds))

    def all(self, tasks: Sequence[Task], overlap: int) -> list[Result]:
        self.parts = max(1, len(self.builders) // overlap)
        with ThreadPoolExecutor(overlap) as threads, self._build_threads() as builds:
            order = agenda.in_order(tasks, self.known, self.settings.rivals)
            futures = {place: threads.submit(self.one, tasks[place], builds) for place in order}
            try:
                # The first failure ends the run, whichever task it is of.
                for future in wait(futures.values(), return_when=FIRST_EXCEPTION).done:
                    future.result()
                return [futures[place].result() for place in range(len(tasks))]
            except BaseException:
                self.stopped.set()
                for pool in (threads, builds):
                    pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _build_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(len(self.builders))

    def out_of_time(self) -> bool:
        limit = self.settings.seconds
        return limit is not None and time.monotonic() - self.began > limit

    def ends(self) -> bool:
        """Whether nothing more shall be measured."""
        return self.stopped.is_set() or (self.out_of_time() and self.tried)

    def one(self, task: Task, executor: ThreadPoolExecutor) -> Result:
        """Tune a task, in rounds, until its trials, its space or the time are used up."""
        problem, target = task.problem, self.target
        space = list(candidates(problem, target))
        if self.settings.implementations and self._done(problem):
            named, seed = self.settings.implementations, self.settings.seed
            space = agenda.late(problem, space, named, seed)
        defaults = default_candidates(task, target)
        space.sort(key=lambda candidate: candidate not in defaults)
        result = Result(task, len(space))
        with tempfile.TemporaryDirectory(prefix="tvm-scatter-") as folder:
            inputs: dict[tuple[str, str], Future[str]] = {}
            while not self.ends():
                done = self._done(problem) | {failure.candidate for failure in result.failed}
                done.intersection_update(space)
                left = self.settings.trials - len(done)
                if left <= 0:
                    break
                with self.lock:
                    batch = next_round(
                        list(task.representatives().values())[-1],
                        target,
                        space,
                        done,
                        self.model,
                        self.settings.distributions[0],
                        min(left, _ROUND),
                        self.settings.seed,
                    )
                if not batch:
                    break
                self._round(task, batch, executor, Path(folder), inputs, result)
                result.tried = len(done) + len(batch)
                self._summarise(result, defaults)
                self.listener(result)
        self._summarise(result, defaults)
        self.listener(result)
        return result

    def _done(self, problem: ScatterProblem) -> set[Candidate]:
        with self.lock:
            records = list(self.known.get(problem, ()))
        return {Candidate.of(decision.implementation, decision.config) for decision, _ in records}

    def _round(
        self,
        task: Task,
        batch: Sequence[Candidate],
        executor: ThreadPoolExecutor,
        folder: Path,
        inputs: dict[tuple[str, str], Future[str]],
        result: Result,
    ) -> None:
        """Build and measure candidates on every representative and every distribution."""
        bad: set[Candidate] = set()
        for number, (sizes, problem) in enumerate(task.representatives().items()):
            good = [c for c in batch if c not in bad and self._takes(c, problem)]
            here = Path(tempfile.mkdtemp(dir=folder))
            circumstances = self._circumstances(problem)
            for i, circumstance in enumerate(circumstances):
                key = (sizes, circumstance.distribution)
                if key not in inputs:
                    path = folder / f"inputs_{number}_{i}.npz"
                    # Made while the candidates are being built.
                    inputs[key] = executor.submit(self._write_inputs, problem, circumstance, path)
            for built in build(
                self.builders, executor, problem, self.target, good, here, self.parts
            ):
                if isinstance(built, Failure):
                    self._fail(task, built, bad, result)
                    continue
                for circumstance in circumstances:
                    operands = inputs[sizes, circumstance.distribution].result()
                    for outcome in self.runner.measure(problem, built, operands, self.ends):
                        if self.stopped.is_set():
                            return
                        if isinstance(outcome, Failure):
                            self._fail(task, outcome, bad, result)
                        else:
                            self._keep(task, problem, sizes, circumstance, outcome)
                built_path = Path(built.path)
                built_path.unlink(missing_ok=True)

    def _takes(self, candidate: Candidate, problem: ScatterProblem) -> bool:
        return need_strategy(self.target).branch(candidate.way, problem, self.target) is not None

    def _circumstances(self, problem: ScatterProblem) -> list[Circumstance]:
        names: Iterable[str] = self.settings.distributions
        if problem.unique:
            recorded = [name for name in names if _is_recorded(name)]
            names = recorded or ["permutation"]
        return [Circumstance(name, self.settings.seed) for name in dict.fromkeys(names)]

    def _write_inputs(self, problem: ScatterProblem, circumstance: Circumstance, path: Path) -> str:
        with self.builders.lent() as worker:
            try:
                worker.call(write_inputs, problem, circumstance, str(path), timeout=300)
            except WorkerError as error:
                raise ScatterError(f"tuning: no operands for [{problem}]: {error}") from error
        return str(path)

    def _keep(
        self,
        task: Task,
        problem: ScatterProblem,
        sizes: str,
        circumstance: Circumstance,
        measured: Measured,
    ) -> None:
        told = {
            "distribution": _short(circumstance.distribution),
            "seed": str(circumstance.seed),
            "cache": self.cache,
        }
        if sizes:
            told["sizes"] = sizes
        candidate, seconds = measured.candidate, list(measured.seconds)
        decision = Decision(candidate.implementation, dict(candidate.config), told)
        with self.lock:
            self.tried = True
            self.database.add(task.problem, self.target, candidate, told, seconds)
            self._note(task.problem, problem, decision, seconds)

    def _fail(self, task: Task, failure: Failure, bad: set[Candidate], result: Result) -> None:
        if failure.candidate in bad or self.stopped.is_set():
            return
        bad.add(failure.candidate)
        result.failed.append(failure)
        with self.lock:
            self.tried = True
            self.database.add_failure(task.problem, failure.candidate, failure.reason)

    def _summarise(self, result: Result, defaults: set[Candidate]) -> None:
        with self.lock:
            known = list(self.known.get(result.task.problem, ()))
        result.take(known, defaults)


def write_inputs(problem: ScatterProblem, circumstance: Circumstance, path: str) -> None:
    """Make the operands of a problem and write them to a file."""
    make_inputs(replace(problem, bounds="drop"), circumstance).save(Path(path))


def _short(distribution: str) -> str:
    """A distribution's name for records: of a file, its name without its folder."""
    return Path(distribution).name if _is_recorded(distribution) else distribution


def _is_recorded(distribution: str) -> bool:
    """Whether a distribution is a file of the user's own indices."""
    return distribution.endswith(".npy")
