"""``tvm-scatter bench --models``: times messages and whole models, and compares with peers."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.targets import gpu_target, host_target

from .bench_arguments import check, device_of, to_resume
from .model import import_torch
from .progress import progress

if TYPE_CHECKING:
    from tvm_scatter.tuning.bench.models.figures import Figures, Report
    from tvm_scatter.tuning.bench.models.rows import Row

#: The options that only this benchmark has, and those that only the other one has.
_OWN = ("rows", "seconds", "deterministic", "dynamic", "jobs")
_OTHERS = ("filter", "all", "stock", "jax")
#: Of output that is no terminal, whose width nobody knows.
_WIDTH = 120


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of this benchmark."""
    command.add_argument("--models", action="store_true", help="messages and layers, not scatters")
    command.add_argument(
        "--rows", metavar="PATTERN", help="with --models: rows that begin so; * is any text"
    )
    command.add_argument(
        "--seconds", type=float, metavar="S", help="with --models: begin no row after S seconds"
    )
    command.add_argument(
        "--deterministic", action="store_true", help="with --models: ours with equal bits as well"
    )
    command.add_argument(
        "--dynamic",
        action="store_true",
        help="with --models: sizes that differ between batches are known at run time only",
    )
    command.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="with --models, on a GPU: compile N rows at a time, and time one",
    )


def refuse(arguments: argparse.Namespace) -> None:
    """Raise if the benchmark of scatters is given what only this one knows.

    Raises
    ------
    ScatterError
        If so.
    """
    _refuse(arguments, _OWN, "needs --models")


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(arguments, name) not in (None, False):
            raise ScatterError(f"bench: --{name} {why}.")


def run(arguments: argparse.Namespace) -> int:
    """Time the rows, and print, save and plot the results; 1 if a form of ours failed."""
    _refuse(arguments, _OTHERS, "does not go with --models")
    import_torch()
    from tvm_scatter.tuning.bench import bench
    from tvm_scatter.tuning.bench.models import report
    from tvm_scatter.tuning.bench.models.figures import Report
    from tvm_scatter.tuning.bench.models.rows import SCALE, picked, rows
    from tvm_scatter.tuning.bench.reports import marks
    from tvm_scatter.tuning.bench.resumed import CONSTANT, VARYING

    device = device_of(arguments)
    scale = SCALE[device] if arguments.scale is None else arguments.scale
    check(scale, arguments)
    _check_jobs(arguments, device)
    every = rows(scale)
    wanted = picked(every, arguments.rows or "")
    if not wanted:
        names = ", ".join(dict.fromkeys(row.name.partition(", ")[0] for row in every))
        raise ScatterError(f"bench: no row is called {arguments.rows!r}; there are {names}.")
    sizes = VARYING if arguments.dynamic else CONSTANT
    facts = {**bench.machine(device), "scale": scale, "sizes": sizes}
    result = Report(facts, [])
    path = to_resume(arguments)
    if path is not None:
        before = Report.load(path)
        known = {figures.name for figures in before.rows}
        wanted = [row for row in wanted if row.name not in known]
        result = before.continued(facts) if wanted else before
    left = _measure(wanted, [row.name for row in every], result, arguments, facts)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(table(result))
    for sentence in (*report.summary(result), *marks(result.rows)):
        print(sentence)
    if left:
        print(f"{left} rows are left: --resume goes on with them.")
    if arguments.markdown:
        Path(arguments.markdown).write_text(report.markdown(result) + "\n", encoding="utf-8")
    if arguments.plot and result.rows:
        report.plot(result, Path(arguments.plot))
    return 1 if any(figures.wrong for figures in result.rows) else 0


def _check_jobs(arguments: argparse.Namespace, device: str) -> None:
    if arguments.jobs is None:
        return
    if arguments.jobs < 1:
        raise ScatterError(f"bench: --jobs {arguments.jobs} must be at least 1.")
    if device != "cuda":
        raise ScatterError(
            "bench: --jobs needs a GPU, because compiling would disturb what is timed on a CPU."
        )


def _measure(
    wanted: list[Row],
    order: list[str],
    result: Report,
    arguments: argparse.Namespace,
    facts: dict[str, Any],
) -> int:
    """Measure rows into a report, and save it after each; how many are left."""
    begin = time.monotonic()
    left = len(wanted)
    with progress() as shown:
        shown.step(f"{left} rows to be measured")
        for figures in _measured(wanted, arguments, facts):
            if isinstance(figures, ScatterError):
                shown.step(str(figures))
                continue
            left -= 1
            spent = time.monotonic() - begin
            shown.step(f"{len(wanted) - left} of {len(wanted)}, {spent:.0f} s: {figures.name}")
            for name, text in figures.wrong.items():
                shown.step(f"{figures.name}: {name}: {text}")
            result.rows.append(figures)
            result.rows.sort(key=lambda figures: order.index(figures.name))
            if arguments.json:
                result.save(Path(arguments.json))
    return left


def _measured(
    wanted: list[Row], arguments: argparse.Namespace, facts: dict[str, Any]
) -> Iterator[Figures | ScatterError]:
    """The figures of rows, until the time is over."""
    from tvm_scatter.tuning.bench.models import run, side_by_side
    from tvm_scatter.tuning.bench.models.ours import OPTIONS

    device = device_of(arguments)
    # On GPUs all of it is default.
    wanted_forms = {"default": True, "fused": device == "cpu"}
    wanted_forms["deterministic"] = arguments.deterministic
    forms = tuple(form for form in OPTIONS if wanted_forms[form])
    seconds = math.inf if arguments.seconds is None else arguments.seconds
    until = time.monotonic() + seconds
    bandwidth = facts["copy_bytes_per_us"]
    if arguments.jobs is not None:
        setting = side_by_side.Setting(
            facts["scale"], forms, arguments.compile, bandwidth, arguments.dynamic, until
        )
        # Whole models wait for sizes on the host, which must not be busy with compiling.
        for is_model, jobs in ((False, arguments.jobs), (True, -(-arguments.jobs // 3))):
            part = [row for row in wanted if row.is_model == is_model]
            yield from side_by_side.run(part, setting, jobs)
        return
    target = gpu_target() if device == "cuda" else host_target()
    begun = takewhile(lambda row: time.monotonic() < until, wanted)
    how = (forms, arguments.compile, bandwidth, arguments.dynamic)
    yield from run.run(begun, device, target, *how)


def table(result: Report) -> Table:
    """A row for each row of the report, in microseconds."""
    from tvm_scatter.tuning.bench.models.report import cells, headings

    shown = Table()
    for heading in headings(result):
        shown.add_column(heading, justify="left" if heading in ("row", "best peer") else "right")
    for figures in result.rows:
        shown.add_row(*cells(result, figures))
    return shown
