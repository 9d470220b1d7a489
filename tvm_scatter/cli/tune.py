"""``tvm-scatter tune``: measure the scatters of a model and keep the records."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tvm_scatter.errors import ScatterError
from tvm_scatter.targets import need_device, parse_target

from .model import load
from .progress import progress

if TYPE_CHECKING:
    from tvm_scatter.tuning.results import Result
    from tvm_scatter.tuning.session import Tracker
    from tvm_scatter.tuning.tasks import Task


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the command's own arguments."""
    command.add_argument("model", metavar="MODEL.pt2", nargs="?", help="its scatters are tuned")
    command.add_argument("--grid", metavar="NAME", help="instead of a model: shipped or held-out")
    command.add_argument("--work-dir", metavar="DIR", required=True, help="where records are kept")
    command.add_argument("--trials", type=int, default=64, help="candidates for each scatter")
    command.add_argument(
        "--seconds", type=float, metavar="S", help="begin no round after S seconds"
    )
    command.add_argument("--resume", action="store_true", help="go on with the records in DIR")
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
    """Tune, showing what is being done, and print what came of it."""
    from tvm_scatter.tuning.plots import plot_tasks
    from tvm_scatter.tuning.tune import DISTRIBUTIONS, Settings, tune

    target = parse_target(arguments.target)
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
    )
    with progress() as shown:
        tasks = _tasks(arguments, target, shown.step)
        seen: dict[Task, Result] = {}

        def listener(result: Result) -> None:
            seen[result.task] = result
            shown.step(_line(result, len(seen), len(tasks)))

        results = tune(
            tasks, target, Path(arguments.work_dir), settings, arguments.resume, listener
        )
    Console(highlight=False, markup=False).print(table(results))
    if arguments.plot:
        print(f"{len(plot_tasks(results, Path(arguments.plot)))} pictures in {arguments.plot}")
    return 0 if any(result.ranked for result in results) else 1


def _tasks(arguments: argparse.Namespace, target: object, step: object) -> list[Task]:
    from tvm_scatter.tuning.grid import grid
    from tvm_scatter.tuning.tasks import extract_tasks

    if (arguments.model is None) == (arguments.grid is None):
        raise ScatterError("name a model, or a grid with --grid.")
    if arguments.grid is not None:
        return grid(arguments.grid)
    step(f"importing {arguments.model}")  # type: ignore[operator]
    ranges = dict(_range(text) for text in arguments.range)
    tasks = extract_tasks(load(arguments.model), target, ranges)
    if not tasks:
        raise ScatterError(f"{arguments.model}: there is no scatter to tune.")
    return tasks


def _range(text: str) -> tuple[str, tuple[int, int]]:
    found = re.fullmatch(r"(.+)=(\d+):(\d+)", text)
    if found is None:
        raise ScatterError(f"--range {text!r} must be of the form n=16:4096.")
    return found[1], (int(found[2]), int(found[3]))


def _tracker(arguments: argparse.Namespace) -> Tracker | None:
    from tvm_scatter.tuning.session import Tracker

    if arguments.tracker is None:
        return None
    host, _, port = arguments.tracker.rpartition(":")
    if not host or not port.isdigit():
        raise ScatterError(f"--tracker {arguments.tracker!r} must be of the form HOST:PORT.")
    if not arguments.key:
        raise ScatterError("--tracker needs --key, the key of the servers to use.")
    return Tracker(host, int(port), arguments.key)


def _line(result: Result, number: int, of: int) -> str:
    best = "nothing yet"
    if result.best is not None:
        best = f"{result.best.microseconds:.1f} us {result.best.implementation}"
        best += f", {result.gain:.2f}x the default"
    tried = f"{len(result.ranked)} of {result.space} candidates"
    return f"task {number} of {of}: {result.task}: {tried}, best {best}"


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
