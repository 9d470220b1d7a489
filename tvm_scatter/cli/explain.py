"""``tvm-scatter explain``: prints how each scatter of a model is computed, and why."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table

from tvm_scatter.explain import Explanations, explain
from tvm_scatter.selection.targets import parse_target

from .model import chosen_options, load
from .progress import progress


def run(arguments: argparse.Namespace) -> int:
    """Print the explanations, as a table or as JSON."""
    target = parse_target(arguments.target)
    with progress() as shown, chosen_options(arguments, target):
        shown.step(f"importing {arguments.model}")
        found = explain(load(arguments.model), target)
    if arguments.json:
        json.dump(found.to_dict(), sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif not found and not found.beside:
        print("no scatter")
    else:
        console = Console(highlight=False, markup=False)
        if found:
            console.print(table(found))
        for note in (*found.notes, *found.beside):
            console.print(str(note), soft_wrap=True)
    return 0


def table(found: Explanations) -> Table:
    """A row for each scatter."""
    result = Table(show_lines=True)
    for heading in ("scatter", "problem", "chosen", "because", "instead of"):
        result.add_column(heading, overflow="fold")
    for explanation in found:
        result.add_row(
            f"{explanation.where}\n{explanation.operator}",
            explanation.problem_text,
            "\nelse ".join(map(str, explanation.choices)) or "-",
            explanation.because,
            "\n".join(
                name if refusal is None else f"{name}: {refusal}"
                for name, refusal in explanation.alternatives.items()
            ),
        )
    return result
