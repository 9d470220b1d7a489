"""Import a model of the zoo, then compile and run it, and compare with what PyTorch returned.

The two halves may happen on different machines: :class:`Prepared` can be saved. So a machine with a
GPU needs neither PyTorch nor the libraries that the models come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Run:
    """One call of a model.

    Attributes
    ----------
    inputs : sequence of numpy.ndarray
        The arguments, without buffers.
    expected : sequence of numpy.ndarray
        PyTorch's results, then the buffers that it changed.
    """

    inputs: Sequence[Array]
    expected: Sequence[Array]


@dataclass(frozen=True)
class Prepared:
    """A model as TVM imported it, and what it should compute.

    Attributes
    ----------
    name : str
        The model's name in the zoo.
    module : tvm.IRModule
        The imported module.
    buffers : sequence of numpy.ndarray
        The first values of buffers that the model changes: the last arguments.
    runs : sequence of Run
        Calls of the model, each with the first values of its buffers.
    """

    name: str
    module: tvm.IRModule
    buffers: Sequence[Array]
    runs: Sequence[Run]

    def difference(self, target: Any, device: Any) -> float:
        """Compile for a target, run on a device: the greatest difference from PyTorch."""
        machine = relax.VirtualMachine(tvm.compile(self.module, target), device)
        return max(self._difference(run, machine, device) for run in self.runs)

    def _difference(self, run: Run, machine: relax.VirtualMachine, device: Any) -> float:
        arguments = [tvm.runtime.tensor(each, device) for each in (*run.inputs, *self.buffers)]
        actual = [tensor.numpy() for tensor in _leaves(machine["main"](*arguments))]
        return difference(actual, run.expected)

    def save(self, path: Path) -> None:
        """Write everything to a folder."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "module.json").write_text(tvm.ir.save_json(self.module))
        tensors, groups = [], []
        for arrays in (
            self.buffers,
            *(each for run in self.runs for each in (run.inputs, run.expected)),
        ):
            groups.append(len(arrays))
            tensors += arrays
        named = {str(i): tvm.runtime.tensor(array) for i, array in enumerate(tensors)}
        (path / "tensors").write_bytes(tvm.runtime.save_param_dict(named))
        (path / "groups.json").write_text(json.dumps({"name": self.name, "groups": groups}))


def name_of(path: Path) -> str:
    """The name of the model that a folder holds."""
    return str(json.loads((path / "groups.json").read_text())["name"])


def load(path: Path) -> Prepared:
    """Read what :meth:`Prepared.save` wrote."""
    about = json.loads((path / "groups.json").read_text())
    named = tvm.runtime.load_param_dict((path / "tensors").read_bytes())
    arrays = iter([named[str(i)].numpy() for i in range(len(named))])
    groups = [[next(arrays) for _ in range(count)] for count in about["groups"]]
    runs = [Run(*pair) for pair in zip(groups[1::2], groups[2::2], strict=True)]
    module = tvm.ir.load_json((path / "module.json").read_text())
    return Prepared(about["name"], module, groups[0], runs)


def difference(actual: Sequence[Array], expected: Sequence[Array]) -> float:
    """The greatest difference, relative to the greatest value of the result that it is in.

    Infinite where the shape or the type is not the same, where only one side is a NaN or infinite,
    and where integers differ.
    """
    if len(actual) < len(expected):
        return float("inf")
    return max((_difference(a, e) for a, e in zip(actual, expected, strict=False)), default=0.0)


def _difference(actual: Array, expected: Array) -> float:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if expected.dtype.kind in "biu":
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    actual, expected = actual.astype("float64"), expected.astype("float64")
    special = ~np.isfinite(expected)
    if not np.array_equal(actual[special], expected[special], equal_nan=True):
        return float("inf")
    actual, expected = actual[~special], expected[~special]
    worst = float(np.abs(actual - expected).max(initial=0.0))
    scale = max(float(np.abs(expected).max(initial=0.0)), 1e-3)
    return worst / scale if np.isfinite(worst) else float("inf")


def _leaves(result: Any) -> Iterator[tvm.runtime.Tensor]:
    if isinstance(result, tvm.runtime.Tensor):
        yield result
    elif not isinstance(result, int | float):
        for part in result:
            yield from _leaves(part)
