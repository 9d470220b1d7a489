"""Kernels out of a few lines of CUDA C++, compiled by TVM and run on arrays."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from .. import status

needs_device = pytest.mark.skipif(not status(), reason=status().reason)

# A bug that the compiler's sanitizers report ends the process.
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
dies_under_sanitizers = pytest.mark.skipif(SANITIZED, reason="ends the process, as it should")

INTS = np.arange(1000, dtype="int32")


def target():
    limits = {"max_num_threads": 1024, "max_threads_per_block": 1024, "thread_warp_size": 32}
    return tvm.target.Target({"kind": "cuda", "arch": "sm_90", **limits}, host="llvm")


def on_device(array):
    return tvm.runtime.tensor(array, tvm.cuda(0))


def routine_function(body, x="int32", y="int32", threads=128, blocks=1, preamble=""):
    """A function of two tensors whose kernel runs `body`, CUDA C++ that sees x, y and n (of x)."""
    ctype = {
        "int32": "int",
        "float32": "float",
        "float16": "half",
        "bfloat16": "nv_bfloat16",
        "uint32": "unsigned",
        "float64": "double",
        "int64": "long",
        "uint8": "unsigned char",
    }
    source = f"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
{preamble}
__device__ __forceinline__ void routine({ctype[x]}* x, {ctype[y]}* y, int n) {{
  const int tx = threadIdx.x, bx = blockIdx.x, i = bx * blockDim.x + tx;
  const unsigned lane = tx % 32;
  {body}
}}
"""

    @T.prim_func(s_tir=True)
    def main(xp: T.handle, yp: T.handle):
        T.func_attr({"op_pattern": 8, "tirx.is_scheduled": True, "tirx.noalias": True})
        n = T.int32()
        m = T.int32()
        X = T.match_buffer(xp, (n,), x)
        Y = T.match_buffer(yp, (m,), y)
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.launch_thread("blockIdx.x", blocks), T.launch_thread("threadIdx.x", threads):
                T.evaluate(T.cuda.func_call("routine", X.data, Y.data, n, source_code=source))

    return main


@functools.cache
def routine(body, **options):
    """:func:`routine_function`, compiled."""
    return tvm.compile(routine_function(body, **options), target=target())


def run(body, x, y, **options):
    """Runs :func:`routine` on two arrays and returns what became of the second."""
    function = routine(body, x=str(x.dtype), y=str(y.dtype), **options)
    device_x, device_y = on_device(x), on_device(y)
    function(device_x, device_y)
    return device_y.numpy()


def two_kernels():
    @T.prim_func(s_tir=True)
    def main(xp: T.handle, yp: T.handle):
        T.func_attr({"op_pattern": 8, "tirx.is_scheduled": True, "tirx.noalias": True})
        n = T.int32()
        X = T.match_buffer(xp, (n,), "float32")
        Y = T.match_buffer(yp, (n,), "float32")
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.launch_thread("blockIdx.x", (n + 31) // 32) as bx:
                tx = T.launch_thread("threadIdx.x", 32)
                if bx * 32 + tx < n:
                    Y[bx * 32 + tx] = X[bx * 32 + tx] * T.float32(2)
            with T.launch_thread("blockIdx.x", (n + 31) // 32) as bx:
                tx = T.launch_thread("threadIdx.x", 32)
                if bx * 32 + tx < n:
                    Y[bx * 32 + tx] = Y[bx * 32 + tx] + T.float32(1)

    return main
