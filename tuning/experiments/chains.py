"""What merging scatters, writing in place and launching together gain on this machine.

``python -m tvm_scatter.tuning.experiments.chains --json FILE --markdown FILE``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax

import tvm_scatter
from tvm_scatter.demo.compare import export, import_program
from tvm_scatter.errors import ScatterError
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.machine import describe
from tvm_scatter.tuning.measure.sampling import Budget, Summary

from . import program

_SWITCHES = {
    "neither": {"bulk": False, "in_place": False},
    "in_place": {"bulk": False, "in_place": True},
    "bulk": {"bulk": True, "in_place": False},
    "both": {"bulk": True, "in_place": True},
}
_TOGETHER = {"apart": {"batch": False}, "together": {"batch": True}}
_LINKS = 64
_SIDE = 1024
#: Heads and values of a head; positions make the cache of the size.
_HEADS, _WIDTH = 32, 128
_CACHE_BYTES = (16 << 20, 256 << 20, 2 << 30)
#: Independent scatters of one layer, and the rows of 64 numbers of each.
_SCATTERS, _FEATURES = 12, 64
_ROWS = (256, 4096, 16384)
_BUDGET = Budget(fewest=3, most=20, seconds=0.2, patience=0.25)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("chains")
    parser.add_argument("--json", metavar="FILE")
    parsed = parser.parse_args(arguments)
    program.need_gpu("chains")
    figures = {
        "machine": describe("cuda"),
        "assignments": switched(*assignments(), _SWITCHES),
        "levels": switched(*levels(), _SWITCHES),
        "sums": {str(rows): switched(*sums(rows), _TOGETHER) for rows in _ROWS},
        "keys_and_values": switched(*keys_and_values(), _TOGETHER),
        "cache": [cache(size, in_place) for size in _CACHE_BYTES for in_place in (False, True)],
    }
    program.publish(markdown(figures), figures, parsed)
    return 0


def assignments() -> tuple[Any, tuple[Any, ...]]:
    """A model of 64 assignments to rows of a tensor of a million elements."""
    import torch

    class Assignments(torch.nn.Module):
        def forward(self, x: torch.Tensor, *rows: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            for at, row in enumerate(rows):
                x[at * (_SIDE // _LINKS)] = row
            return x

    rows = tuple(torch.randn(_SIDE) for _ in range(_LINKS))
    return Assignments().eval(), (torch.randn(_SIDE, _SIDE), *rows)


def levels() -> tuple[Any, tuple[Any, ...]]:
    """Regions of four pyramid levels put back in order."""
    from tvm_scatter.demo.detection import level_assembly

    return level_assembly("full")


def sums(rows: int) -> tuple[Any, tuple[Any, ...]]:
    """The sums over neighbours of twelve heads, each of its own tensors."""
    import torch

    class Sums(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            heads = zip(*(iter(tensors),) * 3, strict=True)
            return torch.stack([data.index_add(0, index, rows) for data, index, rows in heads])

    generator = torch.Generator().manual_seed(0)
    tensors: list[torch.Tensor] = []
    for _ in range(_SCATTERS):
        # Whole numbers have the same sum in any order.
        data, updates = (
            torch.randint(-9, 9, (rows, _FEATURES), generator=generator).float() for _ in range(2)
        )
        tensors += [data, torch.randint(rows, (rows,), generator=generator), updates]
    return Sums().eval(), tuple(tensors)


def keys_and_values() -> tuple[Any, tuple[Any, ...]]:
    """One position of the two caches of a decoder's layer, which it changes."""
    import torch

    class Update(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("keys", "values"):
                self.register_buffer(name, torch.zeros(1, _HEADS, 1024, _WIDTH))

        def forward(
            self, key: torch.Tensor, value: torch.Tensor, position: torch.Tensor
        ) -> torch.Tensor:
            self.keys.index_copy_(2, position, key)
            self.values.index_copy_(2, position, value)
            return key + value

    key, value = (torch.randn(1, _HEADS, 1, _WIDTH) for _ in range(2))
    return Update().eval(), (key, value, torch.tensor([512]))


def switched(
    model: Any, example: tuple[Any, ...], ways: Mapping[str, Mapping[str, bool]]
) -> dict[str, Any]:
    """Launches and device time of a model under each combination of passes."""
    module = import_program(export(model, example))
    expected = model(*example).numpy()
    device = tvm.cuda(0)
    inputs = [tvm.runtime.tensor(each.numpy(), device) for each in example]
    inputs += tvm_scatter.buffers(module, device).values()
    found = {}
    for name, switches in ways.items():
        machine = compiled(module, **switches)
        result = machine["main"](*inputs)[0].numpy()
        if not np.array_equal(result, expected):
            raise ScatterError(f"chains: the result under {switches} is not PyTorch's.")
        found[name] = {
            "launches": len(kernels(partial(machine["main"], *inputs))),
            **times(partial(machine["main"], *inputs)),
        }
    return found


def cache(size: int, in_place: bool) -> dict[str, Any]:
    """One position of a cache written, with and without a copy of the cache."""
    import torch

    positions = size // (4 * _HEADS * _WIDTH)

    class Update(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(1, _HEADS, positions, _WIDTH))

        def forward(self, value: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            self.cache.index_copy_(2, position, value)
            return value.sum(-1)

    value, position = torch.randn(1, _HEADS, 1, _WIDTH), torch.tensor([positions // 2])
    module = import_program(export(Update().eval(), (value, position)))
    machine = compiled(module, in_place=in_place)
    device = tvm.cuda(0)
    inputs = [tvm.runtime.tensor(each.numpy(), device) for each in (value, position)]
    state = list(tvm_scatter.buffers(module, device).values())
    del module
    before = used_bytes()
    _, changed = machine["main"](*inputs, *state)
    peak = used_bytes() - before
    if not np.array_equal(
        torch.from_dlpack(changed)[:, :, positions // 2].cpu().numpy(), value[:, :, 0].numpy()
    ):
        raise ScatterError("chains: the cache does not hold what was written.")
    del changed
    measured = times(partial(machine["main"], *inputs, *state))
    return {"bytes": size, "in_place": in_place, "memory": peak, **measured}


def compiled(module: tvm.IRModule, **switches: Any) -> Any:
    """The module compiled for this GPU."""
    target = gpu_target()
    pipeline = tvm_scatter.pipeline(target, **switches)
    with quiet():
        executable = tvm.compile(module, target=target, relax_pipeline=pipeline)
    return relax.VirtualMachine(executable, tvm.cuda(0))


def times(call: Callable[[], Any]) -> dict[str, float]:
    """Microseconds: kernels added up, and from the first one's start to the last one's end."""
    call()
    added_up = Summary.of([sum(kernels(call)) for _ in range(5)]).median
    elapsed = call_times.on_gpu(call, _BUDGET)
    return {"kernels": added_up, "elapsed": elapsed.device, "wall": elapsed.wall}


def kernels(call: Callable[[], Any]) -> list[float]:
    """Microseconds of each kernel and copy that a call runs on the device."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    return [
        float(event.device_time_total)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]


def used_bytes() -> int:
    """Memory in use on the device."""
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def markdown(figures: Mapping[str, Any]) -> str:
    """The figures as tables."""
    machine = ", ".join(f"{name} {value}" for name, value in figures["machine"].items())
    lines = [f"Measured on: {machine}.", ""]
    tables = {
        f"{_LINKS} assignments to rows of {_SIDE} x {_SIDE} float32": figures["assignments"],
        "regions of four levels put in order": figures["levels"],
        **{
            f"{_SCATTERS} sums of {rows} rows of {_FEATURES} float32, and a stack": ways
            for rows, ways in figures["sums"].items()
        },
        "one position of keys and values, in place, and a sum": figures["keys_and_values"],
    }
    for title, ways in tables.items():
        lines += [f"### {title}", ""]
        lines += ["| passes | launches | kernels, us | elapsed, us | wall, us |"]
        lines += ["|---|--:|--:|--:|--:|"]
        for way, row in ways.items():
            numbers = " | ".join(f"{row[each]:,.1f}" for each in ("kernels", "elapsed", "wall"))
            lines.append(f"| {way} | {row['launches']} | {numbers} |")
        lines.append("")
    lines += ["### one position of a cache", ""]
    lines += ["| cache, MiB | in place | kernels, us | elapsed, us | memory of the call, MiB |"]
    lines += ["|--:|---|--:|--:|--:|"]
    for row in figures["cache"]:
        lines.append(
            f"| {row['bytes'] >> 20:,} | {'yes' if row['in_place'] else 'no'} | "
            f"{row['kernels']:,.1f} | {row['elapsed']:,.1f} | {row['memory'] / 2**20:,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
