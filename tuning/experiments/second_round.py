"""What newer implementations gain over older ones, and by which knobs.

``python -m tvm_scatter.tuning.experiments.second_round --json FILE --markdown FILE [--rows TEXT]``

Each row is a workload, in the forms of :data:`FORMS`: the implementation that the strategy chooses,
and others with their knobs. All forms of a row are compiled together, checked against float64, and
timed in turns; what is wrong is told, and not timed. What each launch takes comes from PyTorch's
profiler. With ``--peers``, PyTorch's forms have their turn, too, and with ``--compile`` that of
``torch.compile``. ``--third-round`` takes those of :data:`THIRD_ROUND` instead. Files are written
after every row, and rows of other workloads that the JSON file has already are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tvm.target import Target

import tvm_scatter
from tvm_scatter.errors import ScatterError
from tvm_scatter.options import Options
from tvm_scatter.selection.strategy import Selection, strategy_for
from tvm_scatter.selection.targets import gpu_target, host_target
from tvm_scatter.tuning.bench import peers
from tvm_scatter.tuning.bench.bench import call_of, make_tensors
from tvm_scatter.tuning.bench.reference import Reference
from tvm_scatter.tuning.measure import device_time
from tvm_scatter.tuning.measure.kernel import Kernel, compile_selections
from tvm_scatter.tuning.measure.machine import describe
from tvm_scatter.tuning.measure.sampling import Budget, Summary
from tvm_scatter.tuning.space.workloads import WORKLOADS, Workload

from . import program

_ROUNDS = 5
_BUDGET = Budget(fewest=3, most=8, seconds=0.1, patience=0.25)
#: An implementation and its knobs. Its launches overlap if the name ends with :data:`_OVERLAPPED`.
Form = tuple[str, Mapping[str, int]]
_OVERLAPPED = " overlapped"
Call = Callable[[], Any]

_TILED: tuple[Form, ...] = (
    ("tiled", {"tile_threads": 512, "threads": 1024}),
    ("tiled", {"tile_threads": 512, "threads": 512}),
    ("tiled", {"tile_threads": 1024, "threads": 1024}),
    ("tiled", {"tile_threads": 1024, "threads": 512}),
)
_SPLIT: tuple[Form, ...] = (
    ("split_bins", {"unroll": 8}),
    ("split_bins", {"unroll": 4}),
    ("split_bins", {"parts": 4, "blocks_per_multiprocessor": 2}),
)
_PATCHED: tuple[Form, ...] = (("patched", {}), ("patched", {"per_thread": 4}))
_OLDER: tuple[Form, ...] = (("parallel_injective", {}), ("partitioned", {}))
#: For each row of the benchmark, what is tried besides what is chosen.
FORMS: dict[str, tuple[Form, ...]] = {
    "1-D 1M unique": (
        *_TILED[:2],
        ("tiled", {"per_thread": 16}),
        ("tiled", {"per_thread": 4}),
        ("tiled", {"bucket_bits": 12}),
    ),
    "1-D 16M add": (
        *_TILED,
        ("tiled", {"bucket_bits": 13, "threads": 1024}),
        ("tiled", {"bucket_bits": 13, "threads": 512}),
        ("tiled", {"per_thread": 8}),
        *_OLDER,
    ),
    "1-D 16M add, zipf(1.2)": (*_TILED, *_OLDER),
    "1-D 16M add, all-on-one": (*_TILED[:2], *_OLDER[1:]),
    "1-D 8M unique of 32M": (*_TILED, *_OLDER[:1]),
    "1-D 4M add to 100K": (
        *_OLDER,
        ("bucketed", {}),
        *_SPLIT,
        ("tiled", {}),
        ("tiled", {"bucket_bits": 8}),
        ("tiled", {"bucket_bits": 10}),
    ),
    "64K bins int32": (
        *_OLDER,
        *_SPLIT,
        ("split_bins", {"parts": 3}),
        ("tiled", {}),
    ),
    "64K bins int32, zipf(1.2)": (*_OLDER, *_SPLIT),
    "add 20 to 5000": (
        *_PATCHED,
        ("row_resident", {}),
        ("sequential", {}),
        ("parallel_injective", {}),
    ),
    "assign 1 of 1000": (*_PATCHED, ("sequential", {})),
    "static cache, one position": (
        *_PATCHED,
        ("patched", {"per_thread": 8}),
        ("gather_form", {}),
        *_OLDER[:1],
    ),
    "top-k mask": (*_PATCHED, ("patched", {"per_thread": 8}), *_OLDER[:1]),
    "2048x10000 add": (("parallel_injective", {}),),
    "messages, middle axis": (
        ("column_resident", {"columns": 24}),
        ("column_resident", {"columns": 24, "threads": 512}),
        ("column_resident", {"columns": 48}),
        ("column_resident", {"columns": 48, "unroll": 8}),
        ("column_resident", {"columns": 96}),
        ("row_resident", {}),
        ("parallel_injective", {}),
    ),
    "MoE combine": (("bucketed", {"threads": 256}), ("grouped", {})),
    "embedding gradient": (("parallel_injective", {}), ("bucketed", {})),
    # What each launch of the sort takes.
    "deterministic rows zipf": (("sort_based", {}),),
}
_GATHERING = {"threads": 512, "in_flight": 8}
#: What was not measured yet, beside what it competes with.
THIRD_ROUND: dict[str, tuple[Form, ...]] = {
    "1-D 1M unique": (
        ("parallel_injective overlapped", {}),
        ("tiled", {"threads": 512, "in_flight": 4}),
        ("tiled", _GATHERING),
        ("tiled", {**_GATHERING, "per_thread": 4}),
        ("tiled", {**_GATHERING, "tile_threads": 1024}),
        ("tiled overlapped", _GATHERING),
    ),
    "1-D 8M unique of 32M": (
        ("tiled", {"threads": 512, "in_flight": 4}),
        ("tiled", _GATHERING),
    ),
    "1-D 16M add": (("tiled overlapped", {}),),
    "1-D 4M add to 100K": (("split_bins overlapped", {}),),
    "64K bins int32": (("split_bins overlapped", {}),),
    "add 20 to 5000": (("patched", {"held": 0}), ("patched", {"held": 1})),
    "assign 1 of 1000": (("patched", {"held": 1}),),
    "MoE combine": (
        ("bucketed overlapped", {}),
        ("owned_rows", {}),
        ("owned_rows", {"lanes": 32}),
        ("owned_rows", {"threads": 512}),
        ("owned_rows", {"unroll": 2}),
    ),
    "MoE combine, zipf(1.2)": (("owned_rows", {}), ("owned_rows", {"lanes": 16})),
    "embedding gradient": (
        ("parallel_injective overlapped", {}),
        ("owned_rows", {}),
        ("owned_rows", {"lanes": 32}),
        ("owned_rows", {"lanes": 16}),
    ),
}


@dataclass
class Timed:
    """A form's median and interquartile range in microseconds, and the time of each launch.

    A form that is ``wrong`` says so, and is not timed.
    """

    device: float = 0.0
    spread: float = 0.0
    error: float = 0.0
    launches: list[float] = field(default_factory=list)
    wrong: str = ""


@dataclass
class Row:
    """A workload, the bytes that it must move, and its forms' figures; the chosen form is first."""

    workload: str
    floor_bytes: int
    forms: dict[str, Timed]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("second_round")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rows", default="", metavar="TEXT", help="workloads with TEXT in them")
    parser.add_argument("--peers", action="store_true", help="PyTorch's forms as well")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    parser.add_argument("--third-round", action="store_true", help="the forms of the third round")
    parsed = parser.parse_args(arguments)
    program.need_gpu("second_round")
    forms = THIRD_ROUND if parsed.third_round else FORMS
    wanted = [workload for workload in workloads(forms) if parsed.rows in workload.name]
    rows = kept_rows(parsed.json, [workload.name for workload in wanted])
    for workload in wanted:
        others = (parsed.peers, parsed.compile)
        rows.append(measure(workload, forms[workload.name], "cuda", *others))
        found = {"machine": describe("cuda"), "rows": [asdict(row) for row in rows]}
        program.publish(markdown(rows), found, parsed)
    return 0


def kept_rows(path: str | None, measured_again: Sequence[str]) -> list[Row]:
    """The rows of an earlier run's file, without those that are measured again."""
    if path is None or not Path(path).exists():
        return []
    found = json.loads(Path(path).read_text(encoding="utf-8"))["rows"]
    return [
        Row(
            row["workload"],
            row["floor_bytes"],
            {name: Timed(**timed) for name, timed in row["forms"].items()},
        )
        for row in found
        if row["workload"] not in measured_again
    ]


def workloads(forms: Iterable[str] = tuple(FORMS)) -> Iterable[Workload]:
    """The workload of each name: one of the benchmark, perhaps with other indices."""
    known = {workload.name: workload for workload in WORKLOADS}
    for name in forms:
        if name in known:
            yield known[name]
        else:
            base, distribution = name.rsplit(", ", 1)
            yield replace(known[base], name=name, distribution=distribution)


def measure(
    workload: Workload,
    forms: Sequence[Form],
    device: str,
    with_peers: bool,
    with_compiled: bool = False,
) -> Row:
    """Check and time the chosen form and others, in turns."""
    import torch

    tensors = make_tensors(workload, device)
    on_gpu = tensors[0].is_cuda
    target = gpu_target() if on_gpu else host_target()
    assert target is not None
    result = torch.empty_like(tensors[0])
    chosen = selections(workload, forms, target)
    expected = Reference.of(workload, *tensors)
    calls: dict[str, Call] = {}
    timed: dict[str, Timed] = {}
    kernel_names: dict[str, str] = {}
    for name, (kernel, kernel_names[name]) in compiled(workload, chosen, target).items():
        call = call_of(kernel, *tensors, result)
        result.fill_(7)
        call()
        try:
            timed[name] = Timed(error=expected.check(result, name))
        except ScatterError as wrong:
            timed[name] = Timed(wrong=str(wrong))
            continue
        calls[name] = call
    del expected
    if with_peers:
        calls |= peers.torch_forms(workload, *tensors)
    if with_compiled:
        calls["torch.compile"] = peers.torch_compiled(workload, *tensors)
    for name, summary in in_turns(calls, on_gpu).items():
        timed.setdefault(name, Timed())
        if on_gpu:
            timed[name].launches = launches(calls[name], kernel_names.get(name))
        timed[name].device, timed[name].spread = 1e6 * summary.median, 1e6 * summary.spread
    return Row(workload.name, workload.floor_bytes, timed)


def compiled(
    workload: Workload, chosen: Mapping[str, Selection], target: Target
) -> dict[str, tuple[Kernel, str]]:
    """Each form, and what its kernels' names begin with."""
    found: dict[str, tuple[Kernel, str]] = {}
    for overlaps in (False, True):
        forms = {name: each for name, each in chosen.items() if (_OVERLAPPED in name) == overlaps}
        with tvm_scatter.options(overlap_launches=overlaps):
            kernels = compile_selections(
                workload.problem(), workload.signature(), list(forms.values()), target
            )
        names = (f"selection_{at}_kernel" for at in range(len(kernels)))
        found |= zip(forms, zip(kernels, names, strict=True), strict=True)
    return found


def selections(workload: Workload, forms: Sequence[Form], target: Target) -> dict[str, Selection]:
    """What is chosen by default, and each form, under the name that the table shows."""
    strategy = strategy_for(target.kind.name)
    assert strategy is not None
    default = strategy.select(workload.problem(), target, Options())
    found = {f"chosen: {default.implementation.name}": default}
    for implementation, knobs in forms:
        forced = implementation.removesuffix(_OVERLAPPED)
        options = Options(implementation=forced, knobs=tuple(knobs.items()))
        selection = strategy.select(workload.problem(), target, options)
        found[form_name(implementation, selection.config)] = selection
    return found


def form_name(implementation: str, config: Mapping[str, int]) -> str:
    """An implementation with all its knobs: figures shall tell them when defaults have changed."""
    return " ".join([implementation, *(f"{knob}={value}" for knob, value in config.items())])


def in_turns(calls: Mapping[str, Call], on_gpu: bool) -> dict[str, Summary]:
    """Seconds of each call, in rounds of which every second is in the reverse order."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(_ROUNDS):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            samples[name] += _sampled(calls[name], on_gpu)
    return {name: Summary.of(each) for name, each in samples.items()}


def _sampled(call: Call, on_gpu: bool) -> list[float]:
    if not on_gpu:
        return device_time.on_cpu(call, budget=_BUDGET)
    import torch

    flush = torch.empty(device_time.FLUSH_BYTES["cuda"], dtype=torch.uint8, device="cuda")
    return device_time.on_gpu(call, flush.zero_, torch.cuda.synchronize, budget=_BUDGET)


def launches(call: Call, name: str | None) -> list[float]:
    """Microseconds of each launch of a call: of ours, kernels with names that begin so.

    Empty where the profiler sees no kernels, as on a machine that keeps its counters to itself.
    """
    import torch

    flush = torch.empty(device_time.FLUSH_BYTES["cuda"], dtype=torch.uint8, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        flush.zero_()
        call()
        torch.cuda.synchronize()
    on_device = torch.autograd.DeviceType.CUDA
    found = [event for event in profile.events() if event.device_type == on_device]
    found.sort(key=lambda event: event.time_range.start)
    if name is None:
        found = found[1:]  # behind the one that empties the caches
    else:
        found = [event for event in found if re.match(rf"{name}(_\d+)?$", event.name)]
    return [event.time_range.elapsed_us() for event in found]


def markdown(rows: Sequence[Row]) -> str:
    """The figures as a table."""
    lines = [
        "| workload | form | us | spread | of the chosen | launches |",
        "|---|---|" + "--:|" * 4,
    ]
    for row in rows:
        chosen = next(iter(row.forms.values())).device
        for name, timed in row.forms.items():
            if timed.wrong:
                lines.append(f"| {row.workload} | {name} | {timed.wrong} | | | |")
                continue
            each = " + ".join(f"{time:.1f}" for time in timed.launches)
            lines.append(
                f"| {row.workload} | {name} | {timed.device:.1f} | {timed.spread:.1f} "
                f"| {timed.device / chosen:.2f} | {each} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
