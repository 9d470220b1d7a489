"""How fast tensors are put side by side on this machine's GPU, beside TVM's schedule and PyTorch.

``python -m tvm_scatter.tuning.experiments.side_by_side --compile --json FILE --markdown FILE``

A row is appended to a cache of keys, columns beside others, rows are padded, turned around, and so
on, with what follows fused: each with sizes that are known, and with one that the run time knows.
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

from . import program
from .relax_programs import BUDGET, compiled, copy_time, function_name, markdown, module, peers_of

_ROWS = 1_000_000
#: The options that each form of ours is compiled with.
_FORMS: Mapping[str, Mapping[str, Any]] = {"ours": {"gather": True}, "TVM": {"gather": False}}


@dataclass(frozen=True)
class Program:
    """What is computed, from which tensors.

    Attributes
    ----------
    shapes : tuple of shape
        The tensors.
    dtype : str
        Their data type.
    unknown : mapping of tuple of int to str
        The sizes, by tensor and axis, that may be known at run time only.
    build, torch : callable
        Emits it in Relax, given a builder's ``emit`` and the tensors; the same in PyTorch.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    unknown: Mapping[tuple[int, int], str]
    build: Callable[..., Any]
    torch: Callable[..., Any]

    def source(self, known: bool) -> Any:
        """The types of the tensors, and what emits the program."""
        names = {} if known else self.unknown
        shapes = [
            [names.get((at, axis), size) for axis, size in enumerate(shape)]
            for at, shape in enumerate(self.shapes)
        ]
        return [(shape, self.dtype) for shape in shapes], self.build


def _concat(axis: int) -> Callable[..., Any]:
    return lambda emit, *parts: emit(relax.op.concat(parts, axis))


def _joined(axis: int) -> Callable[..., Any]:
    import torch

    return lambda *parts: torch.cat(parts, axis)


def _rectified(axis: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    import torch

    return (
        lambda emit, *parts: emit(relax.op.nn.relu(emit(relax.op.concat(parts, axis)))),
        lambda *parts: torch.cat(parts, axis).relu(),
    )


def _rotary(emit: Callable[[Any], Any], x: Any, cos: Any, sin: Any) -> Any:
    half = int(x.ty.shape[3]) // 2
    low, high = (
        emit(relax.op.strided_slice(x, [3], [begin], [begin + half])) for begin in (0, half)
    )
    turned = emit(relax.op.concat((emit(relax.op.negative(high)), low), 3))
    return emit(relax.op.add(emit(relax.op.multiply(x, cos)), emit(relax.op.multiply(turned, sin))))


def _torch_rotary(x: Any, cos: Any, sin: Any) -> Any:
    import torch

    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def _padded(*widths: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    import torch

    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    return (
        lambda emit, x: emit(relax.op.nn.pad(x, list(widths), "constant", 0.0)),
        lambda x: torch.nn.functional.pad(x, [each for pair in pairs[::-1] for each in pair]),
    )


def programs() -> Mapping[str, Program]:
    """All programs by their names."""
    both = {(0, 0): "n", (1, 0): "n"}
    cache = (8, 8, 4095, 128), (8, 8, 1, 128)
    heads = (8, 32, 2048, 128), (2048, 128), (2048, 128)
    rows = (64, 1000, 256)
    six = {(at, 0): "n" for at in range(6)}
    length, turned = {(0, 1): "n"}, {(0, 2): "n", (1, 0): "n", (2, 0): "n"}
    return {
        "a row to a cache, float16": Program(
            cache, "float16", {(0, 2): "n"}, _concat(2), _joined(2)
        ),
        "rotary positions, float16": Program(heads, "float16", turned, _rotary, _torch_rotary),
        "32 and 16 columns, float32": Program(
            ((_ROWS, 32), (_ROWS, 16)), "float32", both, _concat(1), _joined(1)
        ),
        "32 and 16 columns, relu, float32": Program(
            ((_ROWS, 32), (_ROWS, 16)), "float32", both, *_rectified(1)
        ),
        "3 and 64 columns, float32": Program(
            ((_ROWS, 3), (_ROWS, 64)), "float32", both, _concat(1), _joined(1)
        ),
        "6 times 64 columns, float16": Program(
            ((400_000, 64),) * 6, "float16", six, _concat(1), _joined(1)
        ),
        "two lines of edges, int64": Program(
            ((2, 4_000_000), (2, 100_000)),
            "int64",
            {(0, 1): "n", (1, 1): "m"},
            _concat(1),
            _joined(1),
        ),
        "channels of images, relu, float32": Program(
            ((16, 64, 128, 128),) * 2, "float32", both, *_rectified(1)
        ),
        "rows padded, float32": Program((rows,), "float32", length, *_padded(0, 0, 1, 1, 0, 0)),
        "images padded, float32": Program(
            ((16, 64, 112, 112),), "float32", {(0, 0): "n"}, *_padded(0, 0, 0, 0, 1, 1, 1, 1)
        ),
        "rows turned around, float32": Program(
            (rows,), "float32", length, lambda emit, x: emit(relax.op.flip(x, 1)), _flipped
        ),
    }


def _flipped(x: Any) -> Any:
    return x.flip(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("side_by_side")
    parser.add_argument("--compile", action="store_true", help="torch.compile as a peer")
    parser.add_argument("--json", metavar="FILE")
    parsed = parser.parse_args(arguments)
    program.need_gpu("side_by_side")
    rows = []
    for known in (True, False):
        mod = module({name: each.source(known) for name, each in programs().items()})
        machines = {form: compiled(mod, gpu_target(), **each) for form, each in _FORMS.items()}
        for name, each in programs().items():
            figures = measured(name, each, machines, parsed.compile)
            rows.append({"program": name, "indices": "known" if known else "unknown", **figures})
            print(rows[-1], flush=True)
    report = {"machine": describe("cuda"), "rows": rows}
    program.publish(markdown(report, "Tensors side by side", "sizes"), report, parsed)
    return 0


def measured(
    name: str, each: Program, machines: Mapping[str, Any], with_compile: bool
) -> dict[str, float]:
    """Microseconds of each form on the device."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    dtype = getattr(torch, each.dtype)
    tensors = [
        torch.randint(0, 9, shape, generator=generator, device="cuda").to(dtype)
        for shape in each.shapes
    ]
    inputs = [tvm.runtime.from_dlpack(tensor) for tensor in tensors]
    wanted = each.torch(*tensors)
    figures: dict[str, float] = {}
    for form, machine in machines.items():
        function = machine[function_name(name)]
        wrong = int((torch.from_dlpack(function(*inputs)) != wanted).sum())
        if wrong:
            raise ScatterError(f"side_by_side: {name}: {wrong} numbers of {form} are wrong.")
        figures[form] = call_times.on_gpu(partial(function, *inputs), BUDGET).device
    for form, call in peers_of(each.torch, with_compile).items():
        figures[form] = call_times.on_gpu(partial(call, *tensors), BUDGET).device
    moved = wanted.nbytes + sum(int(np.prod(tensor.shape)) * dtype.itemsize for tensor in tensors)
    figures["copy"] = copy_time(moved)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
