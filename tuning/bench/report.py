"""A benchmark's report as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .bench import Report
from .pyplot import pyplot


def markdown(report: Report) -> str:
    """The table for the README, in microseconds of device time."""
    facts = report.machine
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
    lines.append("")
    driver = f"driver {facts['driver']}" if "driver" in facts else f"{facts['threads']} threads"
    scale = facts.get("scale", 1)
    lines.append(
        f"{facts['device']}, {driver}, TVM {facts['tvm']}, PyTorch {facts['torch']}; caches "
        f"{facts['caches']}; copy bandwidth {facts['copy_bytes_per_us'] / 1e3:,.1f} GB/s"
        f"{f'; 1/{scale} of the work' if scale > 1 else ''}. Geometric mean over the best peer: "
        f"{report.geometric_mean():.2f}x."
    )
    lines += marks(report.rows)
    return "\n".join(lines)


def marks(rows: Iterable[Any]) -> list[str]:
    """A sentence that explains the marks at rows; none if no row has one."""
    marked = [row.earlier for row in rows if row.earlier is not None]
    if not marked:
        return []
    values: dict[str, set[str]] = {}
    for earlier in marked:
        for name, value in earlier.items():
            values.setdefault(name, set()).add(str(value))
    other = " and ".join(f"{name} {' or '.join(sorted(values[name]))}" for name in values)
    other = other or "the same kernels and versions"
    return [f"Rows with a * were measured by an earlier run, with {other}."]


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
    axes.set_xlabel(f"microseconds on {report.machine['device']}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=140)
    plotting.close(figure)
