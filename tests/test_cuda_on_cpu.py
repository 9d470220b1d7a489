"""The simulated CUDA device itself: that it runs what TVM generates, and that it finds bugs.

The planted bugs are the point. A simulator that lets a race or a stray write pass would make every
other test of a kernel worthless.
"""

import ctypes
import faulthandler
import functools
import os
import signal
import subprocess

import ml_dtypes
import numpy as np
import pytest
from cuda_on_cpu import (
    enable,
    memory_in_use,
    record,
    rewrite,
    sanitizers,
    schedule,
    set_memory_limit,
    set_time_limit,
    status,
)

enable()

import tvm  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.script import tirx as T  # noqa: E402

pytestmark = pytest.mark.skipif(not status(), reason=status().reason)

# A bug that the compiler's sanitizers report ends the process.
SANITIZED = bool(os.environ.get("LD_PRELOAD") and "libasan" in os.environ["LD_PRELOAD"])
dies_under_sanitizers = pytest.mark.skipif(SANITIZED, reason="ends the process, as it should")

SCHEDULES = [("forward", 0), ("reversed", 0), ("shuffled", 1), ("shuffled", 2), ("eager", 0)]


@pytest.fixture(params=SCHEDULES, ids=lambda s: f"{s[0]}{s[1] or ''}")
def any_order(request):
    order, seed = request.param
    with schedule(threads=order, blocks=order, seed=seed):
        yield


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


INTS = np.arange(1000, dtype="int32")


# What runs


def test_plain_tir(any_order):
    @T.prim_func(s_tir=True)
    def main(xp: T.handle, yp: T.handle):
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        n = T.int32()
        X = T.match_buffer(xp, (n,), "float32")
        Y = T.match_buffer(yp, (n,), "float32")
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.launch_thread("blockIdx.x", (n + 127) // 128) as bx:
                tx = T.launch_thread("threadIdx.x", 128)
                if bx * 128 + tx < n:
                    Y[bx * 128 + tx] = T.max(X[bx * 128 + tx], T.float32(0)) + T.exp(T.float32(0))

    x = np.linspace(-5, 5, 1000, dtype="float32")
    y = on_device(np.empty_like(x))
    tvm.compile(main, target=target())(on_device(x), y)
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0) + 1)


def test_vectors():
    @T.prim_func(s_tir=True)
    def main(xp: T.handle, yp: T.handle):
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        X = T.match_buffer(xp, (512,), "float16")
        Y = T.match_buffer(yp, (512,), "float16")
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.launch_thread("threadIdx.x", 128) as tx:
                for v in T.vectorized(4):
                    Y[tx * 4 + v] = X[tx * 4 + v] + T.float16(1)

    x = np.arange(512, dtype="float16")
    y = on_device(np.zeros_like(x))
    tvm.compile(main, target=target())(on_device(x), y)
    np.testing.assert_array_equal(y.numpy(), x + 1)


def test_static_shared_memory_and_barriers(any_order):
    """A block-wide scan, one barrier per step and template."""
    preamble = """
template <class T, int threads>
__device__ T scan(T value, int tx) {
  __shared__ alignas(16) T sums[2][threads];
  int now = 0;
  sums[0][tx] = value;
  __syncthreads();
  for (int step = 1; step < threads; step *= 2, now ^= 1) {
    sums[now ^ 1][tx] = sums[now][tx] + (tx >= step ? sums[now][tx - step] : T(0));
    __syncthreads();
  }
  return sums[now][tx];
}"""
    x = INTS[:512]
    y = run("y[i] = scan<int, 256>(x[i], tx);", x, 0 * x, threads=256, blocks=2, preamble=preamble)
    np.testing.assert_array_equal(y, np.cumsum(x.reshape(2, 256), axis=1).ravel())


def test_full_block(any_order):
    body = """
  __shared__ int value[1024];
  value[tx] = x[tx];
  for (int step = 0; step < 50; ++step) {
    __syncthreads();
    int next = value[(tx + 1) % 1024];
    __syncthreads();
    value[tx] = next;
  }
  y[tx] = value[tx];"""
    x = np.arange(1024, dtype="int32")
    np.testing.assert_array_equal(run(body, x, 0 * x, threads=1024), np.roll(x, -50))


def test_dynamic_shared_memory_from_tir(any_order):
    source = """
__device__ void reverse(unsigned char* bytes, const float* x, float* y, int tx) {
  float* held = reinterpret_cast<float*>(bytes);
  held[tx] = x[tx];
  __syncthreads();
  y[tx] = held[127 - tx];
}"""

    @T.prim_func(s_tir=True)
    def main(xp: T.handle, yp: T.handle):
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        X = T.match_buffer(xp, (128,), "float32")
        Y = T.match_buffer(yp, (128,), "float32")
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.launch_thread("threadIdx.x", 128) as tx:
                S = T.alloc_buffer((100 * 1024,), "uint8", scope="shared.dyn")
                T.evaluate(
                    T.cuda.func_call("reverse", S.data, X.data, Y.data, tx, source_code=source)
                )

    x = np.arange(128, dtype="float32")
    y = on_device(0 * x)
    with record() as log:
        tvm.compile(main, target=target())(on_device(x), y)
    np.testing.assert_array_equal(y.numpy(), x[::-1])
    assert [e.bytes for e in log.launches] == [100 * 1024]


def test_shuffles(any_order):
    body = """
  int down = __shfl_down_sync(0xffffffffu, x[tx], 3);
  long long broadcast = __shfl_sync(0xffffffffu, 1000000000000ll * x[tx], 5, 8);
  float up = __shfl_up_sync(0xffffffffu, float(x[tx]), 1, 16);
  int other = __shfl_xor_sync(0xffffffffu, x[tx], 1);
  y[4 * tx] = down; y[4 * tx + 1] = int(broadcast / 1000000000000ll);
  y[4 * tx + 2] = int(up); y[4 * tx + 3] = other;"""
    x = INTS[:64]
    y = run(body, x, np.zeros(256, "int32"), threads=64).reshape(64, 4)
    lane = x % 32
    np.testing.assert_array_equal(y[:, 0], np.where(lane < 29, x + 3, x))
    np.testing.assert_array_equal(y[:, 1], x // 8 * 8 + 5)
    np.testing.assert_array_equal(y[:, 2], np.where(lane % 16 > 0, x - 1, x))
    np.testing.assert_array_equal(y[:, 3], x ^ 1)


def test_votes_matches_and_reductions(any_order):
    body = """
  y[6 * tx] = __ballot_sync(~0u, x[tx] % 3 == 0);
  y[6 * tx + 1] = __match_any_sync(~0u, x[tx] % 5);
  y[6 * tx + 2] = __any_sync(~0u, x[tx] == 31) + 2 * __all_sync(~0u, x[tx] < 32);
  y[6 * tx + 3] = __reduce_add_sync(~0u, x[tx]);
  y[6 * tx + 4] = __reduce_min_sync(~0u, x[tx] - 40);
  y[6 * tx + 5] = __popc(__match_any_sync(~0u, 0.5f * (x[tx] % 2)));"""
    x = np.arange(64, dtype="int32")
    y = run(body, x, np.zeros(64 * 6, "uint32"), threads=64).reshape(2, 32, 6)
    lane = np.arange(32)
    for warp in range(2):
        values = x[32 * warp :][:32]
        ballot = int(np.sum((values % 3 == 0) * (1 << lane)))
        assert (y[warp, :, 0] == ballot).all()
        same = [int(np.sum((values % 5 == v % 5) * (1 << lane))) for v in values]
        np.testing.assert_array_equal(y[warp, :, 1], np.array(same, dtype="uint32"))
        assert (y[warp, :, 2] == (3 if warp == 0 else 0)).all()
        assert (y[warp, :, 3] == values.sum()).all()
        assert (y[warp, :, 4].view("int32") == values.min() - 40).all()
        assert (y[warp, :, 5] == 16).all()


def test_collectives_of_some_lanes(any_order):
    """Lanes that go different ways meet only those that their mask names."""
    body = """
  unsigned mask = lane % 2 ? 0xaaaaaaaau : 0x55555555u;
  if (lane % 2) y[tx] = __popc(__ballot_sync(mask, lane < 10));
  else y[tx] = 100 + __shfl_sync(mask, x[tx], 2);
  if (lane >= 28) return;
  __syncwarp();
  y[tx] += __popc(__activemask()) == 1 ? 0 : 1000;"""
    x = np.arange(32, dtype="int32")
    y = run(body, x, 0 * x, threads=32)
    np.testing.assert_array_equal(y, np.where(x % 2, 5, 102))


def test_partial_warp(any_order):
    """A full mask stands for the lanes that there are."""
    y = run("y[tx] = __popc(__ballot_sync(~0u, 1));", INTS[:40], 0 * INTS[:40], threads=40)
    np.testing.assert_array_equal(y, [32] * 32 + [8] * 8)


def test_voting_barriers(any_order):
    body = """
  int count = __syncthreads_count(x[tx] % 3 == 0);
  y[tx] = count * 100 + __syncthreads_or(x[tx] == 7) * 10 + __syncthreads_and(x[tx] >= 0);"""
    x = INTS[:96]
    np.testing.assert_array_equal(run(body, x, 0 * x, threads=96), np.full(96, 3211))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "float64", "float16", "bfloat16"])
def test_atomic_add(dtype, any_order):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = (np.arange(128) % 4).astype(dtype)
    y = run("atomicAdd(y + tx % 2, x[tx]);", x, np.zeros(2, dtype))
    np.testing.assert_array_equal(y.astype("float64"), [64, 128])


def test_atomic_add_from_tir():
    @T.prim_func(s_tir=True)
    def main(xp: T.handle, yp: T.handle):
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        X = T.match_buffer(xp, (128,), "float16")
        Y = T.match_buffer(yp, (1,), "float16")
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.launch_thread("threadIdx.x", 128) as tx:
                T.evaluate(T.cuda.atomic_add(T.address_of(Y[0]), X[tx]))

    y = on_device(np.zeros(1, "float16"))
    tvm.compile(main, target=target())(on_device(np.ones(128, "float16")), y)
    assert y.numpy() == 128


def test_packed_atomics():
    body = """
  atomicAdd(reinterpret_cast<half2*>(y), __halves2half2(x[2 * tx], x[2 * tx + 1]));"""
    x = np.tile(np.array([1, 2], "float16"), 32)
    np.testing.assert_array_equal(run(body, x, np.zeros(2, "float16"), threads=32), [32, 64])


def test_other_atomics(any_order):
    body = """
  atomicMin(y, x[tx]); atomicMax(y + 1, x[tx]); atomicOr(y + 2, 1 << x[tx] % 8);
  atomicAnd(y + 3, ~(1 << x[tx] % 8)); atomicXor(y + 4, x[tx]);
  int seen = y[5];
  while (true) {
    int found = atomicCAS(y + 5, seen, seen + 1);
    if (found == seen) break;
    seen = found;
  }
  atomicInc(reinterpret_cast<unsigned*>(y + 6), 9);
  auto* shorts = reinterpret_cast<unsigned short*>(y + 7);
  atomicCAS(shorts + 1, (unsigned short)(tx), (unsigned short)(tx + 1));
  atomicAdd(reinterpret_cast<unsigned long long*>(y + 8), 1ull << 32);"""
    x = INTS[:128] + 5
    y = run(body, x, np.array([99, 0, 0, 255, 0, 0, 0, 0, 0, 0], "int32"))
    expected = [5, 132, 255, 0, np.bitwise_xor.reduce(x), 128, 8]
    np.testing.assert_array_equal(y[:7], expected)
    assert y[7] >> 16 >= 1  # depends on the order, which is what a race looks like
    np.testing.assert_array_equal(y[8:], [0, 128])


def test_spinning_on_another_thread(any_order):
    """A lock within a block, and a look-back that waits for an earlier block."""
    body = """
  __shared__ unsigned ticket;
  if (tx == 0) ticket = atomicAdd(reinterpret_cast<unsigned*>(y), 1u);
  __syncthreads();
  for (bool done = false; !done;) {
    if (atomicCAS(y + 1, 0, 1) == 0) {
      y[2] += 1;
      __threadfence();
      atomicExch(y + 1, 0);
      done = true;
    } else {
      __nanosleep(20);
    }
  }
  __syncthreads();
  if (tx == 0) {
    while (ticket > 0 && atomicAdd(y + 3 + ticket - 1, 0) == 0) {}
    atomicExch(y + 3 + ticket, 1);
  }"""
    y = run(body, INTS, np.zeros(13, "int32"), threads=64, blocks=10)
    np.testing.assert_array_equal(y, [10, 0, 640] + [1] * 10)


def test_vector_access_and_intrinsics():
    body = """
  uint4 four = __ldg(reinterpret_cast<const uint4*>(x) + tx);
  __stcs(reinterpret_cast<uint4*>(y) + tx,
         make_uint4(__brev(four.x), __clz(four.y), __ffs(four.z), __popc(four.w)));
  y[4 * tx] ^= __float_as_uint(__uint_as_float(7)) ^ __byte_perm(7, 0, 0x3210) ^ 0u;
  static_assert(sizeof(float4) == 16 && alignof(float4) == 16, "");
  y[4 * tx] += __funnelshift_l(0x80000000u, 0, 1) - 1u + (max(1, 2u) - 2u);
  long long before = clock64();
  assert(before <= clock64());"""
    x = np.arange(64, dtype="uint32") + 1
    y = run(body, x, 0 * x, threads=16).reshape(16, 4)
    for row, (a, b, c, d) in zip(y.tolist(), x.reshape(16, 4).tolist(), strict=True):
        assert row[0] == int(f"{a:032b}"[::-1], 2)
        assert row[1:] == [32 - b.bit_length(), (c & -c).bit_length(), d.bit_count()]


def test_printf(capfd):
    run('if (tx == 3) printf("value %d\\n", x[tx] + 4);', INTS, INTS)
    assert "value 7\n" in capfd.readouterr().out


def test_fresh_memory_is_not_zero():
    y = on_device(np.zeros(4, "int32"))
    del y
    assert tvm.runtime.empty((4,), "int32", tvm.cuda(0)).numpy().all()
    body = "__shared__ int left[128]; y[tx] = left[tx]; left[tx] = 0;"
    assert run(body, INTS, np.zeros(128, "int32"), blocks=2).all()


def test_large_grid(any_order):
    y = run(
        "if (tx == 0) atomicAdd(y, bx % 2);", INTS, np.zeros(1, "int32"), blocks=20_000, threads=32
    )
    assert y == 10_000


# End to end


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


def test_two_kernels_in_one_function():
    function = tvm.compile(two_kernels(), target=target())
    x, y = on_device(np.ones(100, "float32")), on_device(np.zeros(100, "float32"))
    with record() as log:
        function(x, y)
    np.testing.assert_array_equal(y.numpy(), np.full(100, 3))
    assert log.kernels == ["main_kernel", "main_kernel_1"]
    assert log.launches[0].grid == (4, 1, 1) and log.launches[0].block == (32, 1, 1)
    assert log.count("synchronize") == log.count("allocate") == 0


def test_exported_library(tmp_path):
    path = tmp_path / "library.so"
    tvm.compile(two_kernels(), target=target()).export_library(path)
    y = on_device(np.zeros(100, "float32"))
    tvm.runtime.load_module(path)["main"](on_device(np.ones(100, "float32")), y)
    np.testing.assert_array_equal(y.numpy(), np.full(100, 3))


def relax_module():
    kernel = two_kernels().with_attr("global_symbol", "twice_plus_one")
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.add(x, x))
            name = builder.add_func(kernel, "twice_plus_one")
            b = builder.emit(relax.call_tir(name, (a,), out_ty=relax.TensorType((n,), "float32")))
            out = builder.emit_output(relax.op.add(b, b))
        builder.emit_func_output(out)
    return builder.get()


def test_relax_module(any_order):
    vm = relax.VirtualMachine(tvm.compile(relax_module(), target=target()), tvm.cuda(0))
    for n in (5, 1000):
        x = np.arange(n, dtype="float32")
        with record() as log:
            y = vm["main"](on_device(x))
        np.testing.assert_array_equal(y.numpy(), 2 * (4 * x + 1))
        assert len(log.launches) == 4


def test_cuda_graph():
    kernel = two_kernels().with_attr("global_symbol", "twice_plus_one")
    builder = relax.BlockBuilder()
    tensor = relax.TensorType((16,), "float32")
    x = relax.Var("x", tensor)
    with builder.function("main", [x]):
        with builder.dataflow():
            name = builder.add_func(kernel, "twice_plus_one")
            y = x
            for _ in range(4):  # only what lies between two of them is captured
                y = builder.emit(relax.call_tir(name, (y,), out_ty=tensor))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        executable = tvm.compile(builder.get(), target=target())
    vm = relax.VirtualMachine(executable, tvm.cuda(0))
    for turn, value in enumerate((1, 2, 3)):
        with record() as log:
            y = vm["main"](on_device(np.full(16, value, "float32")))
        np.testing.assert_array_equal(y.numpy(), np.full(16, 16 * value + 15, "float32"))
        if turn > 0:
            assert len(log.launches) == 8
            assert sum(e.mode == "replayed" for e in log.launches) == 4
            assert log.count("graph_launch") == 1


@dies_under_sanitizers
def test_stray_write_in_the_virtual_machine():
    """Found where every tensor has an allocation of its own, which TVM's pool does not give it."""
    builder = relax.BlockBuilder()
    tensor = relax.TensorType((128,), "int32")
    x = relax.Var("x", tensor)
    with builder.function("main", [x]):
        kernel = routine_function("y[tx + 1] = x[tx];").with_attr("global_symbol", "stray")
        name = builder.add_func(kernel, "stray")
        builder.emit_func_output(builder.emit(relax.call_tir(name, (x,), out_ty=tensor)))
    executable = tvm.compile(builder.get(), target=target())
    vm = relax.VirtualMachine(executable, tvm.cuda(0), memory_cfg="naive")
    with pytest.raises(Exception, match="byte offset 512 of an allocation of 512 bytes"):
        vm["main"](on_device(INTS[:128]))


def test_capture_forbids_allocation():
    cudart = ctypes.CDLL("libcudart.so.13")
    stream, graph, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert cudart.cudaStreamCreate(ctypes.byref(stream)) == 0
    assert cudart.cudaStreamBeginCapture(stream, 0) == 0
    unsupported, invalidated = 900, 901
    assert cudart.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4)) == unsupported
    assert cudart.cudaStreamEndCapture(stream, ctypes.byref(graph)) == invalidated
    assert cudart.cudaStreamDestroy(stream) == 0
    assert cudart.cudaGetLastError() == invalidated


def test_time_evaluator():
    function = tvm.compile(two_kernels(), target=target())
    x, y = on_device(np.ones(100, "float32")), on_device(np.zeros(100, "float32"))
    timed = function.mod.time_evaluator("main", tvm.cuda(0), number=3, repeat=2)(x, y)
    assert len(timed.results) == 2 and all(t > 0 for t in timed.results)


def test_device_attributes():
    device = tvm.cuda(0)
    assert device.exist and not tvm.cuda(1).exist
    assert device.compute_version == "9.0" and device.warp_size == 32
    assert tvm.target.Target.from_device(device).attrs["max_threads_per_block"] == 1024
    assert device.max_shared_memory_per_block == 48 * 1024


def test_out_of_memory():
    before = memory_in_use()
    with pytest.raises(Exception, match="out of memory"):
        tvm.runtime.empty((1 << 40,), "uint8", tvm.cuda(0))
    set_memory_limit(before + 1000)
    try:
        with pytest.raises(Exception, match="out of memory"):
            tvm.runtime.empty((2000,), "uint8", tvm.cuda(0))
        np.testing.assert_array_equal(on_device(INTS[:10]).numpy(), INTS[:10])
    finally:
        set_memory_limit(4 << 30)
    assert memory_in_use() == before


@dies_under_sanitizers
def test_host_cannot_touch_device_memory():
    tensor = on_device(INTS)
    address = ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_int))
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os._exit(address[3])
    _, how = os.waitpid(child, 0)
    assert os.WIFSIGNALED(how) and os.WTERMSIG(how) == signal.SIGSEGV


# Bugs, planted


def test_race_shows_under_another_order():
    """Each thread reads its neighbour's place without a barrier after the write."""
    body = """
  __shared__ int s[128];
  s[tx] = x[tx];
  __syncthreads();
  s[tx] = s[(tx + 1) % 128];
  y[tx] = s[tx];"""
    x = INTS[:128]
    answers = {}
    for order in ("forward", "reversed", "shuffled"):
        with schedule(threads=order, seed=3):
            answers[order] = run(body, x, 0 * x).tolist()
    assert answers["reversed"] != answers["forward"] != answers["shuffled"]


def test_a_warp_that_runs_ahead_shows_under_another_order():
    """It writes for its next turn what the others have not read yet; all of them meet in warps."""
    body = """
    __shared__ int last[4];
    for (int turn = 0; turn < 2; ++turn) {
      int value = turn + 1;
      for (int d = 1; d < 32; d *= 2) value = max(value, __shfl_up_sync(0xffffffffu, value, d));
      if (lane == 31) last[tx / 32] = value;
      __syncthreads();
      y[turn * 128 + tx] = last[0];
    }
    """
    expected = np.repeat(np.array([1, 2], "int32"), 128)
    for threads in ("forward", "eager"):
        with schedule(threads=threads):
            got = run(body, INTS[:128], np.zeros(256, "int32"))
        assert (got == expected).all() == (threads == "forward")


def test_race_between_blocks_shows_under_another_order():
    body = "if (tx == 0) y[0] = bx;"
    answers = set()
    for order in ("forward", "reversed", "shuffled"):
        with schedule(blocks=order, seed=3):
            answers.add(int(run(body, INTS, np.zeros(1, "int32"), blocks=7)[0]))
    assert len(answers) > 1


BUGS = {
    "deadlock": ("if (tx < 5) __syncwarp(0x3fu); else if (tx == 5) __syncthreads();", "deadlock"),
    "divergent barriers": (
        "if (tx < 5)\n __syncthreads();\n else\n __syncthreads();",
        "was reached while",
    ),
    "foreign mask": ("if (lane < 8) __ballot_sync(0xff00u, 1);", "not in its own mask"),
    "different shuffles": (
        "if (lane < 8)\n y[0] = __shfl_sync(~0u, 1, 0);\n else\n y[1] = __shfl_sync(~0u, 1, 0);",
        "deadlock",
    ),
    "trap": ("if (tx == 77) __trap();", r"thread \(77,0,0\): __trap"),
    "assertion": ("assert(x[tx] != 3);", r"assertion failed: x\[tx\] != 3"),
    "endless loop": ("while (*static_cast<volatile int*>(y) == 0) {}", "still running"),
    "endless waiting": ("while (atomicAdd(y, 0) == 0) __syncwarp();", "still running"),
    "too much shared memory": ("__shared__ int s[13000]; s[tx] = 0;", "too much shared memory"),
}

# These are reported by AddressSanitizer or UndefinedBehaviorSanitizer where those are on.
MEMORY_BUGS = {
    "write behind": ("y[n + tx] = 1;", "byte offset 512 of an allocation of 512 bytes"),
    "write before": ("y[-1 - tx] = 1;", "out of bounds"),
    "write behind shared": ("__shared__ int s[32]; int* p = s; p[tx % 33] = 1;", "out of bounds"),
    "wild pointer": ("*reinterpret_cast<int*>(0x10 + 4 * tx) = 1;", "illegal memory access"),
    "misaligned": ("*reinterpret_cast<int2*>(y + 1) = int2{1, 2};", "misaligned"),
    "index outside an array": ("int s[4] = {1, 2, 3, 4}; y[tx] = s[n - 123];", "outside an array"),
    "division by zero": ("y[tx] = n / (n - 128);", "division by zero"),
    "stack overflow": ("y[0] = deep(n);", "stack overflow"),
}

_DEEP = """
__device__ __noinline__ int deep(int n) {
  volatile int a[999];
  a[n] = n;
  return deep(n + a[n] - n) + 1;
}
"""


@pytest.mark.parametrize("bug", BUGS)
def test_bug_is_an_error(bug, any_order):
    body, message = BUGS[bug]
    set_time_limit(0.1)
    try:
        with pytest.raises(Exception, match=message) as error:
            run(body, INTS[:128], np.zeros(128, "int32"))
    finally:
        set_time_limit(60)
    assert "main_kernel" in str(error.value)
    # The device goes on working.
    assert run("y[tx] = 1;", INTS[:128], np.zeros(128, "int32")).all()


@dies_under_sanitizers
@pytest.mark.parametrize("bug", MEMORY_BUGS)
def test_memory_bug_is_an_error(bug):
    body, message = MEMORY_BUGS[bug]
    with pytest.raises(Exception, match=message) as error:
        run(body, INTS[:128], np.zeros(128, "int32"), preamble=_DEEP)
    assert "main_kernel" in str(error.value)
    assert run("y[tx] = 1;", INTS[:128], np.zeros(128, "int32")).all()


def test_source_that_does_not_compile():
    with pytest.raises(Exception, match="no_such_thing"):
        routine("y[tx] = no_such_thing;")


# Sanitizers, in a process of their own

PLANTED = {
    "write": ("y[n + tx] = 1;", "heap-buffer-overflow"),
    "read": ("y[tx] = x[n + tx];", "heap-buffer-overflow"),
    "shared": ("__shared__ int s[32]; int* p = s; p[tx % 33] = 1;", "use-after-poison"),
    "misaligned": ("*reinterpret_cast<int2*>(y + 1) = int2{1, 2};", "misaligned address"),
}


@pytest.mark.skipif(not SANITIZED, reason="run by the test below")
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_ends_the_process(bug, tmp_path):
    body, message = PLANTED[bug]
    x, y = on_device(INTS[:128]), on_device(np.zeros(128, "int32"))
    function = routine(body)
    report = tmp_path / "report"
    child = os.fork()
    if child == 0:
        os.dup2(os.open(report, os.O_CREAT | os.O_WRONLY), 2)
        function(x, y)
        os._exit(0)
    _, how = os.waitpid(child, 0)
    assert how != 0 and message in report.read_text()


@pytest.mark.skipif(SANITIZED or not sanitizers.available(), reason="no sanitizers, or within them")
def test_under_sanitizers():
    """Right kernels pass, reported bugs are still reported, and stray accesses are fatal."""
    chosen = (
        "(shared_memory or some_lanes or relax_module or atomic_add or bug) "
        "and not forward and not shuffled2"
    )
    arguments = ["-m", "pytest", "-o", "addopts=", "-q", "-x", "-p", "no:cacheprovider"]
    result = sanitizers.run(
        [*arguments, __file__, "-k", chosen],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert result.returncode == 0, result.stdout


# The rewriting of the source


@pytest.mark.parametrize(
    ("cuda", "host"),
    [
        (
            "__shared__ alignas(64) float a[128];",
            "static CpuCudaShared<float[128], (64)> a_storage; auto& a = a_storage.get();",
        ),
        (
            "alignas(16) __shared__ Pair<int, V<float, 2>> a[N * (2 + 1)][4];",
            "static CpuCudaShared<Pair<int, V<float, 2>>[N * (2 + 1)][4], (16)> a_storage; "
            "auto& a = a_storage.get();",
        ),
        (
            "__shared__ typename S::T a;",
            "static CpuCudaShared<typename S::T> a_storage; auto& a = a_storage.get();",
        ),
        ("__shared__ int a[4], b;", "__shared__ int a[4], b;"),
        ("__shared__ int a, b;", "__shared__ int a, b;"),
        (
            "extern __shared__ __align__(64) uchar buf[];",
            'extern __align__(64) uchar buf[] asm("cpu_cuda_dynamic_shared");',
        ),
    ],
)
def test_rewriting_shared_variables(cuda, host):
    assert rewrite.to_host(cuda).splitlines()[0] == host


def test_rewriting_keeps_lines_and_skips_comments():
    cuda = """// __shared__ is
int x;  /* a
comment */ const char* s = "// none";
__shared__ int
    y[4];
int last;"""
    host = rewrite.to_host(cuda).splitlines()
    assert host[1].strip() == "int x;" and '"// none"' in host[2]
    assert host[3].startswith("static CpuCudaShared<int[4]> y_storage") and host[5] == "int last;"


def test_kernel_names():
    source = """
extern "C" __global__ void __launch_bounds__(128, 2) __cluster_dims__(1) a_kernel(int n);
extern "C" __global__ void __launch_bounds__(128, 2) __cluster_dims__(1) a_kernel(int n) {}
// extern "C" __global__ void c_kernel() {}
extern "C" __global__ void b_kernel() {}"""
    assert rewrite.kernel_names(source) == ["a_kernel", "b_kernel"]
