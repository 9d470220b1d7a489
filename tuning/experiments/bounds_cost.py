"""What the policies for bad indices cost on the workloads of the benchmark and in a network.

It measures a call three ways: as one of many that follow each other, the same with the data
overwritten, and with a wait for the result. Under ``raise`` a call has waited for the check of the
indices when it returns; under the other policies it has waited for nothing. The third way makes up
for that.

::

    python -m tvm_scatter.tuning.experiments.bounds_cost --device cuda --markdown bounds.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops import operators as ops
from tvm_scatter.options import options
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.targets import gpu_target, host_target
from tvm_scatter.tuning.bench.bench import make_tensors
from tvm_scatter.tuning.measure import wall_time
from tvm_scatter.tuning.measure.machine import describe
from tvm_scatter.tuning.measure.sampling import Summary
from tvm_scatter.tuning.space.workloads import SCALE, WORKLOADS, Workload

from . import program
from .compile_once import LAYERS, SIZES, message_passing

POLICIES = ("trust", "drop", "raise")
_ROUNDS = 3

#: Of a compiled call, and microseconds, by policy.
Calls = dict[str, Callable[[], Any]]
Times = dict[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = program.parser("bounds_cost")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--filter", default="", metavar="TEXT", help="workloads with TEXT in them")
    parsed = parser.parse_args(arguments)
    if parsed.device == "cuda":
        program.need_gpu("bounds_cost")
    wanted = [w for w in WORKLOADS if parsed.filter in w.name and not w.deterministic]
    lines = [
        "| workload | in a row: trust | drop | raise | in place: trust | drop | raise "
        "| until the host has it: trust | drop | raise |",
        "|---|" + "--:|" * 9,
    ]
    for workload in wanted:
        if SCALE[parsed.device] > 1:
            workload = workload.scaled(SCALE[parsed.device])
        new, in_place = (calls(workload, parsed.device, donate) for donate in (False, True))
        lines.append(_line(workload.name, new, parsed.device, in_place))
        print(lines[-1], flush=True)
    for nodes, edges, features in SIZES.values() if parsed.device == "cuda" else ():
        name = f"{LAYERS} layers, {nodes} nodes"
        if parsed.filter in name:
            lines.append(_line(name, network_calls(nodes, edges, features), "cuda"))
            print(lines[-1], flush=True)
    facts = describe("cuda" if parsed.device == "cuda" else "llvm")
    lines += ["", "Microseconds on " + ", ".join(f"{k} {v}" for k, v in facts.items()) + "."]
    if parsed.markdown:
        Path(parsed.markdown).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def _line(name: str, new: Calls, device: str, in_place: Calls | None = None) -> str:
    groups = (
        cost(new, device),
        cost(in_place, device) if in_place else {},
        cost(new, device, wall_time.to_result),
    )
    cells = [
        f"{times[policy]:.1f}{_over(times, policy)}" if times else ""
        for times in groups
        for policy in POLICIES
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def cost(
    compiled: Calls, device: str, samples: Callable[..., list[float]] = wall_time.between_calls
) -> Times:
    """Microseconds of calls, the median of three rounds in which all policies have their turn."""
    rounds: dict[str, list[float]] = {policy: [] for policy in compiled}
    for _ in range(_ROUNDS):
        for policy, call in compiled.items():
            rounds[policy].append(Summary.of(samples(call, _where(device).sync)).median)
    return {policy: 1e6 * Summary.of(medians).median for policy, medians in rounds.items()}


def calls(workload: Workload, device: str, donate: bool = False) -> Calls:
    """A call of a workload under each policy.

    Parameters
    ----------
    donate : bool
        Whether the data is overwritten instead of copied.

    Raises
    ------
    ScatterError
        If PyTorch is not installed.
    """
    try:
        data, index, updates = make_tensors(workload, device)
    except ImportError as missing:
        raise ScatterError("bounds_cost: install tvm_scatter[torch].") from missing
    index = index.reshape(_shapes(workload)[2])
    operands = [tvm.runtime.from_dlpack(tensor) for tensor in (data, index, updates)]
    return _compiled(_module(workload), operands, device, ("data",) if donate else ())


def network_calls(nodes: int, edges: int, features: int) -> Calls:
    """A call of a message-passing network on a GPU under each policy."""
    module, inputs = message_passing(nodes, edges, features)
    operands = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in inputs(0)]
    return _compiled(module, operands, "cuda")


def _compiled(
    module: tvm.IRModule, operands: Sequence[Any], device: str, donate: tuple[str, ...] = ()
) -> Calls:
    target = gpu_target() if device == "cuda" else host_target()
    found: Calls = {}
    for policy in POLICIES:
        with options(bounds=policy, donate=donate), quiet():
            executable = tvm.compile(module, target=target)
        machine = relax.VirtualMachine(executable, _where(device))
        found[policy] = partial(machine["main"], *operands)
    return found


def _where(device: str) -> Any:
    return tvm.cuda(0) if device == "cuda" else tvm.cpu()


def _shapes(workload: Workload) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Of data, updates and index."""
    shape = (workload.batch, workload.extent, workload.slice)
    update_shape = (workload.batch, workload.count, workload.slice)
    return shape, update_shape, update_shape if _has_lines(workload) else (workload.count,)


def _has_lines(workload: Workload) -> bool:
    """Whether each line, or each element, has an index of its own."""
    return workload.per_batch or workload.per_element


def _module(workload: Workload) -> tvm.IRModule:
    shape, update_shape, index_shape = _shapes(workload)
    data = relax.Var("data", relax.TensorType(shape, workload.dtype))
    index = relax.Var("index", relax.TensorType(index_shape, "int64"))
    updates = relax.Var("updates", relax.TensorType(update_shape, workload.dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [data, index, updates]):
        with builder.dataflow():
            if _has_lines(workload):
                call = ops.scatter_elements(data, index, updates, 1, workload.reduction)
            else:
                call = ops.index_put(data, [index], updates, [1], workload.reduction)
            result = builder.emit_output(builder.emit(call))
        builder.emit_func_output(result)
    return builder.get()


def _over(times: dict[str, float], policy: str) -> str:
    """The overhead over a call without a check."""
    return "" if policy == "trust" else f" ({100 * (times[policy] / times['trust'] - 1):+.0f} %)"


if __name__ == "__main__":
    sys.exit(main())
