"""Puts the simulated driver in place of CUDA's, and its settings."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import build, rewrite
from .log import Log, record_from

_ORDERS = ("forward", "reversed", "shuffled", "eager")


@dataclass(frozen=True)
class Status:
    """Whether CUDA runs on the CPU in this process and, if it does not, why. True if it does."""

    enabled: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.enabled


_status: Status | None = None
_library: Any = None  # libcuda.so.1, once loaded
_sanitize = False


def real_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, asked without loading its driver.

    A driver library that is once loaded cannot be replaced.
    """
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _loaded(name: str) -> bool:
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return True


def _obstacle() -> str | None:
    if sys.platform != "linux":
        return "the simulated driver is for Linux"
    if os.environ.get("CUDA_ON_CPU") == "0":
        return "switched off by CUDA_ON_CPU=0"
    if real_gpu():
        return "there is a real GPU"
    if build.compiler() is None:
        return "there is no g++"
    if build.cuda_include() is None:
        return "CUDA's headers are missing (pip install nvidia-cuda-runtime)"
    for name in ("libcuda.so.1", "libcudart.so.13"):
        if _loaded(name):  # a CUDA build of PyTorch does that
            return f"another {name} is loaded already; call enable() before what loads it"
    return None


def enable(sanitize: bool | None = None, memory_limit: int | None = None) -> Status:
    """Makes ``tvm.cuda(0)`` a device that runs CUDA kernels on the CPU.

    Best called before ``import tvm``, for instance at the top of a ``conftest.py``; afterwards
    works too, as long as no CUDA runtime could be loaded yet. A second call returns the first
    one's answer.

    Parameters
    ----------
    sanitize : bool, optional
        Compile kernels with AddressSanitizer and UndefinedBehaviorSanitizer. The process must have
        been started by :func:`.run_with_sanitizers`; by default it is looked up whether it was.
    memory_limit : int, optional
        Bytes of device memory, beyond which allocation fails. Default: ``$CUDA_ON_CPU_MEMORY``, or
        4 GiB.

    Returns
    -------
    status : Status
        False, with the reason, where there is a real GPU (TVM then uses that), no g++ or no CUDA
        headers.

    Notes
    -----
    ``CUDA_ON_CPU_SCHEDULE`` sets the initial :func:`schedule`, as in ``reversed`` or
    ``threads=shuffled,blocks=reversed,seed=3``.
    """
    global _status, _library, _sanitize
    if _status is not None:
        return _status
    reason = _obstacle()
    if reason is not None:
        _status = Status(False, reason)
        return _status

    cuda, cudart = build.driver_libraries()
    # TVM's CUDA runtime needs libraries of these names; the loader is content with those that are
    # loaded.
    _library = ctypes.CDLL(str(cuda))
    ctypes.CDLL(str(cudart))
    in_process = hasattr(ctypes.CDLL(None), "__asan_init")
    _sanitize = in_process if sanitize is None else sanitize
    if _sanitize and not in_process:
        raise RuntimeError("AddressSanitizer is not loaded: start Python by run_with_sanitizers")
    set_memory_limit(memory_limit or int(os.environ.get("CUDA_ON_CPU_MEMORY", 4 << 30)))
    set_time_limit(float(os.environ.get("CUDA_ON_CPU_TIME", 60)))
    _set_schedule(**_parse(os.environ.get("CUDA_ON_CPU_SCHEDULE", "forward")))

    import tvm
    import tvm_ffi
    from tvm.base import _LOADED_LIBS

    if "tvm_runtime_cuda" not in _LOADED_LIBS:  # TVM was imported before us
        folder = Path(_LOADED_LIBS["tvm_runtime"]._name).resolve().parent
        _LOADED_LIBS["tvm_runtime_cuda"] = ctypes.CDLL(str(folder / "libtvm_runtime_cuda.so"))
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", compile_cuda, override=True)
    if tvm.cuda(0).device_name != "CPU-executed CUDA":
        raise RuntimeError("TVM's CUDA runtime does not use the simulated driver")
    build.prune()
    _status = Status(True)
    return _status


def status() -> Status:
    """What :func:`enable` returned, or a false status if it was not called."""
    return _status or Status(False, "cuda_on_cpu.enable() was not called")


def compile_cuda(source: str) -> bytes:
    """CUDA source to what the simulated cuModuleLoadData takes; TVM's compile callback."""
    image = build.kernel_library(rewrite.to_host(source), _sanitize)
    return b"cpu-cuda" + struct.pack("<Q", len(image)) + image


def set_memory_limit(nbytes: int) -> None:
    """Sets how much device memory there is."""
    _library.cpu_cuda_set_memory_limit(ctypes.c_size_t(nbytes))


def set_time_limit(seconds: float) -> None:
    """Sets after how much processor time a launch fails, since a kernel that spins never ends."""
    _library.cpu_cuda_set_time_limit(ctypes.c_double(seconds))


def child_environment() -> dict[str, str]:
    """Environment variables with which a child process has the device as well.

    It can run what was compiled here, for example as a worker of ``tvm.support.popen_pool``; to
    compile, it has to call :func:`enable`.
    """
    folder = str(build.driver_libraries()[0].parent)
    path = [folder, os.environ.get("LD_LIBRARY_PATH")]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(p for p in path if p)}


def memory_in_use() -> int:
    """Bytes of device memory that are allocated."""
    _library.cpu_cuda_memory_in_use.restype = ctypes.c_size_t
    return _library.cpu_cuda_memory_in_use()


def record() -> AbstractContextManager[Log]:
    """``with record() as log:`` notes launches, copies and synchronisations (:class:`.log.Log`)."""
    return record_from(_library)


_current: dict[str, Any] = {"threads": "forward", "blocks": "forward", "seed": 0}


def _parse(text: str) -> dict[str, Any]:
    if "=" not in text:
        return {"threads": text, "blocks": text, "seed": 0}
    fields = dict(item.split("=", 1) for item in text.split(","))
    unknown = set(fields) - set(_current)
    if unknown:
        raise ValueError(f"CUDA_ON_CPU_SCHEDULE: unknown {sorted(unknown)}")
    return {**_current, **fields, "seed": int(fields.get("seed", 0))}


def _set_schedule(threads: str, blocks: str, seed: int) -> None:
    for order in (threads, blocks):
        if order not in _ORDERS:
            raise ValueError(f"no such order: {order}; there are {', '.join(_ORDERS)}")
    _library.cpu_cuda_set_schedule(
        _ORDERS.index(threads), _ORDERS.index(blocks), ctypes.c_uint64(seed)
    )
    _current.update(threads=threads, blocks=blocks, seed=seed)


@contextlib.contextmanager
def schedule(
    threads: str | None = None, blocks: str | None = None, seed: int | None = None
) -> Iterator[None]:
    """Within the ``with`` block, threads and blocks run in another order.

    Orders are "forward", "reversed", "shuffled" and "eager", in which each warp goes as far as it
    can before the next one does anything; what is not given stays. A kernel whose answer depends
    on it has a race.
    """
    before = dict(_current)
    given = {"threads": threads, "blocks": blocks, "seed": seed}
    _set_schedule(**{**before, **{k: v for k, v in given.items() if v is not None}})
    try:
        yield
    finally:
        _set_schedule(**before)
