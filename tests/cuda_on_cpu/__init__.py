"""Runs the CUDA that TVM generates on the CPU, for tests without a GPU.

A simulated driver takes the place of libcuda and libcudart, so that TVM's own CUDA runtime, its
virtual machine, memory planning and CUDA graphs run unmodified over host memory. The generated
CUDA C++ is compiled by g++, and the threads of a block run as fibres::

    from cuda_on_cpu import enable, record, schedule, status

    enable()  # at the top of conftest.py, before anything imports tvm


    @pytest.mark.skipif(not status(), reason=status().reason)
    def test_it():
        executable = tvm.compile(module, target=cuda_target)  # runs on tvm.cuda(0), as ever
        with schedule(threads="reversed", blocks="shuffled", seed=7), record() as log:
            ...
        assert log.kernels == ["scatter_kernel"] and log.count("synchronize") == 0

What is found at once, as a Python exception that names the kernel: deadlocks and divergent
barriers, traps and assertions, writes beside an allocation or a shared variable, wild and
misaligned accesses, an index outside an array, too much shared memory, endless loops, device
memory touched by the host (a segmentation fault, as on a GPU), and calls that a CUDA graph forbids.
Races show when the answer changes under another :func:`schedule`. Reads out of bounds need
:mod:`.sanitizers`.

Fences are around device allocations: give ``relax.VirtualMachine`` ``memory_cfg="naive"``, or TVM's
pool rounds sizes up, uses memory again, and hides stray writes and reads of what nobody wrote.

What is not: inline PTX (``__CUDA_ARCH__`` is undefined, so that routines take their portable path),
textures, tensor cores, asynchronous copies, clusters, cooperative launches and anything else for
which two blocks have to run at the same time. Streams run everything at once. Floating point is
the host's: no flushing of denormals, and a conversion of NaN to an integer is not CUDA's. An error
does not stick to the device as it does on a GPU.
"""

from .driver import (
    Status,
    child_environment,
    compile_cuda,
    enable,
    memory_in_use,
    real_gpu,
    record,
    schedule,
    set_memory_limit,
    set_time_limit,
    status,
)
from .log import Event, Log

__all__ = [
    "Event",
    "Log",
    "Status",
    "child_environment",
    "compile_cuda",
    "enable",
    "memory_in_use",
    "real_gpu",
    "record",
    "schedule",
    "set_memory_limit",
    "set_time_limit",
    "status",
]
