"""The compiler behind the cache: memory first, then disk, then TVM's own."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import tvm
from tvm.support import nvcc
from tvm.target import Target

from . import settings
from .compiler import dependencies, mode
from .store import Store

#: Settings that make TVM write intermediate files. A hit would not write them, so nothing is cached
#: then.
_DUMP = "TVM_KERNEL_DUMP"
_OUTPUT_FOLDER = "cuda.kernels_output_dir"
_MEMORY_LIMIT = 256 << 20
#: From this compute capability on, GPUs have instructions that no later one has.
_FIRST_WITH_ITS_OWN = 9


@dataclass
class Statistics:
    """How often kernels came from memory, from disk or from the compiler, in this process.

    Attributes
    ----------
    memory, disk : int
        Kernels found in memory, and on disk.
    compiled : int
        Kernels that were compiled, because neither had them.
    passed : int
        Kernels that were compiled without looking them up, and not kept.
    """

    memory: int = 0
    disk: int = 0
    compiled: int = 0
    passed: int = 0


statistics = Statistics()
_memory: OrderedDict[str, bytes] = OrderedDict()
_memory_lock = threading.Lock()

Compile = Callable[[str], bytes]


def compile_cached(source: str, target: Target | None, compile_source: Compile) -> bytes:
    """The binary for a CUDA source.

    Parameters
    ----------
    source : str
        The source that TVM generated.
    target : tvm.target.Target, optional
        The target of the source; by default, this machine's GPU.
    compile_source : callable
        TVM's own compile callback.
    """
    scope = _scope(target)

    def compile_now() -> bytes:
        with scope:
            return bytes(compile_source(source))

    key = _key(source, None if isinstance(scope, nullcontext) else scope)
    if key is None:
        statistics.passed += 1
        return compile_now()
    binary = _remembered(key)
    if binary is not None:
        statistics.memory += 1
        return binary
    store = Store(settings.folder(), settings.size_limit())
    binary = store.read(key)
    if binary is not None:
        statistics.disk += 1
    else:
        binary = _compile_once(store, key, compile_now)
    _remember(key, binary)
    return binary


def forget() -> None:
    """Empty the cache in memory."""
    with _memory_lock:
        _memory.clear()


def _compile_once(store: Store, key: str, compile_now: Callable[[], bytes]) -> bytes:
    with store.lock(key):
        binary = store.read(key)  # another process may have been faster
        if binary is not None:
            statistics.disk += 1
            return binary
        binary = compile_now()
        statistics.compiled += 1
        store.write(key, binary)
        return binary


def _scope(target: Target | None) -> Target | nullcontext[None]:
    """The context in which TVM's callback compiles for the target.

    If the target's architecture is that of this GPU, it is compiled with the features of that GPU
    alone, for sm_90a, say, that a target of sm_90 lacks. TVM chooses so by itself if there is no
    target in force.
    """
    if target is None or not target.attrs.get("arch"):
        return nullcontext()
    wanted = nvcc.parse_compute_version(nvcc.get_target_compute_version(target))
    gpu = tvm.cuda(0)
    if not gpu.exist or wanted != nvcc.parse_compute_version(gpu.compute_version):
        return target
    major, minor = wanted
    if Target.current(allow_none=True) is None or major < _FIRST_WITH_ITS_OWN:
        return nullcontext()
    return Target({**dict(target.export()), "arch": f"sm_{major}{minor}a"})


def _key(source: str, target: Target | None) -> str | None:
    """The cache key: a digest of all that the binary depends on; ``None`` if it is not kept."""
    if not settings.is_on() or os.environ.get(_DUMP) or "nvshmem" in source:
        return None
    if _OUTPUT_FOLDER in tvm.ir.transform.PassContext.current().config:
        return None
    if mode() not in ("nvrtc", "nvcc"):
        return None
    try:
        arch = nvcc.get_target_compute_version(target or Target.current(allow_none=True))
        parts = [source, str(arch), *dependencies(source)]
    except Exception:  # no compiler or no GPU: the compilation itself gives a better error
        return None
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _remembered(key: str) -> bytes | None:
    with _memory_lock:
        binary = _memory.get(key)
        if binary is not None:
            _memory.move_to_end(key)
        return binary


def _remember(key: str, binary: bytes) -> None:
    with _memory_lock:
        _memory[key] = binary
        _memory.move_to_end(key)
        while len(_memory) > 1 and sum(map(len, _memory.values())) > _MEMORY_LIMIT:
            _memory.popitem(last=False)
