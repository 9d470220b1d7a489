"""``tvm-scatter bench``: times every workload, and compares with the installed peers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tvm_scatter.errors import ScatterError

from . import bench_models
from .bench_arguments import check, device_of, to_resume
from .progress import progress

if TYPE_CHECKING:
    from tvm_scatter.tuning.bench.bench import Report


def run(arguments: argparse.Namespace) -> int:
    """Time the workloads, and print, save and plot the results."""
    if arguments.models:
        return bench_models.run(arguments)
    bench_models.refuse(arguments)
    from tvm_scatter.tuning.bench import bench, report, reports
    from tvm_scatter.tuning.space.workloads import SCALE, WORKLOADS

    device = device_of(arguments)
    wanted = arguments.filter or ""
    workloads = [workload for workload in WORKLOADS if wanted in workload.name]
    if not workloads:
        names = ", ".join(workload.name for workload in WORKLOADS)
        raise ScatterError(f"bench: no workload is called {wanted!r}; there are {names}.")
    scale = SCALE[device] if arguments.scale is None else arguments.scale
    check(scale, arguments)
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
    for sentence in reports.marks(result.rows):
        print(sentence)
    if arguments.markdown:
        Path(arguments.markdown).write_text(report.markdown(result) + "\n", encoding="utf-8")
    if arguments.plot:
        report.plot(result, Path(arguments.plot))
    return 0


def _report_to_resume(arguments: argparse.Namespace) -> Report | None:
    """The report of an earlier run, if ``--resume`` is given and it exists."""
    from tvm_scatter.tuning.bench.bench import Report

    path = to_resume(arguments)
    return None if path is None else Report.load(path)


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
