"""Compiles the simulated driver and the kernels, into a cache.

A cache entry is named by a hash of everything it depends on and published by one rename, so
processes may share the folder without locks.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_DEVICE = _HERE / "device"
_SIMULATOR = _HERE / "simulator"

# How many bytes are kept. A module of one kernel has 16 KB, one of 500 has 2 MB, a header 40 MB.
_KEEP = 1 << 30


class CompileError(RuntimeError):
    """g++ did not accept a source; the message is g++'s."""


def compiler() -> str | None:
    """Path of g++, or None."""
    return shutil.which(os.environ.get("CXX", "g++"))


def cuda_include() -> Path | None:
    """The folder with CUDA's headers (``nvidia-cuda-runtime``), or None."""
    candidates = [
        Path(os.environ[name]) / "include"
        for name in ("CUDA_PATH", "CUDA_HOME")
        if os.environ.get(name)
    ]
    try:
        spec = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        spec = None
    if spec is not None and spec.submodule_search_locations:
        # First, since the simulator is written against version 13.
        candidates[:0] = [Path(p) / "include" for p in spec.submodule_search_locations]
    return next((p for p in candidates if (p / "cuda_fp16.h").is_file()), None)


def _tools() -> tuple[str, Path]:
    """The compiler and the headers, where :func:`compiler` and :func:`cuda_include` found them."""
    found = compiler(), cuda_include()
    assert found[0] and found[1], "enable() asks for them first"
    return found[0], found[1]


def cache_folder() -> Path:
    """Where compiled files are kept: ``$CUDA_ON_CPU_CACHE``, else in the user's cache folder."""
    chosen = os.environ.get("CUDA_ON_CPU_CACHE")
    if not chosen:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        chosen = os.path.join(base, "cuda_on_cpu")
    path = Path(chosen)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _hash(*parts: object) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def _tree(folder: Path) -> list[object]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return [part for p in files for part in (p.relative_to(folder), p.read_bytes())]


@functools.cache
def _environment() -> str:
    """What every compiled file depends on: compiler, CUDA's headers and our own."""
    gxx, include = _tools()
    version = subprocess.run([gxx, "--version"], capture_output=True, check=True).stdout
    return _hash(version, (include / "cuda.h").read_bytes(), *_tree(_DEVICE))


def _run(arguments: Iterable[object]) -> None:
    result = subprocess.run(
        [_tools()[0], *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise CompileError(result.stderr or f"g++ ended with {result.returncode}")


def _publish(path: Path, build: Callable[[Path], None]) -> Path:
    """`path`, made by ``build(temporary path)`` unless it is there, and marked as used."""
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="tmp") as folder:
            made = Path(folder) / path.name
            build(made)
            try:
                os.rename(made, path)
            except OSError:
                if not path.exists():  # else another process was first, with the same result
                    raise
    os.utime(path)
    return path


@functools.cache
def driver_libraries() -> tuple[Path, Path]:
    """Builds the simulated driver; returns the paths of libcuda.so.1 and libcudart.so.13."""
    _, include = _tools()
    common = ["-std=c++17", "-O2", "-fPIC", "-shared", f"-I{_DEVICE}", f"-I{include}"]

    def build(folder: Path) -> None:
        folder.mkdir()
        sources = sorted(p for p in _SIMULATOR.glob("*.cpp") if p.name != "libcudart.cpp")
        cuda, cudart = folder / "libcuda.so.1", folder / "libcudart.so.13"
        _run([*common, "-Wl,-soname,libcuda.so.1", "-o", cuda, *sources, "-ldl", "-pthread"])
        script = _SIMULATOR / "libcudart.map"
        _run(
            [
                *common,
                "-Wl,-soname,libcudart.so.13",
                f"-Wl,--version-script={script}",
                "-o",
                cudart,
                _SIMULATOR / "libcudart.cpp",
                cuda,
            ]
        )

    name = "driver-" + _hash(_environment(), *_tree(_SIMULATOR))
    folder = _publish(cache_folder() / name, build)
    return folder / "libcuda.so.1", folder / "libcudart.so.13"


# Cheap checks that need no run-time library: a failed one is an illegal instruction, which the
# simulated driver reports as a failed launch. A misaligned vector access faults on a GPU as well.
_TRAPS = ["-fsanitize=alignment,bounds,shift-exponent", "-fsanitize-undefined-trap-on-error"]
_SANITIZERS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-g1",
    "-fno-omit-frame-pointer",
]


def _flags(sanitize: bool) -> list[str]:
    # Measured on a module of 552 kernels: 2.4 s, against 3.9 s with -O1; -O0 is slower on small
    # modules, since it emits every function of the half-precision headers.
    optimize = os.environ.get("CUDA_ON_CPU_OPTIMIZE", "-Og")
    # Kernels read the same bytes as several types; nvcc does not take advantage of that either.
    return [
        "-std=c++17",
        optimize,
        # Registers given out in a simpler way: 594 kernels take 2.2 s instead of 2.7.
        "-fira-region=one",
        "-fira-algorithm=priority",
        "-w",
        "-fPIC",
        "-fno-strict-aliasing",
        "-fno-exceptions",
        "-fno-threadsafe-statics",
        "-fvisibility=hidden",
        "-pipe",
        *(_SANITIZERS if sanitize else _TRAPS),
    ]


@functools.cache
def _precompiled_header(flags: tuple[str, ...]) -> Path:
    """The folder with the precompiled header for these flags."""
    _, include = _tools()

    def build(folder: Path) -> None:
        folder.mkdir()
        _run(
            [
                *flags,
                f"-I{_DEVICE}",
                f"-I{include}",
                "-x",
                "c++-header",
                _DEVICE / "cuda_on_cpu.h",
                "-o",
                folder / "cuda_on_cpu.h.gch",
            ]
        )

    return _publish(cache_folder() / ("header-" + _hash(_environment(), *flags)), build)


def kernel_library(source: str, sanitize: bool = False) -> bytes:
    """Compiles rewritten CUDA source; returns the bytes of a shared object."""
    flags = tuple(_flags(sanitize))
    path = cache_folder() / f"kernels-{_hash(_environment(), source, *flags)}.so"
    if not path.exists():
        header = _precompiled_header(flags)
        # By its name, libcuda.so.1, which is loaded by then: a kernel finds the simulator even in a
        # process that has it for TVM's sake only.
        simulator, _ = driver_libraries()

        def build(made: Path) -> None:
            # A report of the sanitizers names this file, so there it is kept.
            text = path.with_suffix(".cpp") if sanitize else made.with_suffix(".cpp")
            text.write_text(source)
            _run(
                [
                    *flags,
                    f"-I{header}",
                    f"-I{_DEVICE}",
                    f"-I{_tools()[1]}",
                    "-include",
                    "cuda_on_cpu.h",
                    "-shared",
                    "-Wl,-Bsymbolic",
                    text,
                    simulator,
                    # Looking through C++'s library, of which nothing is used, takes long.
                    *([] if sanitize else ["-nodefaultlibs", "-lm", "-lgcc", "-lc"]),
                    "-o",
                    made,
                ]
            )

        _publish(path, build)
    os.utime(path)
    return path.read_bytes()


def prune() -> None:
    """Deletes what was not used for longest, beyond a fixed number of bytes."""

    def used(path: Path) -> float:
        with contextlib.suppress(FileNotFoundError):  # another process prunes as well
            return path.stat().st_mtime
        return 0.0

    def size(path: Path) -> int:
        with contextlib.suppress(FileNotFoundError):
            files = path.iterdir() if path.is_dir() else [path]
            return sum(file.stat().st_size for file in files)
        return 0

    left = _KEEP
    for path in sorted(cache_folder().iterdir(), key=used, reverse=True):
        left -= size(path)
        if left < 0 and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif left < 0:
            path.unlink(missing_ok=True)
