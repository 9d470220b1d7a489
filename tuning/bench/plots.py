"""A picture for a task: every measured candidate, the best marked."""

from __future__ import annotations

from pathlib import Path

from tvm_scatter.errors import ScatterError
from tvm_scatter.tuning.store.results import Result

from .pyplot import pyplot


def plot_task(result: Result, path: Path) -> None:
    """Times of all candidates on a logarithmic scale, a column for each implementation.

    Raises
    ------
    ScatterError
        If matplotlib is not installed.
    """
    plotting = pyplot("tuning: a picture")
    names = list(dict.fromkeys(record.implementation for record in result.ranked))
    figure, axes = plotting.subplots(figsize=(max(4.0, 1.6 * len(names) + 1.5), 3.6))
    for column, name in enumerate(names):
        records = [record for record in result.ranked if record.implementation == name]
        knobs = len({tuple(sorted(record.config.items())) for record in records})
        places = [column + 0.6 * (i / max(knobs - 1, 1) - 0.5) for i in range(len(records))]
        axes.scatter(places, [record.microseconds for record in records], s=16, color="#5b7aa8")
        if name == names[0]:
            axes.scatter(
                places[:1], [records[0].microseconds], s=90, marker="*", color="#c0392b", zorder=3
            )
            config = ", ".join(f"{k}={v}" for k, v in records[0].config.items())
            label = f"best: {records[0].microseconds:.1f} us {config}".rstrip()
    if result.default is not None:
        axes.axhline(result.default, linestyle="--", linewidth=1, color="#888888")
        label += f"; default: {result.default:.1f} us"
    axes.set_yscale("log")
    axes.set_ylabel("microseconds")
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes.set_title(f"{result.task}\n{label}", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plotting.close(figure)


def plot_tasks(results: list[Result], folder: Path) -> list[Path]:
    """A picture for each task that has measurements, in a folder.

    Raises
    ------
    ScatterError
        If the folder cannot be written or matplotlib is not installed.
    """
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, result in enumerate(results):
            if result.ranked:
                paths.append(folder / f"task_{number}.png")
                plot_task(result, paths[-1])
    except OSError as error:
        raise ScatterError(
            f"tuning: pictures cannot be written to {str(folder)!r}: {error}."
        ) from error
    return paths
