"""What an order of updates takes in each of its forms, and each launch of it, on this machine.

``python -m tvm_scatter.tuning.experiments.order_forms --json FILE --markdown FILE [--rows TEXT]``

Each is checked against PyTorch, and timed in turns with the others. A form that does not take the
sizes leaves them to the next, so that two rows may be the same. ``symbolic`` is one module for all.
``overlapped`` is with the option ``overlap_launches``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import tvm
from tvm import relax

import tvm_scatter
from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.strategies.cuda.ordering import forms_from
from tvm_scatter.tuning.measure.machine import describe
from tvm_scatter.tuning.operands.distributions import draw_indices

from . import program
from .orders import torch_order
from .relax_programs import compiled
from .second_round import in_turns, launches

#: Updates, destinations, and how updates are spread over these.
CASES: tuple[tuple[int, int, str], ...] = (
    (100, 30, "uniform"),
    (2_000, 500, "uniform"),
    (8_192, 4_096, "uniform"),
    (10_556, 2_708, "uniform"),
    (16_384, 32_768, "uniform"),
    (20_000, 2_708, "uniform"),
    (100_000, 10_000, "uniform"),
    (249_216, 16_384, "uniform"),
    (300_000, 100_000, "uniform"),
    (300_000, 100_000, "zipf(1.2)"),
    (1_000_000, 100_000, "uniform"),
    (1_000_000, 100_000, "zipf(1.2)"),
    (1_000_000, 100_000, "half-on-one"),
    (1_000_000, 100_000, "all-on-one"),
    (1_000_000, 1_000, "uniform"),
    (5_000_000, 100_000, "uniform"),
    (5_000_000, 100_000, "zipf(1.2)"),
    (10_000_000, 100_000, "uniform"),
    (1_000_000, 1_000_000, "uniform"),
    (5_000_000, 100_000, "all-on-one"),
)
_FORMS = ("owners", "buckets", "radix")


@dataclass
class Timed:
    """A form's median and interquartile range, and the time of each launch, in microseconds."""

    device: float = 0.0
    spread: float = 0.0
    launches: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("order_forms")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rows", default="", metavar="TEXT", help="rows with TEXT in their names")
    parsed = parser.parse_args(arguments)
    program.need_gpu("order_forms")
    symbolic = compiled(module(None, None), gpu_target())["main"]
    rows: dict[str, dict[str, Timed]] = {}
    for case in CASES:
        if parsed.rows not in name_of(*case):
            continue
        rows[name_of(*case)] = measured(*case, symbolic)
        found = {
            "machine": describe("cuda"),
            "rows": {
                name: {form: asdict(timed) for form, timed in forms.items()}
                for name, forms in rows.items()
            },
        }
        program.publish(markdown(rows), found, parsed)
    return 0


def name_of(count: int, extent: int, distribution: str) -> str:
    """The name of a row."""
    return f"{count} into {extent}, {distribution}"


def module(count: int | None, extent: int | None) -> tvm.IRModule:
    """A module that orders an index; its sizes are symbolic where they are not given."""
    builder = relax.BlockBuilder()
    size = tvm.tirx.Var("count", "int64") if count is None else count
    places = tvm.tirx.Var("extent", "int64") if extent is None else extent
    index = relax.Var("index", relax.TensorType([size], "int64"))
    # A tensor that has the symbolic extent.
    like = relax.Var("like", relax.TensorType([places], "int8"))
    with builder.function("main", [index, like]):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(tvm_scatter.order(index, places)))
        builder.emit_func_output(output)
    return builder.get()


def measured(count: int, extent: int, distribution: str, symbolic: Any) -> dict[str, Timed]:
    """The figures of each form that takes these sizes."""
    import torch

    # In memory of PyTorch's own: TVM takes only what is aligned to 64 bytes.
    drawn = draw_indices(distribution, extent, count)
    index = torch.from_numpy(drawn).clone().cuda()
    given = [tvm.runtime.from_dlpack(each) for each in (index, _bytes(extent))]
    calls = {name: partial(form, *given) for name, form in forms(count, extent).items()}
    calls["symbolic"] = partial(symbolic, *given)
    wanted = torch_order(index, extent)
    for name, call in calls.items():
        for ours, theirs in zip(call(), wanted, strict=True):
            if not bool((torch.from_dlpack(ours) == theirs).all()):
                raise ScatterError(
                    f"order_forms: {name_of(count, extent, distribution)} by {name} is wrong."
                )
    timed = {name: Timed(launches=launches(call, "order_kernel")) for name, call in calls.items()}
    calls["torch"] = partial(torch_order, index, extent)
    for name, summary in in_turns(calls, on_gpu=True).items():
        each = timed.setdefault(name, Timed())
        each.device, each.spread = 1e6 * summary.median, 1e6 * summary.spread
    return timed


def _bytes(count: int) -> Any:
    import torch

    return torch.zeros(count, dtype=torch.int8, device="cuda")


def forms(count: int, extent: int) -> dict[str, Callable[..., Any]]:
    """The first form that takes the sizes, from each on; the first of all is what is chosen."""
    found: dict[str, Callable[..., Any]] = {}
    for name in _FORMS:
        for overlaps in (False, True):
            with forms_from(name):
                machine = compiled(module(count, extent), gpu_target(), overlap_launches=overlaps)
            found[f"from {name} on{', overlapped' if overlaps else ''}"] = machine["main"]
    return found


def markdown(rows: Mapping[str, Mapping[str, Timed]]) -> str:
    """The figures as a table."""
    lines = ["| order | form | us | spread | launches |", "|---|---|--:|--:|--:|"]
    for row, timed in rows.items():
        for form, each in timed.items():
            launched = " + ".join(f"{time:.1f}" for time in each.launches)
            lines.append(f"| {row} | {form} | {each.device:.1f} | {each.spread:.1f} | {launched} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
