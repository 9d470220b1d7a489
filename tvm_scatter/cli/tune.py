"""``tvm-scatter tune``: measures implementations for the scatters of a model, and keeps records."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.targets import need_device, parse_target

from .model import load
from .progress import progress

if TYPE_CHECKING:
    from tvm.target import Target

    from tvm_scatter.problem.scatter_problem import ScatterProblem
    from tvm_scatter.tasks import Task
    from tvm_scatter.tuning.measure.tracker import Tracker
    from tvm_scatter.tuning.search.tune import Settings
    from tvm_scatter.tuning.store.results import Result


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of this command."""
    command.add_argument("model", metavar="MODEL.pt2", nargs="?", help="its scatters are tuned")
    command.add_argument(
        "--grid",
        metavar="NAME",
        help="instead of a model: shipped, held-out, random:SEED[:PERCENT], wide:SEED, or "
        "recorded: what DIR has records of",
    )
    command.add_argument(
        "--problem", metavar="PATTERN", default="*",
        help="only scatters whose text, as it is printed, has such a part; * is any text",
    )  # fmt: skip
    command.add_argument("--work-dir", metavar="DIR", required=True, help="where records are kept")
    command.add_argument("--trials", type=int, default=64, help="candidates for each scatter")
    command.add_argument(
        "--seconds", type=float, metavar="S", help="measure nothing more after S seconds"
    )
    command.add_argument("--resume", action="store_true", help="go on with the records in DIR")
    command.add_argument(
        "--implementation", action="append", default=[], metavar="NAME",
        help="of scatters that have records, measure a few of this one only; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--rival", action="append", default=[], metavar="NAME",
        help="begin where this one is near the best, or nothing is known; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--builders", type=int, metavar="N", help="processes that compile (default: by cores)"
    )
    command.add_argument(
        "--distribution", action="append", metavar="NAME", help="where indices come from"
    )
    command.add_argument("--indices", metavar="FILE.npy", help="recorded indices")
    command.add_argument(
        "--range", action="append", default=[], metavar="n=LOW:HIGH", help="of a symbolic size"
    )
    command.add_argument("--cache", choices=("cold", "warm"), help="what caches hold")
    command.add_argument("--seed", type=int, default=0, help="of indices and search")
    command.add_argument("--timeout", type=float, default=30.0, help="seconds for a candidate")
    command.add_argument(
        "--tracker", metavar="HOST:PORT", help="measure on an RPC tracker's servers"
    )
    command.add_argument("--key", help="of the servers")
    command.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="MODULE",
        help="a module that adds implementations",
    )  # fmt: skip
    command.add_argument("--plot", metavar="DIR", help="draw a picture for each scatter")


def run(arguments: argparse.Namespace) -> int:
    """Tune with progress on standard error, and print the results."""
    from tvm_scatter.tuning.bench.plots import plot_tasks
    from tvm_scatter.tuning.search.tune import DISTRIBUTIONS, Settings, tune
    from tvm_scatter.tuning.store.database import FAILURES

    target = parse_target(arguments.target)
    _import(arguments.imports)
    tracker = _tracker(arguments)
    if tracker is None:
        need_device(target)
    recorded = [arguments.indices] if arguments.indices else []
    settings = Settings(
        trials=arguments.trials,
        seconds=arguments.seconds,
        distributions=tuple((arguments.distribution or []) + recorded) or DISTRIBUTIONS,
        seed=arguments.seed,
        cold=None if arguments.cache is None else arguments.cache == "cold",
        timeout=arguments.timeout,
        tracker=tracker,
        imports=tuple(arguments.imports),
        builders=arguments.builders,
        implementations=tuple(arguments.implementation),
        rivals=tuple(arguments.rival),
    )
    with progress() as shown:
        tasks = _named(_tasks(arguments, target, shown.step), arguments.problem)
        listener = _Listener(shown.step, len(tasks), settings)
        results = tune(
            tasks, target, Path(arguments.work_dir), settings, arguments.resume, listener
        )
    Console(highlight=False, markup=False).print(table(results))
    if arguments.plot:
        print(f"{len(plot_tasks(results, Path(arguments.plot)))} pictures in {arguments.plot}")
    if any(result.ranked for result in results):
        return 0
    reasons = [failure.reason for result in results for failure in result.failed]
    if reasons:
        sys.stderr.write(
            "tvm-scatter tune: no candidate could be measured, the first because "
            f"{reasons[0].rstrip('.')}; all reasons are in {Path(arguments.work_dir) / FAILURES}.\n"
        )
    return 1


class _Listener:
    """Shows the progress: task, trials, best so far, gain over the default, time left."""

    def __init__(self, step: Callable[[str], None], tasks: int, settings: Settings) -> None:
        self._step = step
        self._tasks = tasks
        self._settings = settings
        self._began = time.monotonic()
        self._seen: dict[ScatterProblem, Result] = {}

    def __call__(self, result: Result) -> None:
        self._seen[result.task.problem] = result
        best = "nothing yet"
        if result.best is not None:
            best = f"{result.best.microseconds:.1f} us by {result.best.implementation}"
            best += f", {result.gain:.2f}x the default"
        self._step(
            f"{len(self._seen)} of {self._tasks} tasks; {result.task}: "
            f"{result.tried} of {result.space} candidates, best {best}; "
            f"{self._seconds_left():.0f} s left"
        )

    def _seconds_left(self) -> float:
        """An upper bound: the rest of the time limit, or of the tasks at the pace so far."""
        elapsed = time.monotonic() - self._began
        tried = sum(result.tried for result in self._seen.values())
        planned = [min(result.space, self._settings.trials) for result in self._seen.values()]
        every = sum(planned) / len(planned) * self._tasks
        left = elapsed * max(every / max(tried, 1) - 1, 0)
        if self._settings.seconds is None:
            return left
        return max(min(left, self._settings.seconds - elapsed), 0)


def _tasks(
    arguments: argparse.Namespace, target: Target, step: Callable[[str], None]
) -> list[Task]:
    from tvm_scatter.tasks import extract_tasks
    from tvm_scatter.tuning.space.grid import grid
    from tvm_scatter.tuning.store.database import read_database
    from tvm_scatter.tuning.store.results import recorded_tasks

    if arguments.model is None and arguments.grid is None:
        raise ScatterError("name a model, or a grid with --grid.")
    if arguments.model is not None and arguments.grid is not None:
        raise ScatterError(f"{arguments.model} and --grid {arguments.grid}: name one of them.")
    if arguments.grid == "recorded":
        return recorded_tasks(read_database(Path(arguments.work_dir)), arguments.problem)
    if arguments.grid is not None:
        return grid(arguments.grid)
    step(f"importing {arguments.model}")
    ranges = dict(_range(text) for text in arguments.range)
    tasks = extract_tasks(load(arguments.model), target, ranges)
    if not tasks:
        raise ScatterError(f"{arguments.model}: there is no scatter to tune.")
    return tasks


def _named(tasks: list[Task], pattern: str) -> list[Task]:
    found = [task for task in tasks if task.is_named(pattern)]
    if not found:
        raise ScatterError(
            f"--problem {pattern!r}: no scatter is so named; a name is as 'add float32, data (1, "
            "1000, 64)'."
        )
    return found


def _range(text: str) -> tuple[str, tuple[int, int]]:
    found = re.fullmatch(r"(.+)=(\d{1,18}):(\d{1,18})", text)
    if found is None:
        raise ScatterError(f"--range {text!r} must be of the form n=16:4096.")
    return found[1], (int(found[2]), int(found[3]))


def _import(modules: Sequence[str]) -> None:
    """Import modules with further implementations, into this process as into its workers."""
    for module in modules:
        try:
            importlib.import_module(module)
        except (ImportError, ValueError, TypeError) as error:
            raise ScatterError(f"--import {module}: {error}.") from error


def _tracker(arguments: argparse.Namespace) -> Tracker | None:
    from tvm_scatter.tuning.measure.tracker import Tracker

    if arguments.tracker is None:
        return None
    host, _, port = arguments.tracker.rpartition(":")
    if not host or not re.fullmatch(r"\d{1,5}", port, re.ASCII):
        raise ScatterError(f"--tracker {arguments.tracker!r} must be of the form HOST:PORT.")
    if not arguments.key:
        raise ScatterError("--tracker needs --key, the key of the servers to use.")
    return Tracker(host, int(port), arguments.key)


def table(results: list[Result]) -> Table:
    """A row for each task, times in microseconds."""
    shown = Table()
    shown.add_column("scatter", overflow="fold")
    for heading in ("times", "tried", "left out", "default", "best", "gain"):
        shown.add_column(heading, justify="right")
    shown.add_column("by", overflow="fold")
    for result in results:
        best = result.best
        knobs = "" if best is None else " ".join(f"{k}={v}" for k, v in best.config.items())
        shown.add_row(
            str(result.task),
            str(result.task.weight),
            str(len(result.ranked)),
            str(len(result.failed)),
            "-" if result.default is None else f"{result.default:.1f}",
            "-" if best is None else f"{best.microseconds:.1f}",
            f"{result.gain:.2f}",
            "-" if best is None else f"{best.implementation} {knobs}".rstrip(),
        )
    return shown
