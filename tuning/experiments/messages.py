"""Which implementation computes messages fastest, on this machine.

``python -m tvm_scatter.tuning.experiments.messages --json FILE --markdown FILE``

The rows are those of ``tvm-scatter bench --models`` that reduce messages once. Each scatter that
computes its messages itself is forced to each implementation that can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm

import tvm_scatter
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.tuning.measure.machine import describe

from . import program

#: Those that compute rows of features and serve more than special cases.
_IMPLEMENTATIONS = ("bucketed", "grouped", "segmented", "parallel_injective", "sort_based")
_ROWS = ("weighted sum*degree 10", "mean*degree 10", "max*degree 10")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("messages")
    parser.add_argument("--json", metavar="FILE")
    parsed = parser.parse_args(arguments)
    program.need_gpu("messages")
    from tvm_scatter.tuning.bench.models.rows import picked, rows

    every = rows(1)
    wanted = [row for pattern in _ROWS for row in picked(every, pattern)]
    figures: dict[str, Any] = {"machine": describe("cuda"), "rows": []}
    for row in wanted:
        figures["rows"].append({"row": row.name, **measured(row)})
        print(figures["rows"][-1], flush=True)
    program.publish(markdown(figures), figures, parsed)
    return 0


def measured(row: Any) -> dict[str, float]:
    """Microseconds of each implementation that can compute the messages of a row."""
    from tvm_scatter.tuning.bench.models import timing
    from tvm_scatter.tuning.bench.models.check import reference
    from tvm_scatter.tuning.bench.models.ours import compiled, imported

    case, target = row.make(), gpu_target()
    mod = imported(case)
    case = case.on("cuda")
    wanted = reference(case)
    forms = {}
    for name in able(mod, target):
        call = compiled(mod, target, "fused", implementation=name).on(case.inputs)
        wanted.check(f"{row.name}, {name}", call())
        forms[name] = call
    return timing.times(forms, "cuda")


def able(mod: tvm.IRModule, target: Any) -> list[str]:
    """The implementations that can compute the fused scatter of a module."""
    with tvm_scatter.options(fuse=True):
        [explanation] = tvm_scatter.explain(mod, target)
    chosen, others = explanation.implementation, explanation.alternatives
    return [
        each
        for each in _IMPLEMENTATIONS
        if each == chosen or others.get(each, "it is no alternative") is None
    ]


def markdown(figures: Mapping[str, Any]) -> str:
    """The figures as a table."""
    machine = ", ".join(f"{name} {value}" for name, value in figures["machine"].items())
    lines = [
        f"Measured on: {machine}.",
        "",
        "Microseconds on the device.",
        "",
        f"| row | {' | '.join(_IMPLEMENTATIONS)} |",
        f"|---|{'--:|' * len(_IMPLEMENTATIONS)}",
    ]
    for row in figures["rows"]:
        numbers = (f"{row[each]:,.0f}" if each in row else "" for each in _IMPLEMENTATIONS)
        lines.append(f"| {row['row']} | {' | '.join(numbers)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
