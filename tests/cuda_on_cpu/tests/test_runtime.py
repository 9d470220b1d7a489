"""What a host does with the device: TVM's runtime, virtual machine, graphs and memory."""

import ctypes
import faulthandler
import os
import signal

import numpy as np
import pytest
import tvm
from tvm import relax

from .. import memory_in_use, record, set_memory_limit
from .kernels import (
    INTS,
    dies_under_sanitizers,
    needs_device,
    on_device,
    routine_function,
    target,
    two_kernels,
)

pytestmark = needs_device


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
