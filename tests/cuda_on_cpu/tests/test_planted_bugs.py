"""Bugs, planted: each is an error that names the kernel, or changes the answer in another order.

A simulator that lets a race or a stray write pass would make every test of a kernel worthless.
"""

import numpy as np
import pytest

from .. import schedule, set_time_limit
from .kernels import INTS, dies_under_sanitizers, needs_device, routine, run

pytestmark = needs_device


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
