"""How fast running sums are on this machine's GPU, beside PyTorch's and a copy of as many bytes.

``python -m tvm_scatter.tuning.experiments.scans --json FILE --markdown FILE``

Each element is read once and written once. An H200 copies 4.26 TB/s, and a scan by tiles has a
second launch, taken for 2 to 4 us. Predicted from that, in microseconds, before any was measured:

==========================  =======================  ====  =======================
line of 16 M float32        134 MB                     35
line of 16 M int64          268 MB                     68
line of 16 M bool to int64  151 MB                     45  2 bytes in each load
8 x 50257 float32           3 MB                        7  launches and one tile
64 x 128000 float32         66 MB                      19
256 x 50257 float32         103 MB                     28
256 x 128000 bfloat16       131 MB                     35
100000 x 512 float32        410 MB                    105  a warp for each row
1 M x 8 int64               134 MB                     40  32 rows for each warp
16384 x 64 int64, axis 0    17 MB                       8  in the cache
1 M x 64 int64, axis 0      1 GB                      270
==========================  =======================  ====  =======================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.machine import describe

from . import program
from .relax_programs import BUDGET, compiled, copy_time, function_name, markdown, module

_LINE, _LONG = 1 << 24, 1 << 20
#: The largest difference from sums in double precision, over the largest sum.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 1e-2}


@dataclass(frozen=True)
class Program:
    """What is summed up.

    Attributes
    ----------
    shape : tuple of int
        The shape of the tensor.
    dtype, result : str
        The data types of the elements and of the sums.
    axis : int
        The axis along which they are summed up.
    """

    shape: tuple[int, ...]
    dtype: str
    result: str
    axis: int

    def build(self, _emit: Any, x: Any) -> Any:
        """The sums in Relax."""
        return relax.op.cumsum(x, self.axis, self.result)

    def torch(self, x: Any) -> Any:
        """The sums in PyTorch."""
        import torch

        return torch.cumsum(x, self.axis, dtype=getattr(torch, self.result))

    def moved(self) -> int:
        """The bytes that are read and written."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size * sum((tvm.DataType(each).bits + 7) // 8 for each in (self.dtype, self.result))


PROGRAMS: Mapping[str, Program] = {
    "line, float32": Program((_LINE,), "float32", "float32", 0),
    "line, int64": Program((_LINE,), "int64", "int64", 0),
    "line, bool to int64": Program((_LINE,), "bool", "int64", 0),
    "8 x 50257, float32": Program((8, 50257), "float32", "float32", 1),
    "64 x 128000, float32": Program((64, 128_000), "float32", "float32", 1),
    "256 x 50257, float32": Program((256, 50257), "float32", "float32", 1),
    "256 x 128000, bfloat16": Program((256, 128_000), "bfloat16", "bfloat16", 1),
    "100000 x 512, float32": Program((100_000, 512), "float32", "float32", 1),
    "1 M x 8, int64": Program((_LONG, 8), "int64", "int64", 1),
    "16384 x 64, int64, axis 0": Program((16_384, 64), "int64", "int64", 0),
    "1 M x 64, int64, axis 0": Program((_LONG, 64), "int64", "int64", 0),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("scans")
    parser.add_argument("--json", metavar="FILE")
    parsed = parser.parse_args(arguments)
    program.need_gpu("scans")
    sources: dict[str, Any] = {
        name: ([(each.shape, each.dtype)], each.build) for name, each in PROGRAMS.items()
    }
    machine = compiled(module(sources), gpu_target())
    rows = []
    for name, each in PROGRAMS.items():
        figures = measured(name, each, machine[function_name(name)])
        rows.append({"program": name, "indices": f"axis {each.axis}", **figures})
        print(rows[-1], flush=True)
    report = {"machine": describe("cuda"), "rows": rows}
    program.publish(markdown(report, "Running sums", "along"), report, parsed)
    return 0


def draw(each: Program) -> Any:
    """A tensor of PyTorch's on the GPU. Its sums fit their type."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    values = torch.rand(each.shape, generator=generator, device="cuda")
    dtype = getattr(torch, each.dtype)
    return values.to(dtype) if dtype.is_floating_point else (values < 0.5).to(dtype)


def measured(name: str, each: Program, function: Callable[..., Any]) -> dict[str, float]:
    """Microseconds of each form on the device."""
    tensor = draw(each)
    given = tvm.runtime.from_dlpack(tensor)
    check(name, each, function(given), tensor)
    forms = {"ours": partial(function, given), "torch": partial(each.torch, tensor)}
    figures = {form: call_times.on_gpu(run, BUDGET).device for form, run in forms.items()}
    return {**figures, "copy": copy_time(each.moved())}


def check(name: str, each: Program, result: Any, tensor: Any) -> None:
    """Raise if the sums are not PyTorch's, but for rounding."""
    import torch

    wanted = torch.cumsum(tensor.double(), each.axis)
    error = float((torch.from_dlpack(result).double() - wanted).abs().max() / wanted.abs().max())
    if not error <= _TOLERANCES.get(each.result, 0.0):
        raise ScatterError(f"scans: {name}: the largest error is {error:.1e} of the largest.")


if __name__ == "__main__":
    raise SystemExit(main())
