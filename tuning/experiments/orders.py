"""What scatters by one index gain that share one order of their updates, on this machine.

``python -m tvm_scatter.tuning.experiments.orders --json FILE --markdown FILE``

The features and edges are those of ``tvm-scatter bench --models``. Each program is run with an
order that the caller made before (``given``), with one that is made once (``shared``), with one in
each scatter (``own``), and by PyTorch; cuSPARSE gets a CSR that was made before. The zeros that
they begin with are in memory, or written by the scatter (``filled``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax

import tvm_scatter
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.reductions import REDUCTIONS
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.machine import describe
from tvm_scatter.tuning.measure.sampling import Budget

from . import program
from .relax_programs import compiled, peers_of

_DTYPES = ("float32", "bfloat16")
_DISTRIBUTIONS = ("uniform", "zipf(1.2)")
_BUDGET = Budget(fewest=3, most=9, seconds=0.05, patience=0.25)
#: Enough of them for an order to pay that is made once.
_LAYERS = 6
#: The options of each form; ``given`` takes the order as an argument.
_FORMS: dict[str, dict[str, Any]] = {
    "given": {"fuse": True},
    "given, filled": {"fuse": True, "fill": True},
    "shared": {"fuse": True, "share_order": True},
    "shared, filled": {"fuse": True, "share_order": True, "fill": True},
    "own": {"fuse": True},
    "own, filled": {"fuse": True, "fill": True},
}
#: How far a result may be off, as a part of its norm.
_TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Program:
    """Scatters by one index.

    Attributes
    ----------
    emit : callable
        Emits them in Relax, given a :class:`_Graph`.
    torch : callable
        The same in PyTorch, given features, weights, sources and destinations.
    layers : int
        How many products with the sparse matrix of the graph it is; 0 if it is something else.
    """

    emit: Callable[[_Graph], Any]
    torch: Callable[..., Any]
    layers: int = 0


@dataclass(frozen=True)
class _Graph:
    """The tensors of a program and a builder's ``emit``."""

    emit: Callable[[Any], Any]
    x: Any
    weight: Any
    src: Any
    dst: Any
    ordering: Any

    def scatter(self, messages: Any, reduction: str = "add") -> Any:
        """The messages of each node, reduced."""
        shape = [self.x.ty.shape[0], *messages.ty.shape.values[1:]]
        zeros = self.emit(relax.op.zeros(shape, messages.ty.dtype))
        return self.emit(
            index_put(
                zeros,
                [self.dst],
                messages,
                [0],
                reduction,
                include_self=not REDUCTIONS[reduction].is_extreme,
                ordering=self.ordering,
            )
        )

    def weighted(self, x: Any, weight: Any) -> Any:
        """The features of the sources, times a weight for each edge."""
        rows = self.emit(relax.op.take(x, self.src, axis=0))
        return self.emit(relax.op.multiply(rows, self.emit(relax.op.expand_dims(weight, 1))))


def _layers(graph: _Graph, count: int) -> Any:
    x = graph.x
    for _ in range(count):
        x = graph.scatter(graph.weighted(x, graph.weight))
    return x


def _torch_layers(count: int, x: Any, weight: Any, src: Any, dst: Any) -> Any:
    for _ in range(count):
        x = x.new_zeros(x.shape).index_add(0, dst, x[src] * weight[:, None])
    return x


def _softmax(graph: _Graph) -> Any:
    """The sum of features, weighted by a softmax over the edges of each node."""
    emit, dst = graph.emit, graph.dst
    most = emit(relax.op.take(graph.scatter(graph.weight, "max"), dst, axis=0))
    raised = emit(relax.op.exp(emit(relax.op.subtract(graph.weight, most))))
    total = emit(relax.op.take(graph.scatter(raised), dst, axis=0))
    return graph.scatter(graph.weighted(graph.x, emit(relax.op.divide(raised, total))))


def _torch_softmax(x: Any, weight: Any, src: Any, dst: Any) -> Any:
    most = weight.new_zeros(len(x)).scatter_reduce(0, dst, weight, "amax", include_self=False)
    raised = (weight - most[dst]).exp()
    total = weight.new_zeros(len(x)).index_add(0, dst, raised)
    shares = raised / total[dst]
    return x.new_zeros(x.shape).index_add(0, dst, x[src] * shares[:, None])


PROGRAMS = {
    "weighted sum": Program(partial(_layers, count=1), partial(_torch_layers, 1), 1),
    f"{_LAYERS} layers": Program(
        partial(_layers, count=_LAYERS), partial(_torch_layers, _LAYERS), _LAYERS
    ),
    "edge softmax": Program(_softmax, _torch_softmax),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("orders")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--no-torch-compile", action="store_true")
    parsed = parser.parse_args(arguments)
    program.need_gpu("orders")
    orders, rows = [], []
    for dtype in _DTYPES:
        machines: dict[str, Any] = {}
        peers = {
            name: peers_of(each.torch, not parsed.no_torch_compile)
            for name, each in PROGRAMS.items()
        }
        for distribution in _DISTRIBUTIONS:
            tensors = draw(dtype, distribution)
            machines = machines or {
                form: compiled(module(form, tensors), gpu_target(), **_FORMS[form])
                for form in _FORMS
            }
            if dtype == _DTYPES[0]:
                orders.append({"indices": distribution, **order_times(machines["own"], tensors)})
                print(orders[-1], flush=True)
            for name, each in PROGRAMS.items():
                figures = measured(name, each, machines, peers[name], tensors)
                rows.append({"program": name, "dtype": dtype, "indices": distribution, **figures})
                print(rows[-1], flush=True)
    found = {"machine": describe("cuda"), "orders": orders, "rows": rows}
    program.publish(markdown(found), found, parsed)
    return 0


def draw(dtype: str, distribution: str) -> list[Any]:
    """Features, weights, sources and destinations of edges as PyTorch tensors on the GPU."""
    import torch

    from tvm_scatter.tuning.bench.models import graph

    drawn = graph.draw(graph.Size(100_000, 1_000_000, distribution), getattr(torch, dtype))
    return [each.cuda() for each in (drawn.x, drawn.weight, drawn.src, drawn.dst)]


def module(form: str, tensors: Sequence[Any]) -> tvm.IRModule:
    """A function for each program, and one that makes an order."""
    x, weight, *_ = tensors
    nodes, edges, dtype = len(x), len(weight), str(x.dtype).removeprefix("torch.")
    builder = relax.BlockBuilder()
    types = {
        "x": relax.TensorType(list(x.shape), dtype),
        "weight": relax.TensorType([edges], dtype),
        "src": relax.TensorType([edges], "int64"),
        "dst": relax.TensorType([edges], "int64"),
    }
    given = {
        "permutation": relax.TensorType([edges], "int32"),
        "offsets": relax.TensorType([nodes + 1], "int32"),
    }
    for name, each in PROGRAMS.items():
        known = types | given if _is_given(form) else types
        of = {key: relax.Var(key, type_) for key, type_ in known.items()}
        with builder.function(function_name(name), list(of.values())):
            with builder.dataflow():
                ordering = tuple(of[key] for key in given if key in of) or None
                graph = _Graph(builder.emit, of["x"], of["weight"], of["src"], of["dst"], ordering)
                result = each.emit(graph)
                output = builder.emit_output(result)
            builder.emit_func_output(output)
    index = relax.Var("dst", types["dst"])
    with builder.function("order", [index]):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(tvm_scatter.order(index, nodes)))
        builder.emit_func_output(output)
    return builder.get()


def _is_given(form: str) -> bool:
    """Whether the order is an argument."""
    return form.startswith("given")


def function_name(name: str) -> str:
    """The name of a program's function."""
    return "program_" + "".join(part for part in name if part.isalnum())


def order_times(machine: Any, tensors: Sequence[Any]) -> dict[str, float]:
    """Microseconds of an order by this package and by PyTorch."""
    nodes, dst = len(tensors[0]), tensors[3]
    index = tvm.runtime.from_dlpack(dst)
    for ours, theirs in zip(machine["order"](index), torch_order(dst, nodes), strict=True):
        if not bool((_tensor(ours) == theirs).all()):
            raise ScatterError("orders: an order is wrong.")
    return {
        "order": call_times.on_gpu(partial(machine["order"], index), _BUDGET).device,
        "torch": call_times.on_gpu(partial(torch_order, dst, nodes), _BUDGET).device,
    }


def torch_order(dst: Any, nodes: int) -> tuple[Any, Any]:
    """The permutation and the offsets, by PyTorch."""
    import torch

    ordered, permutation = torch.sort(dst, stable=True)
    places = torch.arange(nodes + 1, device=dst.device)
    return permutation.int(), torch.searchsorted(ordered, places, out_int32=True)


def measured(
    name: str,
    each: Program,
    machines: Mapping[str, Any],
    peers: Mapping[str, Callable[..., Any]],
    tensors: Sequence[Any],
) -> dict[str, float | None]:
    """Microseconds of each form on the device."""
    inputs = [tvm.runtime.from_dlpack(tensor) for tensor in tensors]
    dtype = str(inputs[0].dtype)
    wanted = each.torch(
        *(tensor.float() if tensor.is_floating_point() else tensor for tensor in tensors)
    )
    ordering = list(machines["own"]["order"](inputs[3]))
    figures: dict[str, float | None] = {}
    for form, machine in machines.items():
        call = partial(
            machine[function_name(name)], *inputs, *(ordering if _is_given(form) else [])
        )
        check(f"{name}, {form}", _tensor(call()), wanted, dtype)
        figures[form] = call_times.on_gpu(call, _BUDGET).device
    for form, peer in peers.items():
        # In 16 bits PyTorch's own sums are off by a quarter of their norm, so they are not checked.
        peer(*tensors)
        figures[form] = call_times.on_gpu(partial(peer, *tensors), _BUDGET).device
    figures["cuSPARSE"] = _sparse(each, tensors, ordering) if each.layers else None
    return figures


def _sparse(each: Program, tensors: Sequence[Any], ordering: Sequence[Any]) -> float:
    """Microseconds of the products with a CSR matrix that was made before."""
    import torch

    x, weight, src, _ = tensors
    permutation, offsets = map(_tensor, ordering)
    at = permutation.long()
    matrix = torch.sparse_csr_tensor(
        offsets, src[at].int(), weight[at].contiguous(), (len(x), len(x)), device=x.device
    )

    def products() -> Any:
        result = x
        for _ in range(each.layers):
            result = matrix @ result
        return result

    products()
    return call_times.on_gpu(products, _BUDGET).device


def check(name: str, result: Any, wanted: Any, dtype: str) -> None:
    """Raise if a result is wrong."""
    off = float((result.float() - wanted).norm() / wanted.norm())
    if not off < _TOLERANCE[dtype]:
        raise ScatterError(f"orders: {name} of {dtype} is off by {off:.2g} of its norm.")


def _tensor(array: Any) -> Any:
    import torch

    return torch.from_dlpack(array)


def markdown(figures: Mapping[str, Any]) -> str:
    """The figures as tables."""
    machine = ", ".join(f"{name} {value}" for name, value in figures["machine"].items())
    lines = [f"Measured on: {machine}. Microseconds on the device.", ""]
    for key, labels in (("orders", 1), ("rows", 3)):
        names = list(figures[key][0])
        lines += [f"| {' | '.join(names)} |", f"|{'---|' * labels}{'--:|' * (len(names) - labels)}"]
        for row in figures[key]:
            numbers = ("-" if row[each] is None else f"{row[each]:,.0f}" for each in names[labels:])
            lines.append(f"| {' | '.join([*(row[each] for each in names[:labels]), *numbers])} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
