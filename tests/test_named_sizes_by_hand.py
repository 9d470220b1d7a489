"""Functions that are written by hand, whose sizes are sums, of 64 bits as in Relax or of fewer."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Turned:
    @T.prim_func(private=True, s_tir=True)
    def narrow(a: T.handle, c: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n + 2, 4))
        C = T.match_buffer(c, (n,))
        B = T.match_buffer(b, (4, n + 2))
        for i, j in T.grid(4, n + 2):
            with T.sblock("turned"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi] + C[T.min(vj, n - 1)]

    @T.prim_func(private=True, s_tir=True)
    def wide(a: T.handle, c: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n + T.int64(2), T.int64(4)))
        C = T.match_buffer(c, (n,))
        B = T.match_buffer(b, (T.int64(4), n + T.int64(2)))
        for i, j in T.grid(T.int64(4), n + T.int64(2)):
            with T.sblock("turned"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi] + C[T.min(vj, n - T.int64(1))]

    @R.function
    def main(x: R.Tensor(("n + 2", 4), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tuple(
        R.Tensor((4, "n + 2"), "float32"), R.Tensor((4, "n + 2"), "float32")
    ):
        n = T.int64()
        with R.dataflow():
            first = R.call_tir(Turned.narrow, (x, y), out_ty=R.Tensor((4, n + 2), "float32"))
            second = R.call_tir(Turned.wide, (x, y), out_ty=R.Tensor((4, n + 2), "float32"))
            result = (first, second)
            R.output(result)
        return result


@pytest.mark.parametrize("rows", [1, 5])
def test_transposes(rows: int, device: str) -> None:
    on = device_of(device)
    built = relax.VirtualMachine(tvm.compile(Turned, target_of(device)), on)
    x, y = np.random.rand(rows + 2, 4).astype("float32"), np.random.rand(rows).astype("float32")
    expected = x.T + y[np.minimum(np.arange(rows + 2), rows - 1)]
    for result in built["main"](*(tvm.runtime.tensor(each, on) for each in (x, y))):
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)
