"""The compiler's sanitizers, in a process of their own."""

import gc
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm

from .. import run_with_sanitizers, sanitizers_available
from .kernels import INTS, SANITIZED, needs_device, on_device, routine, routine_function, target

pytestmark = needs_device

HERE = Path(__file__).parent


PLANTED = {
    "write": ("y[n + tx] = 1;", "heap-buffer-overflow"),
    "read": ("y[tx] = x[n + tx];", "heap-buffer-overflow"),
    "shared": ("__shared__ int s[32]; int* p = s; p[tx % 33] = 1;", "use-after-poison"),
    "misaligned": ("*reinterpret_cast<int2*>(y + 1) = int2{1, 2};", "misaligned address"),
}


within_sanitizers = pytest.mark.skipif(not SANITIZED, reason="run by the test below")


def report_of(bug, path):
    """What the sanitizers say of a planted bug, which ends a process of its own."""
    x, y = on_device(INTS[:128]), on_device(np.zeros(128, "int32"))
    function = routine(PLANTED[bug][0])
    child = os.fork()
    if child == 0:
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), 2)
        function(x, y)
        os._exit(0)
    _, how = os.waitpid(child, 0)
    assert how != 0
    return path.read_text()


@within_sanitizers
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_ends_the_process(bug, tmp_path):
    assert PLANTED[bug][1] in report_of(bug, tmp_path / "report")


@within_sanitizers
def test_a_bug_ends_the_process_after_other_kernels_are_gone(tmp_path):
    """AddressSanitizer looks through the variables of every library that it has ever seen."""
    functions = [tvm.compile(routine_function("y[tx] = x[tx];"), target()) for _ in range(3)]
    for function in functions:
        function(on_device(INTS[:128]), on_device(INTS[:128]))
    del function, functions
    gc.collect()
    assert PLANTED["shared"][1] in report_of("shared", tmp_path / "report")


@pytest.mark.exhaustive
@pytest.mark.skipif(SANITIZED or not sanitizers_available(), reason="no sanitizers, or within them")
def test_under_sanitizers():
    """Right kernels pass, reported bugs are still reported, and stray accesses are fatal."""
    # In one order each: that bugs are found in any is tested without sanitizers. Of the types that
    # are added, one has the hardware's way and one the loop of compare-and-swap.
    chosen = (
        "(shared_memory or some_lanes or relax_module or atomic_add or is_an_error or ends_the) "
        "and not forward and not reversed and not shuffled "
        "and not uint32 and not float32 and not float64 and not bfloat16"
    )
    arguments = ["-m", "pytest", "-o", "addopts=", "-q", "-x", "-p", "no:cacheprovider"]
    result = run_with_sanitizers(
        [*arguments, str(HERE), "-k", chosen],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert result.returncode == 0, result.stdout
