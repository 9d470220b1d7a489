"""What the kernel cache and CUDA graphs gain on this machine.

``python -m tvm_scatter.tuning.experiments.compile_once --json FILE --markdown FILE``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tvm_scatter import graphed, options
from tvm_scatter.errors import ScatterError
from tvm_scatter.runtime import kernel_cache
from tvm_scatter.runtime.kernel_cache import settings
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.tuning.measure.machine import describe
from tvm_scatter.tuning.measure.sampling import Budget, Summary
from tvm_scatter.tuning.measure.wall_time import to_result

from . import program

_CALLBACK = "tvm_callback_cuda_compile"
_MODEL = "GraphSAGE mean"
_PROCESSES = 16
LAYERS = 12
_REPLAYS = 1000
#: Nodes, edges and features: a molecule, and a graph that fills the GPU.
SIZES = {"small": (32, 64, 64), "large": (200_000, 400_000, 64)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("compile_once")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--build", action="store_true", help="build the model once and say so")
    parsed = parser.parse_args(arguments)
    program.need_gpu("compile_once")
    if parsed.build:
        print(json.dumps(build()))
        return 0
    figures = {"machine": machine()}
    for part in (builds, lambda: {"latency": latencies()}):
        figures |= part()
        # Whoever stops this halfway has the first half.
        print(json.dumps(figures), file=sys.stderr, flush=True)
    program.publish(markdown(figures), figures, parsed)
    return 0


def machine() -> dict[str, Any]:
    """The machine that this is measured on."""
    from tvm_scatter.runtime.cuda_toolkit import nvrtc_version

    return {**describe("cuda"), "nvrtc": nvrtc_version(), "cores": os.cpu_count()}


# The kernel cache


def build() -> dict[str, Any]:
    """Build the model in this process: seconds of that and of compiling CUDA, and cache hits."""
    from tvm_scatter.demo import demo_models
    from tvm_scatter.demo.compare import export, import_program, make

    (model,) = (model for model in demo_models() if model.name == _MODEL)
    module = import_program(export(*make(model, "full")))
    compiler = tvm_ffi.get_global_func(_CALLBACK)
    spent: list[float] = []

    def timed(source: str) -> Any:
        start = time.perf_counter()
        try:
            return compiler(source)
        finally:
            spent.append(time.perf_counter() - start)

    tvm_ffi.register_global_func(_CALLBACK, timed, override=True)
    start = time.perf_counter()
    with quiet():
        tvm.compile(module, target=gpu_target())
    return {
        "build": time.perf_counter() - start,
        "compile": sum(spent),
        "compiled": kernel_cache.statistics.compiled,
        "from_disk": kernel_cache.statistics.disk,
    }


def builds() -> dict[str, Any]:
    """The same build in new processes: without the cache, first, second, and many at once."""
    with tempfile.TemporaryDirectory() as folder:
        # Once for the operating system, which keeps the files of the compiler from then on.
        _finish(_start(folder, **{settings.SWITCH: "0"}))
        found: dict[str, Any] = {
            "model": _MODEL,
            "without": _finish(_start(folder, **{settings.SWITCH: "0"})),
            "first": _finish(_start(folder)),
            "second": _finish(_start(folder)),
        }
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        at_once = [_finish(child) for child in [_start(folder) for _ in range(_PROCESSES)]]
        found["at_once"] = {
            "processes": _PROCESSES,
            "seconds": time.perf_counter() - begin,
            "compiled": sum(done["compiled"] for done in at_once),
            "from_disk": sum(done["from_disk"] for done in at_once),
            "kept": len(kernel_cache.Store(Path(folder) / "kernels", 1 << 30).entries()),
        }
    return found


def _start(folder: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tvm_scatter.tuning.experiments.compile_once", "--build"]
    variables = {**os.environ, settings.FOLDER: folder, **environment}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)


def _finish(child: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = child.communicate()
    if child.returncode != 0:
        raise ScatterError(f"compile_once: a build ended with status {child.returncode}.")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


# CUDA graphs


def latencies() -> dict[str, Any]:
    """Microseconds of one call of a message-passing network, several ways."""
    return {name: _latency(*size) for name, size in SIZES.items()}


def _latency(nodes: int, edges: int, width: int) -> dict[str, Any]:
    device = tvm.cuda(0)
    module, inputs = message_passing(nodes, edges, width)
    tensors = [tvm.runtime.tensor(array, device) for array in inputs(0)]
    plain, tvms = (_virtual_machine(module, cuda_graph=wanted) for wanted in (False, True))
    call = graphed(plain, "main", tensors)
    out = call(*tensors)
    few = nodes > 10_000
    budget = Budget.exactly(30 if few else 1000)

    def microseconds(call: Callable[[], Any]) -> float:
        return 1e6 * Summary.of(to_result(call, device.sync, budget)).median

    times = {
        "calls": microseconds(lambda: plain["main"](*tensors)),
        "TVM's own graphs": microseconds(lambda: tvms["main"](*tensors)),
        "graphed": microseconds(lambda: call(*tensors)),
        "graphed, given outputs": microseconds(lambda: call(*tensors, out=out)),
        "graphed, inputs and outputs in place": microseconds(call.replay),
    }
    found = {"nodes": nodes, "edges": edges, "features": width, "scatters": LAYERS, "times": times}
    if not few:
        found |= {"replays": _REPLAYS, "equal": _equal_replays(module, inputs)}
    return found


def message_passing(
    nodes: int, edges: int, width: int
) -> tuple[tvm.IRModule, Callable[[int], list[np.ndarray]]]:
    """A network of twelve layers, each a sum over neighbours, and inputs by seed."""
    import torch

    from tvm_scatter.demo.compare import export, import_program

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(LAYERS))

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                summed = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
                x = x + layer(summed).relu()
            return x

    def inputs(seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((nodes, width), dtype="float32")
        return [x, rng.integers(0, nodes, (2, edges))]

    torch.manual_seed(0)
    example = tuple(map(torch.from_numpy, inputs(0)))
    return import_program(export(Network().eval(), example)), inputs


def _virtual_machine(module: tvm.IRModule, **changes: Any) -> relax.VirtualMachine:
    with options(**changes), quiet():
        return relax.VirtualMachine(tvm.compile(module, target=gpu_target()), tvm.cuda(0))


def _equal_replays(module: tvm.IRModule, inputs: Callable[[int], list[np.ndarray]]) -> int:
    """How many replays, each with its own inputs, equal an ordinary call in every bit."""
    machine = _virtual_machine(module, deterministic=True)
    call = graphed(machine, "main", inputs(0))
    equal = 0
    for seed in range(_REPLAYS):
        tensors = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in inputs(seed)]
        expected, found = (_first(run(*tensors)).numpy() for run in (machine["main"], call))
        equal += np.array_equal(found, expected) and bool(np.isfinite(found).all())
    return equal


def _first(result: Any) -> Any:
    return result if isinstance(result, tvm.runtime.Tensor) else result[0]


# The report


def markdown(figures: dict[str, Any]) -> str:
    """The figures for readers."""
    facts, at_once = figures["machine"], figures["at_once"]
    ratio = figures["first"]["compile"] / figures["second"]["compile"]
    lines = [
        f"{facts['device']}, driver {facts['driver']}, {facts['cores']} cores, TVM {facts['tvm']}, "
        f"nvrtc {facts['nvrtc']}. By `python -m tvm_scatter.tuning.experiments.compile_once`.",
        "",
        f"| {figures['model']}, each build in a new process | compiling CUDA | whole build |",
        "|---|--:|--:|",
        *(
            f"| {label} | {figures[name]['compile']:.3f} s | {figures[name]['build']:.2f} s |"
            for name, label in (
                ("without", "without the cache"),
                ("first", "first, the cache is empty"),
                ("second", "second"),
            )
        ),
        "",
        f"Compiling CUDA takes the second {ratio:.1f} times less than the first. "
        f"{at_once['processes']} builds at once: {at_once['compiled']} compiled, "
        f"{at_once['from_disk']} read, {at_once['kept']} kept.",
        "",
        "| microseconds of a call, with the wait for it | "
        + " | ".join(
            f"{case['nodes']} nodes, {case['edges']} edges" for case in figures["latency"].values()
        )
        + " |",
        "|---|" + "--:|" * len(figures["latency"]),
    ]
    cases = list(figures["latency"].values())
    for way in cases[0]["times"]:
        cells = (
            f"{case['times'][way]:.0f} ({case['times']['calls'] / case['times'][way]:.2f}x)"
            for case in cases
        )
        lines.append(f"| {way} | {' | '.join(cells)} |")
    replays = [case for case in cases if "replays" in case]
    lines += ["", f"{LAYERS} layers with a scatter each."]
    lines += [
        f"{case['equal']} of {case['replays']} replays, each with new inputs, equal a call in "
        "every bit."
        for case in replays
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
