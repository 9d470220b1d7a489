"""What goes wrong around the kernels: no memory, many threads, processes that die."""

from __future__ import annotations

import hashlib
import importlib.util
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tvm
from cuda_on_cpu import memory_in_use, set_memory_limit, status
from harness import compile_all, device_of, relax_function, target_of
from tvm import relax

from tvm_scatter import options
from tvm_scatter.ops.operators import index_put
from tvm_scatter.runtime import kernel_cache
from tvm_scatter.runtime.kernel_cache import Store


def build(data, index, updates):
    return index_put(data, [index], updates, reduction="add")


def arrays(rows: int = 50):
    generator = np.random.default_rng(rows)
    return [
        np.ones((rows, 4), "float32"),
        generator.integers(0, rows, 200),
        generator.integers(-3, 4, (200, 4)).astype("float32"),
    ]


def expected(data, index, updates):
    result = data.copy()
    np.add.at(result, index, updates)
    return result


def test_out_of_gpu_memory_is_an_error_and_the_next_call_works() -> None:
    if not status():
        pytest.skip(status().reason)
    given = arrays(3000)
    machine = compile_all({"main": (build, given)}, "cuda", implementation="sort_based")
    tensors = [tvm.runtime.tensor(array, device=device_of("cuda")) for array in given]
    # What earlier tests have left in TVM's pool would do.
    tvm.get_global_func("vm.builtin.memory_manager.clear")()
    set_memory_limit(memory_in_use() + 1000)
    try:
        for _ in range(2):
            with pytest.raises(Exception, match="out of memory"):
                machine["main"](*tensors)
    finally:
        set_memory_limit(4 << 30)
    for _ in range(2):
        np.testing.assert_array_equal(machine["main"](*tensors).numpy(), expected(*given))
    for tensor, array in zip(tensors, given, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.each_device
def test_threads_compile_at_once(device: str) -> None:
    """Each under options of its own."""
    names = ["sequential", "parallel_injective", "sort_based", None]
    modules = []
    for number in range(len(names)):
        # TVM's block builder is one for all threads, so modules are made before they start.
        builder = relax.BlockBuilder()
        relax_function(builder, "main", build, arrays(20 + number))
        modules.append(builder.get())

    def work(number: int):
        with options(bounds="trust", implementation=names[number]):
            return tvm.compile(modules[number], target=target_of(device))

    with ThreadPoolExecutor(len(names)) as pool:
        executables = list(pool.map(work, range(len(names))))
    on = device_of(device)
    for number, executable in enumerate(executables):
        given = arrays(20 + number)
        tensors = [tvm.runtime.tensor(array, device=on) for array in given]
        result = relax.VirtualMachine(executable, on)["main"](*tensors).numpy()
        np.testing.assert_array_equal(result, expected(*given))


_WRITER = """
import hashlib, importlib.util, itertools, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("store", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
store = module.Store(Path(sys.argv[2]), 1 << 26)
print("ready", flush=True)
for number in itertools.cycle(range(8)):
    key = hashlib.sha256(bytes([number])).hexdigest()
    with store.lock(key):
        store.write(key, bytes([number]) * 2_000_000)
"""


def test_writers_of_the_kernel_cache_may_be_killed(tmp_path: Path) -> None:
    """Whatever they were doing, every entry is whole or missing, and writing goes on."""
    spec = importlib.util.find_spec("tvm_scatter.runtime.kernel_cache.store")
    assert spec is not None and kernel_cache.Store is Store
    moments = random.Random(4)
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(spec.origin), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
            time.sleep(moments.uniform(0, 0.1))
            writer.send_signal(signal.SIGKILL)
        assert writer.returncode == -signal.SIGKILL
    store, whole = Store(tmp_path, 1 << 26), 0
    for number in range(8):
        key = hashlib.sha256(bytes([number])).hexdigest()
        binary = store.read(key)
        assert binary in (None, bytes([number]) * 2_000_000)
        whole += binary is not None
        with store.lock(key):
            store.write(key, b"fresh")
        assert store.read(key) == b"fresh"
    assert whole
