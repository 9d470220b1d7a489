"""``tvm-scatter report``: prints, compares and plots tuning records, on any machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from .tune import table

if TYPE_CHECKING:
    from tvm_scatter.tuning.store.results import Result


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of this command."""
    command.add_argument("folders", metavar="DIR", nargs="+", help="of tvm-scatter tune")
    command.add_argument("--plot", metavar="DIR", help="draw a picture for each scatter")


def run(arguments: argparse.Namespace) -> int:
    """Print the records of each directory; several are compared by their best times."""
    from tvm_scatter.tuning.bench.plots import plot_tasks
    from tvm_scatter.tuning.store.database import read_database
    from tvm_scatter.tuning.store.results import results_in

    console = Console(highlight=False, markup=False)
    databases = [read_database(Path(folder)) for folder in arguments.folders]
    found = [results_in(database) for database in databases]
    for folder, database in zip(arguments.folders, databases, strict=True):
        left_out = len(database.failures())
        console.print(f"{folder}: {len(database)} records, {left_out} left out", soft_wrap=True)
        for run in database.metadata["runs"]:
            machine = run.get("machine")
            facts = {**(machine if isinstance(machine, dict) else {}), **run}
            facts.pop("machine", None)
            console.print("  " + ", ".join(f"{k} {v}" for k, v in facts.items()), soft_wrap=True)
    if len(found) == 1:
        console.print(table(found[0]))
    else:
        console.print(_comparison(arguments.folders, found))
    if arguments.plot:
        results = [result for each in found for result in each]
        print(f"{len(plot_tasks(results, Path(arguments.plot)))} pictures in {arguments.plot}")
    return 0


def _comparison(folders: list[str], found: list[list[Result]]) -> Table:
    best: dict[str, dict[int, str]] = {}
    for column, results in enumerate(found):
        for result in results:
            if result.best is not None:
                text = f"{result.best.microseconds:.1f} {result.best.implementation}"
                best.setdefault(str(result.task), {})[column] = text
    shown = Table()
    shown.add_column("scatter", overflow="fold")
    for folder in folders:
        shown.add_column(folder, justify="right")
    for task, cells in best.items():
        shown.add_row(task, *(cells.get(column, "-") for column in range(len(folders))))
    return shown
