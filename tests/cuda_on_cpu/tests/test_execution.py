"""What a kernel may do, and gets the same answer for as on a GPU, in any order of threads."""

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from .. import record
from .kernels import INTS, needs_device, on_device, run, target

pytestmark = needs_device


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


def reversal(dynamic_bytes, static_bytes):
    """A function that reverses 128 floats in dynamic shared memory, and uses static memory, too."""
    source = f"""
__device__ void reverse(unsigned char* bytes, const float* x, float* y, int tx) {{
  __shared__ unsigned char more[{static_bytes}];
  more[tx] = 1;
  float* held = reinterpret_cast<float*>(bytes);
  held[tx] = x[tx];
  __syncthreads();
  y[tx] = held[127 - tx] * more[tx];
}}"""

    @T.prim_func(s_tir=True)
    def main(xp: T.handle, yp: T.handle):
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        X = T.match_buffer(xp, (128,), "float32")
        Y = T.match_buffer(yp, (128,), "float32")
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.launch_thread("threadIdx.x", 128) as tx:
                S = T.alloc_buffer((dynamic_bytes,), "uint8", scope="shared.dyn")
                T.evaluate(
                    T.cuda.func_call("reverse", S.data, X.data, Y.data, tx, source_code=source)
                )

    return tvm.compile(main, target=target())


@pytest.mark.parametrize(
    ("dynamic_bytes", "static_bytes"), [(100 << 10, 128), (28 << 10, 20 << 10), (48 << 10, 1024)]
)
def test_dynamic_shared_memory_from_tir(dynamic_bytes, static_bytes, any_order):
    x = np.arange(128, dtype="float32")
    y = on_device(0 * x)
    with record() as log:
        reversal(dynamic_bytes, static_bytes)(on_device(x), y)
    np.testing.assert_array_equal(y.numpy(), x[::-1])
    assert [e.bytes for e in log.launches] == [dynamic_bytes]


def test_static_memory_counts_towards_what_a_launch_may_use():
    # TVM raises the limit only for launches whose dynamic memory alone reaches 48 KB.
    x = on_device(np.zeros(128, "float32"))
    with pytest.raises(Exception, match="20480 bytes static and 36864 dynamic"):
        reversal(36 << 10, 20 << 10)(x, x)


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
