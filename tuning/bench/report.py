"""A benchmark's report as a table and as a picture."""

from __future__ import annotations

from pathlib import Path

from .bench import Report
from .pyplot import pyplot, save_times
from .reports import machine_text, marks


def markdown(report: Report) -> str:
    """The table for the README, in microseconds of device time."""
    lines = [
        "| workload | floor | best peer | ours | implementation | peer / ours | ours / floor |",
        "|---|--:|--:|--:|---|--:|--:|",
    ]
    for row in report.rows:
        peer, best = row.best_peer
        ours = row.ours.device
        lines.append(
            f"| {row.label} | {row.floor:.0f} | {best:,.1f} ({peer}) | {ours:,.1f} "
            f"| {row.implementation} | {best / ours:.2f} | {ours / row.floor:.2f} |"
        )
    mean = f"Geometric mean over the best peer: {report.geometric_mean():.2f}x."
    lines += ["", f"{machine_text(report.machine)} {mean}", *marks(report.rows)]
    return "\n".join(lines)


def plot(report: Report, path: Path) -> None:
    """Bars for each workload on a logarithmic scale: best peer, ours, and the floor as a mark.

    Raises
    ------
    ScatterError
        If matplotlib is not installed.
    """
    plotting = pyplot("bench: --plot")
    rows = report.rows[::-1]
    figure, axes = plotting.subplots(figsize=(9, 0.42 * len(rows) + 1.2))
    places = range(len(rows))
    axes.barh(
        [place + 0.2 for place in places],
        [row.best_peer[1] for row in rows],
        0.38,
        label="best peer",
        color="#b0b7c3",
    )
    axes.barh(
        [place - 0.2 for place in places],
        [row.ours.device for row in rows],
        0.38,
        label="tvm_scatter",
        color="#2a6fbb",
    )
    axes.scatter(
        [row.floor for row in rows], places, marker="|", s=260, color="#c0392b", label="floor"
    )
    axes.set_yticks(list(places), [row.workload for row in rows])
    axes.set_xscale("log")
    axes.set_xlim(left=1)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    save_times(plotting, figure, axes, report.machine["device"], path)
