"""``tvm-scatter bench --models``: times messages and whole models, and compares with peers."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.targets import gpu_target, host_target

from .bench_arguments import check, device_of, to_resume
from .model import import_torch
from .progress import progress

if TYPE_CHECKING:
    from tvm_scatter.tuning.bench.models.figures import Report
    from tvm_scatter.tuning.bench.models.rows import Row

#: The options that only this benchmark has, and those that only the other one has.
_OWN = ("rows", "seconds", "deterministic")
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

    device = device_of(arguments)
    scale = SCALE[device] if arguments.scale is None else arguments.scale
    check(scale, arguments)
    every = rows(scale)
    wanted = picked(every, arguments.rows or "")
    if not wanted:
        names = ", ".join(dict.fromkeys(row.name.partition(", ")[0] for row in every))
        raise ScatterError(f"bench: no row is called {arguments.rows!r}; there are {names}.")
    facts = {**bench.machine(device), "scale": scale}
    result = Report(facts, [])
    path = to_resume(arguments)
    if path is not None:
        before = Report.load(path)
        known = {figures.name for figures in before.rows}
        wanted = [row for row in wanted if row.name not in known]
        result = before.continued(facts) if wanted else before
    left = _measure(wanted, [row.name for row in every], result, arguments, device)
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


def _measure(
    wanted: list[Row],
    order: list[str],
    result: Report,
    arguments: argparse.Namespace,
    device: str,
) -> int:
    """Measure rows into a report, and save it after each; how many are left."""
    from tvm_scatter.tuning.bench.models.ours import OPTIONS
    from tvm_scatter.tuning.bench.models.run import run as measured

    target = gpu_target() if device == "cuda" else host_target()
    forms = [form for form in OPTIONS if form != "deterministic" or arguments.deterministic]
    begin = time.monotonic()
    with progress() as shown:
        timed = measured(wanted, device, target, forms, arguments.compile)
        for done, row in enumerate(wanted):
            spent = time.monotonic() - begin
            if arguments.seconds is not None and spent > arguments.seconds:
                return len(wanted) - done
            shown.step(f"{done + 1} of {len(wanted)}, {spent:.0f} s: {row.name}")
            figures = next(timed)
            for name, text in figures.wrong.items():
                shown.step(f"{row.name}: {name}: {text}")
            result.rows.append(figures)
            result.rows.sort(key=lambda figures: order.index(figures.name))
            if arguments.json:
                result.save(Path(arguments.json))
    return 0


def table(result: Report) -> Table:
    """A row for each row of the report, in microseconds."""
    from tvm_scatter.tuning.bench.models.report import cells, headings

    shown = Table()
    for heading in headings(result):
        shown.add_column(heading, justify="left" if heading in ("row", "best peer") else "right")
    for figures in result.rows:
        shown.add_row(*cells(result, figures))
    return shown
