"""What the policies for bad indices cost on the workloads of the benchmark and in a network.

Three times of a call: on the device, from its first kernel to where the next call's can begin; the
same where the data is overwritten; and until the host has waited for the result. Under ``raise``
the host knows more when it goes on than under the other two, which the third makes up for.

::

    python -m tvm_scatter.tuning.bounds_cost --device cuda --markdown bounds.md
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import tvm
from tvm import relax

from tvm_scatter import ops
from tvm_scatter.errors import ScatterError
from tvm_scatter.options import options
from tvm_scatter.quiet import quiet
from tvm_scatter.targets import gpu_target, host_target
from tvm_scatter.tuning.bench import make_tensors
from tvm_scatter.tuning.compile_once import message_passing
from tvm_scatter.tuning.machine import describe
from tvm_scatter.tuning.timing import time_on_cpu, time_on_gpu
from tvm_scatter.tuning.workloads import SCALE, WORKLOADS, Workload

POLICIES = ("trust", "drop", "raise")
#: Nodes, edges and features.
NETWORKS = {"12 layers, 32 nodes": (32, 64, 64), "12 layers, 200 000 nodes": (200_000, 400_000, 64)}
_CALLS = 50

#: Microseconds by policy.
Times = dict[str, float]


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
        "| workload | trust | drop | raise | in place: trust | drop | raise "
        "| until the host has it: trust | drop | raise |",
        "|---|" + "--:|" * 9,
    ]
    for workload in wanted:
        if SCALE[parsed.device] > 1:
            workload = workload.scaled(SCALE[parsed.device])
        device, wait = cost(workload, parsed.device)
        in_place, _ = cost(workload, parsed.device, donate=True)
        lines.append(_line(workload.name, device, in_place, wait))
        print(lines[-1], flush=True)
    if parsed.device == "cuda":
        for name, size in NETWORKS.items():
            if parsed.filter in name:
                device, wait = network_cost(*size)
                lines.append(_line(name, device, {}, wait))
                print(lines[-1], flush=True)
    facts = describe("cuda" if parsed.device == "cuda" else "llvm")
    lines += ["", "Microseconds on " + ", ".join(f"{k} {v}" for k, v in facts.items()) + "."]
    if parsed.markdown:
        Path(parsed.markdown).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def _line(name: str, *groups: Times) -> str:
    cells = [
        f"{times[policy]:.1f}{_over(times, policy)}" if times else ""
        for times in groups
        for policy in POLICIES
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def cost(workload: Workload, device: str, donate: bool = False) -> tuple[Times, Times]:
    """Microseconds of a call under each policy: on the device, and until the host has the result.

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
    return _under_each_policy(_module(workload), operands, device, ("data",) if donate else ())


def network_cost(nodes: int, edges: int, features: int) -> tuple[Times, Times]:
    """The same for a message-passing network of twelve layers, on a GPU."""
    module, inputs = message_passing(nodes, edges, features)
    operands = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in inputs(0)]
    return _under_each_policy(module, operands, "cuda")


def _under_each_policy(
    module: tvm.IRModule, operands: Sequence[Any], device: str, donate: tuple[str, ...] = ()
) -> tuple[Times, Times]:
    on_gpu = device == "cuda"
    target = gpu_target() if on_gpu else host_target()
    where = tvm.cuda(0) if on_gpu else tvm.cpu()
    on_device, until_known = {}, {}
    for policy in POLICIES:
        with options(bounds=policy, donate=donate), quiet():
            executable = tvm.compile(module, target=target)
        call = partial(relax.VirtualMachine(executable, where)["main"], *operands)
        timing = time_on_gpu if on_gpu else time_on_cpu
        on_device[policy] = timing(call).device
        until_known[policy] = _until_known(call, where)
    return on_device, until_known


def _until_known(call: Callable[[], Any], device: Any) -> float:
    """The median time of a call and of waiting for it; caches are as the last call left them."""
    times = []
    for _ in range(_CALLS):
        device.sync()
        begin = time.perf_counter()
        call()
        device.sync()
        times.append(1e6 * (time.perf_counter() - begin))
    return median(times)


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
