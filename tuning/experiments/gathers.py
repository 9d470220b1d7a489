"""How fast reads by index are on this machine's GPU, beside TVM's own, PyTorch's, and a copy.

``python -m tvm_scatter.tuning.experiments.gathers --json FILE --markdown FILE``

A copy that moves as many bytes as a read at least must, each row once for each time it is read,
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
from .relax_programs import BUDGET, compiled, copy_time, function_name, markdown, module

_ROWS, _READS, _SIDE = 100_000, 1_000_000, 4096
_ROW_BYTES = (4, 16, 64, 128, 256, 512, 2048)
_DTYPES = {"float32": 4, "float16": 2}
_DISTRIBUTIONS = ("uniform", "zipf(1.2)", "sorted")
#: The options that each form of ours is compiled with.
_FORMS: Mapping[str, Mapping[str, Any]] = {"ours": {"gather": True}, "TVM": {"gather": False}}


@dataclass(frozen=True)
class Program:
    """What is computed, from which tensors.

    Attributes
    ----------
    shapes : tuple of (shape, data type)
        The tensors: what is read, the indices, and others.
    extent : int
        How many places the indices address.
    build : callable
        Emits it in Relax, given a builder's ``emit`` and the tensors.
    torch : callable
        The same in PyTorch, given the tensors.
    """

    shapes: tuple[tuple[tuple[int, ...], str], ...]
    extent: int
    build: Callable[..., Any]
    torch: Callable[..., Any]

    def moved(self) -> int:
        """The bytes that it reads and writes, each element once for each time it is read."""
        (_, dtype), (shape, _), *_ = self.shapes
        read = _READS * self.shapes[0][0][1] if len(shape) == 1 else shape[0] * shape[1]
        others = sum(int(np.prod(s)) * np.dtype(d).itemsize for s, d in self.shapes[1:])
        return int(2 * read * np.dtype(dtype).itemsize + others)


def _rows(width: int, dtype: str) -> Program:
    return Program(
        (((_ROWS, width), dtype), ((_READS,), "int64")),
        _ROWS,
        lambda emit, x, i: emit(relax.op.take(x, i, 0)),
        lambda x, i: x.index_select(0, i),
    )


def _messages(width: int, dtype: str) -> Program:
    def build(emit: Callable[[Any], Any], x: Any, i: Any, weight: Any) -> Any:
        rows = emit(relax.op.take(x, i, 0))
        scaled = emit(relax.op.multiply(rows, emit(relax.op.expand_dims(weight, 1))))
        return emit(relax.op.nn.relu(scaled))

    return Program(
        (((_ROWS, width), dtype), ((_READS,), "int64"), ((_READS,), dtype)),
        _ROWS,
        build,
        lambda x, i, weight: (x[i] * weight[:, None]).relu(),
    )


def _elements(axis: int, dtype: str) -> Program:
    square = (_SIDE, _SIDE)
    return Program(
        ((square, dtype), (square, "int64")),
        _SIDE,
        lambda emit, x, i: emit(relax.op.gather_elements(x, i, axis)),
        lambda x, i: x.gather(axis, i),
    )


PROGRAMS: Mapping[str, Program] = {
    **{
        f"rows of {size} bytes, {dtype}": _rows(size // item, dtype)
        for dtype, item in _DTYPES.items()
        for size in _ROW_BYTES
    },
    **{
        f"rows of 512 bytes times a weight, relu, {dtype}": _messages(512 // item, dtype)
        for dtype, item in _DTYPES.items()
    },
    **{f"elements along axis {axis}, {dtype}": _elements(axis, dtype)
       for dtype in _DTYPES for axis in (1, 0)},
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("gathers")
    parser.add_argument("--json", metavar="FILE")
    parsed = parser.parse_args(arguments)
    program.need_gpu("gathers")
    mod = module({name: (each.shapes, each.build) for name, each in PROGRAMS.items()})
    machines = {form: compiled(mod, gpu_target(), **options) for form, options in _FORMS.items()}
    rows = []
    for name, each in PROGRAMS.items():
        for distribution in _DISTRIBUTIONS:
            figures = measured(name, each, machines, draw(each, distribution))
            rows.append({"program": name, "indices": distribution, **figures})
            print(rows[-1], flush=True)
    report = {"machine": describe("cuda"), "rows": rows}
    setting = f"{_READS:,} reads of {_ROWS:,} rows, elements of a square of {_SIDE:,}"
    program.publish(markdown(report, setting, "indices"), report, parsed)
    return 0


def draw(each: Program, distribution: str) -> list[Any]:
    """The tensors as PyTorch tensors on the GPU."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    (_, (shape, _), *_) = each.shapes
    kind = "uniform" if distribution == "sorted" else distribution
    places = draw_indices(kind, each.extent, int(np.prod(shape)), seed=1)
    index = torch.from_numpy(np.sort(places) if distribution == "sorted" else places)
    tensors = [
        torch.randn(*shape, generator=generator, device="cuda").to(getattr(torch, dtype))
        for shape, dtype in each.shapes
        if dtype != "int64"
    ]
    return [tensors[0], index.reshape(shape).cuda(), *tensors[1:]]


def measured(
    name: str, each: Program, machines: Mapping[str, Any], tensors: Sequence[Any]
) -> dict[str, float]:
    """Microseconds of each form on the device."""
    inputs = [tvm.runtime.from_dlpack(tensor) for tensor in tensors]
    wanted = each.torch(*tensors)
    figures: dict[str, float] = {}
    for form, machine in machines.items():
        function = machine[function_name(name)]
        check(f"{name}, {form}", function(*inputs), wanted)
        figures[form] = call_times.on_gpu(partial(function, *inputs), BUDGET).device
    del wanted
    figures["torch"] = call_times.on_gpu(partial(each.torch, *tensors), BUDGET).device
    figures["copy"] = copy_time(each.moved())
    return figures


def check(name: str, result: Any, wanted: Any) -> None:
    """Raise if a result is not exactly PyTorch's."""
    import torch

    wrong = int((torch.from_dlpack(result) != wanted).sum())
    if wrong:
        raise ScatterError(f"gathers: {name}: {wrong} of {wanted.numel()} numbers are wrong.")


if __name__ == "__main__":
    raise SystemExit(main())
