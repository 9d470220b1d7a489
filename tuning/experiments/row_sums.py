"""How fast sums along rows that are read by index are on this machine's GPU: attention logits.

``python -m tvm_scatter.tuning.experiments.row_sums --json FILE --markdown FILE``

A copy that moves as many bytes as the sum at least must, each row once for each time it is read,
stands beside it. Rows that are read several times may come from the cache, and be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.machine import describe
from tvm_scatter.tuning.operands.distributions import draw_indices

from . import program
from .relax_programs import BUDGET, compiled, copy_time, function_name, markdown, module, peers_of

_NODES, _EDGES = 100_000, 1_000_000
_ROWS = ((1, 32), (4, 32), (1, 128), (8, 64))
_DTYPES = ("float32", "bfloat16")
_DISTRIBUTIONS = ("uniform", "zipf(1.2)", "sorted")
#: The options that each form of ours is compiled with.
_FORMS: Mapping[str, Mapping[str, Any]] = {"ours": {"row_sums": True}, "apart": {"row_sums": False}}
#: The largest difference from float32, over the largest number.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Program:
    """What is computed, from which tensors.

    Attributes
    ----------
    row : tuple of int
        Heads, and the features of each.
    dtype : str
        The data type of what is read.
    build : callable
        Emits it in Relax, given a builder's ``emit``, two tensors of nodes, one row for all, and
        the nodes that each edge leaves and reaches.
    torch : callable
        The same in PyTorch, given the tensors.
    """

    row: tuple[int, int]
    dtype: str
    build: Callable[..., Any]
    torch: Callable[..., Any]

    def shapes(self) -> list[tuple[tuple[int, ...], str]]:
        """The shapes and types of the tensors."""
        nodes = ((_NODES, *self.row), self.dtype)
        return [nodes, nodes, ((1, *self.row), self.dtype), *[((_EDGES,), "int64")] * 2]

    def moved(self) -> int:
        """The bytes that it reads and writes, each row once for each time it is read."""
        heads, features = self.row
        width = tvm.DataType(self.dtype).bits // 8
        return _EDGES * (2 * heads * features * width + heads * width + 16)


def _additive(emit: Any, x: Any, y: Any, attention: Any, src: Any, dst: Any) -> Any:
    """The logits of GATv2."""
    rows = emit(relax.op.add(emit(relax.op.take(x, src, 0)), emit(relax.op.take(y, dst, 0))))
    rows = emit(relax.op.multiply(emit(relax.op.nn.leakyrelu(rows, 0.2)), attention))
    return emit(relax.op.sum(rows, [-1]))


def _torch_additive(x: Any, y: Any, attention: Any, src: Any, dst: Any) -> Any:
    import torch

    return (torch.nn.functional.leaky_relu(x[src] + y[dst], 0.2) * attention).sum(-1)


def _products(emit: Any, x: Any, y: Any, _attention: Any, src: Any, dst: Any) -> Any:
    """The logits of TransformerConv."""
    rows = emit(relax.op.take(x, src, 0)), emit(relax.op.take(y, dst, 0))
    return emit(relax.op.sum(emit(relax.op.multiply(*rows)), [-1]))


def _torch_products(x: Any, y: Any, _attention: Any, src: Any, dst: Any) -> Any:
    return (x[src] * y[dst]).sum(-1)


PROGRAMS: Mapping[str, Program] = {
    f"{name}, {heads} x {features}, {dtype}": Program((heads, features), dtype, build, torch)
    for name, build, torch in (
        ("GATv2", _additive, _torch_additive),
        ("products", _products, _torch_products),
    )
    for dtype in _DTYPES
    for heads, features in _ROWS
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("row_sums")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--no-torch-compile", action="store_true")
    parsed = parser.parse_args(arguments)
    program.need_gpu("row_sums")
    mod = module({name: (each.shapes(), each.build) for name, each in PROGRAMS.items()})
    machines = {form: compiled(mod, gpu_target(), **options) for form, options in _FORMS.items()}
    rows = []
    for name, each in PROGRAMS.items():
        peers = peers_of(each.torch, not parsed.no_torch_compile)
        for distribution in _DISTRIBUTIONS:
            figures = measured(name, each, machines, peers, draw(each, distribution))
            rows.append({"program": name, "indices": distribution, **figures})
            print(rows[-1], flush=True)
    report = {"machine": describe("cuda"), "rows": rows}
    setting = f"{_EDGES:,} edges between {_NODES:,} nodes"
    program.publish(markdown(report, setting, "destinations"), report, parsed)
    return 0


def draw(each: Program, distribution: str) -> list[Any]:
    """The tensors as PyTorch tensors on the GPU. Edges leave any node."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    values = [
        torch.randn(*shape, generator=generator, device="cuda").to(getattr(torch, dtype))
        for shape, dtype in each.shapes()
        if dtype != "int64"
    ]
    kind = "uniform" if distribution == "sorted" else distribution
    src, dst = draw_indices("uniform", _NODES, _EDGES, seed=1), draw_indices(kind, _NODES, _EDGES)
    dst = np.sort(dst) if distribution == "sorted" else dst
    return [*values, *(torch.from_numpy(index).cuda() for index in (src, dst))]


def measured(
    name: str,
    each: Program,
    machines: Mapping[str, Any],
    peers: Mapping[str, Callable[..., Any]],
    tensors: Sequence[Any],
) -> dict[str, float]:
    """Microseconds of each form on the device."""
    inputs = [tvm.runtime.from_dlpack(tensor) for tensor in tensors]
    wide = (tensor.float() if tensor.is_floating_point() else tensor for tensor in tensors)
    wanted = each.torch(*wide)
    figures: dict[str, float] = {}
    for form, machine in machines.items():
        function = machine[function_name(name)]
        # TVM's own sums in 16 bits need the threads of a warp to run in step, which CUDA does not
        # promise; so they are not checked.
        if form == "ours" or each.dtype == "float32":
            check(f"{name}, {form}", function(*inputs), wanted, each.dtype)
        figures[form] = call_times.on_gpu(partial(function, *inputs), BUDGET).device
    del wanted
    for form, peer in peers.items():
        peer(*tensors)
        figures[form] = call_times.on_gpu(partial(peer, *tensors), BUDGET).device
    figures["copy"] = copy_time(each.moved())
    return figures


def check(name: str, result: Any, wanted: Any, dtype: str) -> None:
    """Raise if a result is not PyTorch's in float32, but for rounding."""
    import torch

    error = float((torch.from_dlpack(result).float() - wanted).abs().max() / wanted.abs().max())
    if not error <= _TOLERANCES[dtype]:
        raise ScatterError(f"row_sums: {name}: the largest error is {error:.1e} of the largest.")


if __name__ == "__main__":
    raise SystemExit(main())
