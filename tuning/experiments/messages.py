"""What a scatter gains that computes its messages itself, on this machine.

``python -m tvm_scatter.tuning.experiments.messages --json FILE --markdown FILE``

Each row gathers features of nodes, computes a message for each edge and reduces the messages of
each node: with the messages in memory, computed by the scatter, and by PyTorch. The last columns
are the implementations that can compute the messages, each forced.
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
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.machine import describe
from tvm_scatter.tuning.measure.sampling import Budget
from tvm_scatter.tuning.operands.distributions import draw_indices

from . import program
from .chains import used_bytes

_NODES, _EDGES, _FEATURES = 100_000, 1_000_000, 128
_DTYPES = ("float32", "bfloat16")
_DISTRIBUTIONS = ("uniform", "zipf(1.2)")
_BUDGET = Budget(fewest=3, most=9, seconds=0.05, patience=0.25)
#: Those that compute rows of features and serve more than special cases.
_IMPLEMENTATIONS = ("bucketed", "grouped", "segmented", "parallel_injective", "sort_based")
_TENSORS = ("x", "weight", "src", "dst")
#: How far a sum may be off: the messages are rounded alike, their sums in different orders.
_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Message:
    """One kind of message and how it is reduced.

    Attributes
    ----------
    reduction : str
        How the messages of a node are combined.
    emit : callable
        Emits the message in Relax, given a builder's ``emit`` and the tensors.
    torch : callable
        The same in PyTorch, given the tensors.
    """

    reduction: str
    emit: Callable[..., Any]
    torch: Callable[..., Any]


def _take(emit: Callable[[Any], Any], x: Any, index: Any) -> Any:
    return emit(relax.op.take(x, index, axis=0))


def _weighted(emit: Callable[[Any], Any], x: Any, weight: Any, src: Any, _dst: Any) -> Any:
    return emit(relax.op.multiply(_take(emit, x, src), emit(relax.op.expand_dims(weight, 1))))


def _plain(emit: Callable[[Any], Any], x: Any, _weight: Any, src: Any, _dst: Any) -> Any:
    return _take(emit, x, src)


def _difference(emit: Callable[[Any], Any], x: Any, _weight: Any, src: Any, dst: Any) -> Any:
    difference = emit(relax.op.subtract(_take(emit, x, dst), _take(emit, x, src)))
    return emit(relax.op.nn.relu(difference))


def _exponential(emit: Callable[[Any], Any], x: Any, weight: Any, src: Any, _dst: Any) -> Any:
    factor = emit(relax.op.expand_dims(emit(relax.op.exp(weight)), 1))
    return emit(relax.op.multiply(_take(emit, x, src), factor))


def _gated(emit: Callable[[Any], Any], x: Any, _weight: Any, src: Any, dst: Any) -> Any:
    gate = emit(relax.op.sigmoid(_take(emit, x, dst)))
    return emit(relax.op.multiply(_take(emit, x, src), gate))


MESSAGES = {
    "weighted sum": Message("add", _weighted, lambda x, w, s, d: x[s] * w[:, None]),
    "sum": Message("add", _plain, lambda x, w, s, d: x[s]),
    "mean": Message("mean", _plain, lambda x, w, s, d: x[s]),
    "max": Message("max", _plain, lambda x, w, s, d: x[s]),
    "EdgeConv, max": Message("max", _difference, lambda x, w, s, d: (x[d] - x[s]).relu()),
    "exponential weights": Message("add", _exponential, lambda x, w, s, d: x[s] * w.exp()[:, None]),
    "gated sum": Message("add", _gated, lambda x, w, s, d: x[s] * x[d].sigmoid()),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("messages")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--no-torch-compile", action="store_true")
    parsed = parser.parse_args(arguments)
    program.need_gpu("messages")
    machines = {"unfused": compiled(fuse=False), "fused": compiled()}
    machines |= {each: compiled(implementation=each) for each in _IMPLEMENTATIONS}
    rows = []
    for dtype in _DTYPES:
        for name, message in MESSAGES.items():
            peers = peers_of(message, not parsed.no_torch_compile)
            for distribution in _DISTRIBUTIONS:
                tensors = draw(dtype, distribution)
                row = measured(function_name(name, dtype), message, machines, peers, tensors)
                rows.append({"message": name, "dtype": dtype, "indices": distribution, **row})
                print(rows[-1], flush=True)
    figures = {"machine": describe("cuda"), "rows": rows}
    program.publish(markdown(figures), figures, parsed)
    return 0


def function_name(message: str, dtype: str) -> str:
    """The name of a message's function."""
    return "".join(part for part in f"{message} {dtype}" if part.isalnum())


def compiled(fuse: bool = True, implementation: str | None = None) -> Any:
    """The messages that an implementation takes, one function each, compiled for this GPU."""
    builder = relax.BlockBuilder()
    for dtype in _DTYPES:
        for name, message in MESSAGES.items():
            add_function(builder, function_name(name, dtype), message, dtype)
    module, target = builder.get(), gpu_target()
    if implementation is not None:
        module = taken_by(implementation, module, target)
    pipeline = tvm_scatter.pipeline(target, fuse=fuse, implementation=implementation)
    with quiet():
        executable = tvm.compile(module, target=target, relax_pipeline=pipeline)
    return relax.VirtualMachine(executable, tvm.cuda(0))


def taken_by(implementation: str, module: tvm.IRModule, target: Any) -> tvm.IRModule:
    """The functions of a module whose fused scatter an implementation can compute."""
    with tvm_scatter.options(fuse=True):
        explanations = tvm_scatter.explain(module, target)
    names = [
        each.where.split(".")[0]
        for each in explanations
        if implementation == each.implementation
        or each.alternatives.get(implementation, "it is no alternative") is None
    ]
    return tvm.IRModule({name: module[name] for name in names})


def add_function(builder: relax.BlockBuilder, name: str, message: Message, dtype: str) -> None:
    """Add the function of a message, from features, weights and edges to the reduced messages."""
    shapes = ([_NODES, _FEATURES], [_EDGES], [_EDGES], [_EDGES])
    types = (dtype, dtype, "int64", "int64")
    parameters = [
        relax.Var(each, relax.TensorType(shape, of))
        for each, shape, of in zip(_TENSORS, shapes, types, strict=True)
    ]
    with builder.function(name, parameters):
        with builder.dataflow():
            updates = message.emit(builder.emit, *parameters)
            zeros = builder.emit(relax.op.zeros([_NODES, _FEATURES], dtype))
            result = index_put(
                zeros,
                [parameters[3]],
                updates,
                [0],
                message.reduction,
                include_self=message.reduction == "add",
            )
            output = builder.emit_output(result)
        builder.emit_func_output(output)


def draw(dtype: str, distribution: str) -> list[Any]:
    """Features, weights, sources and destinations as PyTorch tensors on the GPU."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    kind = getattr(torch, dtype)
    x = torch.randn(_NODES, _FEATURES, generator=generator, device="cuda").to(kind)
    weight = torch.rand(_EDGES, generator=generator, device="cuda").to(kind)
    src = torch.from_numpy(draw_indices("uniform", _NODES, _EDGES, seed=1)).cuda()
    dst = torch.from_numpy(draw_indices(distribution, _NODES, _EDGES, seed=2)).cuda()
    return [x, weight, src, dst]


def reduced(message: Message, x: Any, weight: Any, src: Any, dst: Any) -> Any:
    """What PyTorch computes, as its users write it."""
    import torch

    updates = message.torch(x, weight, src, dst)
    zeros = torch.zeros_like(x)
    if message.reduction == "max":
        index = dst[:, None].expand_as(updates)
        return zeros.scatter_reduce(0, index, updates, "amax", include_self=False)
    sums = zeros.index_add(0, dst, updates)
    if message.reduction == "add":
        return sums
    ones = torch.ones_like(dst, dtype=x.dtype)
    counts = torch.zeros(len(x), dtype=x.dtype, device=x.device).index_add(0, dst, ones)
    return sums / counts.clamp(min=1)[:, None]


def peers_of(message: Message, with_compile: bool) -> dict[str, Callable[..., Any]]:
    """PyTorch's forms of a message."""
    import torch

    eager = partial(reduced, message)
    forms: dict[str, Callable[..., Any]] = {"torch": eager}
    if with_compile:
        torch._dynamo.reset()
        forms["torch.compile"] = torch.compile(eager, dynamic=False)
    return forms


def measured(
    name: str,
    message: Message,
    machines: Mapping[str, Any],
    peers: Mapping[str, Callable[..., Any]],
    tensors: Sequence[Any],
) -> dict[str, float]:
    """Microseconds of each form on the device, and the memory of ours in MiB.

    An implementation that does not take the message has none.
    """
    inputs = [tvm.runtime.from_dlpack(each) for each in tensors]
    wanted = expected(message, tensors)
    figures: dict[str, float] = {}
    for form, machine in machines.items():
        try:
            function = machine[name]
        except AttributeError:
            continue
        before = used_bytes()
        check(f"{name}, {form}", function(*inputs), wanted, str(inputs[0].dtype))
        if form in ("unfused", "fused"):
            figures[f"{form}, MiB"] = max(used_bytes() - before, 0) / (1 << 20)
        figures[form] = call_times.on_gpu(partial(function, *inputs), _BUDGET).device
    del wanted
    for form, peer in peers.items():
        peer(*tensors)
        figures[form] = call_times.on_gpu(partial(peer, *tensors), _BUDGET).device
    return figures


def expected(message: Message, tensors: Sequence[Any]) -> Any:
    """The result in float32, of messages that are rounded to the data type."""
    x, weight, src, dst = tensors
    rounded = Message(message.reduction, message.emit, lambda *_: updates)
    updates = message.torch(x, weight, src, dst).float()
    return reduced(rounded, x.float(), weight, src, dst)


def check(name: str, result: Any, wanted: Any, dtype: str) -> None:
    """Raise if a result is wrong."""
    import torch

    tolerance = _TOLERANCE[dtype]
    found = torch.from_dlpack(result).float()
    wrong = int((~torch.isclose(found, wanted, rtol=tolerance, atol=10 * tolerance)).sum())
    if wrong:
        raise ScatterError(f"messages: {name}: {wrong} of {found.numel()} numbers are wrong.")


def markdown(figures: Mapping[str, Any]) -> str:
    """The figures as a table."""
    machine = ", ".join(f"{name} {value}" for name, value in figures["machine"].items())
    known = {form: None for row in figures["rows"] for form in row}
    forms = [form for form in known if form not in ("message", "dtype", "indices")]
    lines = [
        f"Measured on: {machine}.",
        "",
        f"{_NODES:,} nodes, {_EDGES:,} edges, {_FEATURES} features; microseconds on the device.",
        "",
        f"| message | type | destinations | {' | '.join(forms)} |",
        f"|---|---|---|{'--:|' * len(forms)}",
    ]
    for row in figures["rows"]:
        numbers = " | ".join(f"{row[form]:,.0f}" if form in row else "" for form in forms)
        lines.append(f"| {row['message']} | {row['dtype']} | {row['indices']} | {numbers} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
