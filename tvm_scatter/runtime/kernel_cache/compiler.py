"""The compiler, its headers and options: all that a binary depends on besides its source."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import tvm
from tvm.support import nvcc

from .headers import headers_digest, included

#: Environment variables with options that TVM passes to both compilers.
_PLAIN = ("TVM_CUDA_PTXAS_REG_LEVEL", "TVM_CUDA_PTXAS_EXTRA_OPTS")
#: Variables with options for nvcc only.
_NVCC = (
    "TVM_CUDA_NVCC_NO_FAST_MATH",
    "TVM_KERNEL_DEBUG",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
)
_NVRTC_OPTIONS = "TVM_CUDA_NVRTC_EXTRA_OPTS"
#: Bytes at the head of a library that are digested. They hold the linker's build id, which differs
#: between builds.
_HEAD_BYTES = 1 << 16


def mode() -> str:
    """The compiler that TVM uses: ``nvrtc`` or ``nvcc``."""
    return os.environ.get("TVM_CUDA_COMPILE_MODE", "nvrtc").lower()


def dependencies(source: str) -> list[str]:
    """Everything but source and architecture that the compiled binary depends on.

    Installing the same compiler and headers elsewhere changes nothing in the list.

    Raises
    ------
    Exception
        If there is no compiler: the exception of TVM's own functions.
    """
    options, option_folders = _options()
    identity, compiler_folders = _nvrtc() if mode() == "nvrtc" else _nvcc()
    names, calls = _tvm_call()
    headers = headers_digest(
        included(source) | names | {"cuda_runtime.h"}, (*compiler_folders, *option_folders)
    )
    return [mode(), tvm.__version__, calls, identity, headers, *options]


@cache
def _tvm_call() -> tuple[frozenset[str], str]:
    """The headers that TVM adds to a source, and a digest of its code that calls the compiler."""
    text = Path(nvcc.__file__).read_text(encoding="utf-8")
    return included(text), hashlib.sha256(text.encode()).hexdigest()


def _options() -> tuple[list[str], list[Path]]:
    """The options from the environment: those without include folders, and the include folders."""
    names = _PLAIN if mode() == "nvrtc" else (*_PLAIN, *_NVCC)
    options = [f"{name}={os.environ.get(name, '')}" for name in names]
    if mode() != "nvrtc":
        return options, []
    words, folders = _without_folders(shlex.split(os.environ.get(_NVRTC_OPTIONS, "")))
    return [*options, *words], folders


def _without_folders(options: Iterable[str]) -> tuple[list[str], list[Path]]:
    kept: list[str] = []
    folders: list[Path] = []
    words = iter(options)
    for word in words:
        if word in ("-I", "--include-path"):
            folders.append(Path(next(words, "")))
        elif word.startswith(("-I", "--include-path=")):
            folders.append(Path(word.removeprefix("-I").removeprefix("--include-path=")))
        else:
            kept.append(word)
    return kept, folders


def _nvrtc() -> tuple[str, tuple[Path, ...]]:
    """The identity of the nvrtc library, and its include folders."""
    return _nvrtc_identity(), _toolkit_folders(nvcc.find_cuda_path())


@cache
def _nvrtc_identity() -> str:
    from cuda.bindings import nvrtc
    from cuda.pathfinder import load_nvidia_dynamic_lib

    _, major, minor = nvrtc.nvrtcVersion()
    library = Path(load_nvidia_dynamic_lib("nvrtc").abs_path).resolve()
    # nvrtc's built-in headers are in a second library.
    parts = [library, *sorted(library.parent.glob(f"libnvrtc-builtins.so.{major}.{minor}*"))]
    return "\n".join([f"nvrtc {major}.{minor}", *map(_build_of, parts)])


def _build_of(library: Path) -> str:
    with library.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return f"{hashlib.sha256(head).hexdigest()} {library.stat().st_size}"


@cache
def _toolkit_folders(root: str) -> tuple[Path, ...]:
    include = Path(root) / "include"
    targets = sorted((Path(root) / "targets").glob("*/include"))
    return (include, *targets, *(folder / "cccl" for folder in (include, *targets)))


def _nvcc() -> tuple[str, tuple[Path, ...]]:
    program = shutil.which("nvcc")
    if program is None:
        raise FileNotFoundError("nvcc")
    return _nvcc_identity(program, os.environ.get("NVCC_CCBIN"))


@cache
def _nvcc_identity(program: str, host_compiler: str | None) -> tuple[str, tuple[Path, ...]]:
    """The identity of nvcc and its host compiler, and the include folders that nvcc reports."""

    def output(*arguments: str) -> str:
        command = [program, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout + done.stderr

    plan = output("--dryrun", "-x", "cu", "-cubin", os.devnull, "-o", os.devnull)
    host = re.findall(r"--(?:gnu|clang)_version=\d+", plan)
    lines = re.findall(r"^#\$ (?:SYSTEM_)?INCLUDES=(.*)$", plan, re.MULTILINE)
    words = [word for line in lines for word in shlex.split(line)]
    folders = [word.removeprefix("-I") for word in words if word != "-isystem"]
    return "\n".join([output("--version"), *sorted(set(host))]), tuple(map(Path, folders))
