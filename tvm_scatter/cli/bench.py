"""``tvm-scatter bench``: times every workload, and compares with the installed peers."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import tvm
from rich.console import Console
from rich.table import Table

from tvm_scatter.errors import ScatterError

from .progress import progress

if TYPE_CHECKING:
    from tvm_scatter.tuning.bench.bench import Report


def run(arguments: argparse.Namespace) -> int:
    """Time the workloads, and print, save and plot the results."""
    from tvm_scatter.tuning.bench import bench, report
    from tvm_scatter.tuning.space.workloads import SCALE, WORKLOADS

    device = arguments.device or ("cuda" if tvm.cuda(0).exist else "cpu")
    if device == "cuda" and not tvm.cuda(0).exist:
        raise ScatterError("bench: there is no CUDA device here; use --device cpu.")
    wanted = arguments.filter or ""
    workloads = [workload for workload in WORKLOADS if wanted in workload.name]
    if not workloads:
        names = ", ".join(workload.name for workload in WORKLOADS)
        raise ScatterError(f"bench: no workload is called {wanted!r}; there are {names}.")
    scale = SCALE[device] if arguments.scale is None else arguments.scale
    if scale < 1:
        raise ScatterError(f"bench: --scale {scale} must be at least 1, which is all of the work.")
    for file in filter(None, (arguments.json, arguments.markdown, arguments.plot)):
        _need_writable(Path(file))
    workloads = [workload.scaled(scale) for workload in workloads] if scale > 1 else workloads
    facts = {**bench.machine(device), "scale": scale}
    result = bench.Report(facts, [])
    before = _report_to_resume(arguments)
    if before is not None:
        known = {row.workload for row in before.rows}
        workloads = [workload for workload in workloads if workload.name not in known]
        continued = before.continued(facts)
        result = continued if workloads else before
    order = [workload.name for workload in WORKLOADS]
    with progress() as shown:
        timed = bench.run(
            device,
            workloads,
            compile_best=arguments.compile,
            stock=arguments.stock,
            jax=arguments.jax,
            all_implementations=arguments.all,
        )
        for done, workload in enumerate(workloads):
            shown.step(f"{done + 1} of {len(workloads)}: {workload.name}")
            result.rows.append(next(timed))
            result.rows.sort(key=lambda row: order.index(row.workload))
            if arguments.json:
                result.save(Path(arguments.json))
    Console(highlight=False, markup=False).print(table(result, arguments.all))
    print(f"geometric mean of best peer / ours: {result.geometric_mean():.2f}")
    for sentence in report.marks(result):
        print(sentence)
    if arguments.markdown:
        Path(arguments.markdown).write_text(report.markdown(result) + "\n", encoding="utf-8")
    if arguments.plot:
        report.plot(result, Path(arguments.plot))
    return 0


def _need_writable(path: Path) -> None:
    """Raise, before anything is measured, if a file for results cannot be written."""
    if not path.parent.is_dir():
        raise ScatterError(f"bench: {path}: there is no folder {path.parent}.")
    if path.is_dir():
        raise ScatterError(f"bench: {path} is a folder; name the file to write.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ScatterError(f"bench: {path} cannot be written: permission denied.")


def _report_to_resume(arguments: argparse.Namespace) -> Report | None:
    """The report of an earlier run, if ``--resume`` is given and it exists."""
    from tvm_scatter.tuning.bench.bench import Report

    if not arguments.resume:
        return None
    if not arguments.json:
        raise ScatterError("bench: --resume needs --json FILE, the report to go on with.")
    path = Path(arguments.json)
    return Report.load(path) if path.exists() else None


def table(result: Report, with_others: bool) -> Table:
    """A row for each workload, in microseconds."""
    shown = Table()
    shown.add_column("workload")
    for heading in (
        "floor",
        "best peer",
        "",
        "ours",
        "wall",
        "implementation",
        "peer/ours",
        "ours/floor",
    ):
        shown.add_column(heading, justify="left" if heading in ("", "implementation") else "right")
    if with_others:
        shown.add_column("others", overflow="fold")
    for row in result.rows:
        peer, best = row.best_peer
        cells = [
            row.label,
            f"{row.floor:.1f}",
            f"{best:.1f}",
            peer,
            f"{row.ours.device:.1f}",
            f"{row.ours.wall:.1f}",
            row.implementation,
            f"{best / row.ours.device:.2f}",
            f"{row.ours.device / row.floor:.2f}",
        ]
        if with_others:
            cells.append(", ".join(f"{name} {t.device:.1f}" for name, t in row.others.items()))
        shown.add_row(*cells)
    return shown
