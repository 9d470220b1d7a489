"""What checks of dynamic sizes cost per call of a model, on a CPU.

Two are measured: that sizes are equal which only PyTorch knows to be, and that no computed size is
negative. Each is the slope over how many there are in a model of a few functions.

::

    TVM_NUM_THREADS=1 python -m tvm_scatter.tuning.experiments.size_checks
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_scatter import pipelines
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.strategies.llvm.machines import processor

_MANY = 32
_ROUNDS, _CALLS = 400, 25


def main() -> int:
    """Measure and print."""
    machines = {
        "no check": _built(checks=0),
        "equal sizes": _built(checks=_MANY),
        "sizes, checked": _built(parts=_MANY),
    }
    with mock.patch.object(pipelines, "CheckExtents", lambda: tvm.transform.Sequential([])):
        machines["sizes"] = _built(parts=_MANY)
    inputs = [tvm.runtime.tensor(np.ones(100, "float32")) for _ in range(2)]
    calls = {name: machine["main"] for name, machine in machines.items()}
    times = _shortest({name: partial(call, *inputs) for name, call in calls.items()})
    equal = (times["equal sizes"] - times["no check"]) / _MANY
    negative = (times["sizes, checked"] - times["sizes"]) / _MANY
    print(f"{processor()}: a call without checks takes {times['no check']:.2f} us")
    print(f"that two sizes are equal: {equal:.3f} us each")
    print(f"that a size is not negative: {negative:.3f} us each")
    return 0


def _built(checks: int = 0, parts: int = 0) -> relax.VirtualMachine:
    """A sum, behind checks that two vectors have one size, beside parts of one of them."""
    sizes = [tirx.Var(name, "int64") for name in ("n", "m")]
    x, y = (relax.Var(f"x{size}", relax.TensorType([size], "float32")) for size in sizes)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            checked: Any = y
            for _ in range(checks):
                checked = builder.emit(
                    expect_sizes(
                        checked, [sizes[1]], [sizes[0]], shape=[sizes[1]], what="y", operator="add"
                    )
                )
            results = [builder.emit(relax.op.add(checked, relax.const(1, "float32")))]
            results += [builder.emit_te(_without_last, x, 1 + i) for i in range(parts)]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    target = tvm.target.Target("llvm")
    return relax.VirtualMachine(tvm.compile(builder.get(), target), tvm.cpu())


def _without_last(x: te.Tensor, count: int) -> te.Tensor:
    return te.compute((x.shape[0] - count,), lambda i: x(i), name="part")


def _shortest(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Microseconds of one of several calls in a row, the least of many rounds in turn."""
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            call()
            begin = time.perf_counter()
            for _ in range(_CALLS):
                call()
            times[name] = min(times[name], (time.perf_counter() - begin) / _CALLS * 1e6)
    return times


if __name__ == "__main__":
    raise SystemExit(main())
