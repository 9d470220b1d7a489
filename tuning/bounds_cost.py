"""What the policies for bad indices cost on the workloads of the benchmark.

::

    python -m tvm_scatter.tuning.bounds_cost --device cuda --markdown bounds.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import tvm
from tvm import relax

from tvm_scatter import ops
from tvm_scatter.errors import ScatterError
from tvm_scatter.options import options
from tvm_scatter.quiet import quiet
from tvm_scatter.targets import gpu_target, host_target
from tvm_scatter.tuning.bench import make_tensors
from tvm_scatter.tuning.machine import describe
from tvm_scatter.tuning.timing import time_on_cpu, time_on_gpu
from tvm_scatter.tuning.workloads import SCALE, WORKLOADS, Workload

POLICIES = ("trust", "drop", "raise")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.bounds_cost")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--filter", default="", metavar="TEXT", help="workloads with TEXT in them")
    parser.add_argument("--markdown", metavar="FILE")
    parsed = parser.parse_args(arguments)
    if parsed.device == "cuda" and gpu_target() is None:
        raise SystemExit("bounds_cost: there is no CUDA device here.")
    wanted = [w for w in WORKLOADS if parsed.filter in w.name and not w.deterministic]
    lines = [
        "| workload | trust | drop | raise | in place: trust | drop | raise |",
        "|---|" + "--:|" * 6,
    ]
    for workload in wanted:
        if SCALE[parsed.device] > 1:
            workload = workload.scaled(SCALE[parsed.device])
        cells = []
        for donate in (False, True):
            times = cost(workload, parsed.device, donate)
            cells += [f"{times[policy]:.1f}{_over(times, policy)}" for policy in POLICIES]
        lines.append(f"| {workload.name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    facts = describe("cuda" if parsed.device == "cuda" else "llvm")
    lines += ["", "Microseconds on " + ", ".join(f"{k} {v}" for k, v in facts.items()) + "."]
    if parsed.markdown:
        Path(parsed.markdown).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def cost(workload: Workload, device: str, donate: bool) -> dict[str, float]:
    """Microseconds of a call under each policy.

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
    on_gpu = device == "cuda"
    target = gpu_target() if on_gpu else host_target()
    times = {}
    for policy in POLICIES:
        with options(bounds=policy, donate=("data",) if donate else ()), quiet():
            executable = tvm.compile(_module(workload), target=target)
        machine = relax.VirtualMachine(executable, tvm.cuda(0) if on_gpu else tvm.cpu())
        function = machine["main"]
        timing = time_on_gpu if on_gpu else time_on_cpu
        times[policy] = timing(partial(function, *operands)).device
    return times


def _shapes(workload: Workload) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Of data, updates and index."""
    shape = (workload.batch, workload.extent, workload.slice)
    update_shape = (workload.batch, workload.count, workload.slice)
    return shape, update_shape, update_shape if workload.per_batch else (workload.count,)


def _module(workload: Workload) -> tvm.IRModule:
    shape, update_shape, index_shape = _shapes(workload)
    data = relax.Var("data", relax.TensorType(shape, workload.dtype))
    index = relax.Var("index", relax.TensorType(index_shape, "int64"))
    updates = relax.Var("updates", relax.TensorType(update_shape, workload.dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [data, index, updates]):
        with builder.dataflow():
            if workload.per_batch:
                call = ops.scatter_elements(data, index, updates, 1, workload.reduction)
            else:
                call = ops.index_put(data, [index], updates, [1], workload.reduction)
            result = builder.emit_output(builder.emit(call))
        builder.emit_func_output(result)
    return builder.get()


def _over(times: dict[str, float], policy: str) -> str:
    """How much longer than without any check."""
    return "" if policy == "trust" else f" ({100 * (times[policy] / times['trust'] - 1):+.0f} %)"


if __name__ == "__main__":
    sys.exit(main())
