"""Layers of libraries on this machine's GPU, beside eager PyTorch and ``torch.compile``.

``python -m tvm_scatter.tuning.experiments.layers --json FILE --markdown FILE``

Each is exported with sizes that are known, and with some that the run time knows, imported and
compiled as a user does it, compared with PyTorch, and timed. A layer that fails says why. Processes
that have a part each (``--part 0/7``) compile side by side and measure one after the other.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter.errors import ScatterError
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.machine import describe

from . import program
from .layer_forms import LAYERS, Draw, Layer
from .relax_programs import BUDGET, peers_of

_FORMS = ("known", "unknown")
_PEERS = ("torch", "torch.compile")
#: The greatest difference, by the greatest of the values; PyTorch rounds sums of 16 bits each time.
_CLOSE, _CLOSE_IN_HALVES = 1e-2, 5e-2


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = program.parser("layers")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", metavar="TEXT", default="", help="layers whose names have it")
    parser.add_argument("--part", metavar="I/N", default="0/1", help="every N-th of them")
    parsed = parser.parse_args(arguments)
    program.need_gpu("layers")
    part, parts = map(int, parsed.part.split("/"))
    names = [name for name in LAYERS if parsed.only in name][part::parts]
    rows = []
    for name in names:
        rows.append({"layer": name, **measured(LAYERS[name](Draw()))})
        print(rows[-1], flush=True)
    machine = {**describe("cuda"), "PyTorch": torch.__version__}
    report = {"machine": machine, "rows": rows}
    program.publish(markdown(report), report, parsed)
    return 0


def measured(layer: Layer) -> dict[str, Any]:
    """Microseconds of each form on the device, or what went wrong."""
    figures: dict[str, Any] = {}
    wanted = list(leaves(layer.function(*layer.inputs)))
    forms = _FORMS if layer.unknown else _FORMS[:1]
    for form in forms:
        try:
            call = partial(
                compiled(layer, gpu_target(), tvm.cuda(0), form == "unknown"), *_tensors(layer)
            )
            compare(call(), wanted)
            with _alone():
                figures[form] = call_times.on_gpu(call, BUDGET).device
        except Exception as error:  # whatever a layer runs into
            figures[f"{form} fails"] = f"{type(error).__name__}: {error}"[:300]
    with torch.no_grad():
        for form, peer in peers_of(layer.function, True).items():
            try:
                peer(*layer.inputs)
                with _alone():
                    figures[form] = call_times.on_gpu(partial(peer, *layer.inputs), BUDGET).device
            except Exception as error:
                figures[f"{form} fails"] = f"{type(error).__name__}: {error}"[:300]
    return figures


def compiled(layer: Layer, target: Any, device: Any, unknown: bool = False) -> Callable[..., Any]:
    """The layer, compiled for a target."""
    shapes = None
    if unknown:
        sizes = [layer.unknown.get(at) for at in range(len(layer.inputs))]
        axes = [None if axis is None else {axis: torch.export.Dim.AUTO} for axis in sizes]
        shapes = (tuple(axes),)
    exported = torch.export.export(_Module(layer.function), layer.inputs, dynamic_shapes=shapes)
    with quiet():
        executable = tvm.compile(
            from_exported_program(exported), target, relax_pipeline=tvm_scatter.pipeline(target)
        )
    return relax.VirtualMachine(executable, device)["main"]


def _tensors(layer: Layer) -> list[Any]:
    return [tvm.runtime.from_dlpack(each.contiguous()) for each in layer.inputs]


@contextmanager
def _alone() -> Iterator[None]:
    """While no other part measures."""
    with (Path(tempfile.gettempdir()) / "tvm_scatter_layers.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def leaves(results: Any) -> Iterator[Any]:
    """The tensors among results."""
    if hasattr(results, "shape"):
        yield results
    else:
        for each in results:
            yield from leaves(each)


def compare(results: Any, wanted: Sequence[torch.Tensor]) -> None:
    """Raise ScatterError where a result is not PyTorch's."""
    for found, expected in zip(leaves(results), wanted, strict=True):
        off = (torch.from_dlpack(found).double() - expected.double()).abs().nan_to_num().max()
        close = _CLOSE_IN_HALVES if expected.element_size() == 2 else _CLOSE
        if off > close * expected.double().abs().nan_to_num(posinf=0.0).max():
            raise ScatterError(f"layers: a result is off by {float(off):.3g}.")


def markdown(figures: Mapping[str, Any]) -> str:
    """The figures as a table, and their means."""
    machine = ", ".join(f"{name} {value}" for name, value in figures["machine"].items())
    columns = [*_FORMS, *_PEERS]
    lines = [
        f"Measured on: {machine}.",
        "",
        "Microseconds on the device; the last two columns are `torch.compile`, which knows the "
        "sizes, by ours.",
        "",
        f"| layer | {' | '.join(columns)} | known | unknown |",
        f"|---|{'--:|' * (len(columns) + 2)}",
    ]
    for row in figures["rows"]:
        numbers = [f"{row[each]:,.1f}" if each in row else "-" for each in columns]
        ratios = [f"{ratio:.2f}" if ratio else "-" for ratio in _ratios(row)]
        lines.append(f"| {row['layer']} | {' | '.join([*numbers, *ratios])} |")
    for form, of_layers in zip(
        _FORMS, zip(*map(_ratios, figures["rows"]), strict=True), strict=True
    ):
        found = [ratio for ratio in of_layers if ratio]
        if found:
            mean = np.exp(np.mean(np.log(found)))
            lines += ["", f"Sizes {form}: {mean:.2f}x of `torch.compile` in {len(found)} layers."]
    return "\n".join(lines)


def _ratios(row: Mapping[str, Any]) -> list[float | None]:
    peer = row.get("torch.compile")
    return [peer / row[form] if peer and form in row else None for form in _FORMS]


if __name__ == "__main__":
    raise SystemExit(main())
