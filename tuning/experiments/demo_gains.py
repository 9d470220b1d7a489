"""What tuning gains for the demonstration's models over the default choice.

::

    python -m tvm_scatter.tuning.experiments.demo_gains --target cuda --work-dir DIR --trials 32
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tvm_scatter.demo import demo_models
from tvm_scatter.demo.compare import export, import_program, make
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.targets import need_device, parse_target
from tvm_scatter.tasks import Task, extract_tasks
from tvm_scatter.tuning.search.tune import Settings, tune
from tvm_scatter.tuning.store.results import Result


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune the scatters of all models together and print a row for each model."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.experiments.demo_gains")
    parser.add_argument("--target", metavar="TARGET")
    parser.add_argument("--work-dir", required=True, metavar="DIR")
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parsed = parser.parse_args(arguments)
    target = parse_target(parsed.target)
    need_device(target)
    models = {
        model.name: extract_tasks(import_program(export(*make(model, parsed.size))), target)
        for model in demo_models()
    }
    distinct = {task.problem: replace(task, weight=1) for each in models.values() for task in each}
    settings = Settings(trials=parsed.trials, seconds=parsed.seconds)
    try:
        results = tune(list(distinct.values()), target, Path(parsed.work_dir), settings)
    except ScatterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = {result.task.problem: result for result in results}
    print("| model | scatters | default, us | tuned, us | gain | tuned to |")
    print("|---|--:|--:|--:|--:|---|")
    for name, tasks in models.items():
        print(_row(name, tasks, found))
    return 0


def _row(name: str, tasks: Sequence[Task], found: dict[ScatterProblem, Result]) -> str:
    default = best = 0.0
    chosen: dict[str, None] = {}
    for task in tasks:
        result = found[task.problem]
        if result.best is None or result.default is None:
            return f"| {name} | {sum(t.weight for t in tasks)} | - | - | - | not measured |"
        default += task.weight * result.default
        best += task.weight * result.best.microseconds
        chosen[result.best.implementation] = None
    count = sum(task.weight for task in tasks)
    gain = default / best if best else 1.0
    return f"| {name} | {count} | {default:.1f} | {best:.1f} | {gain:.2f} | {', '.join(chosen)} |"


if __name__ == "__main__":
    sys.exit(main())
