"""``tvm-scatter doctor``: lists what is installed, what works, and what is missing."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata

import tvm
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.table import Table
from tvm.support import cc

from tvm_scatter.runtime import cuda_toolkit
from tvm_scatter.runtime.cpu_threads import in_words, threads_of_tvm, usable_cores
from tvm_scatter.selection.backend import backends
from tvm_scatter.selection.strategy import strategy_for
from tvm_scatter.selection.targets import default_target, gpu_target

#: Distributions, and the extra that brings each.
_PACKAGES = {
    "tvm_scatter": "",
    "apache-tvm": "",
    "apache-tvm-ffi": "",
    "numpy": "",
    "xgboost": "",
    "torch": "torch",
    "torch-geometric": "torch",
    "onnx": "onnx",
    "cuda-bindings": "cuda",
    "nvidia-cuda-nvrtc": "cuda",
    "nvidia-cuda-runtime": "cuda",
    "nvidia-cuda-cccl": "cuda",
}
#: Versions that are known to work, and why others do not.
_NEEDED = {
    "apache-tvm": (">=0.27.0,<0.28", "its API differs from version to version"),
    "apache-tvm-ffi": (">=0.1.14.post0,<0.1.15", "0.1.15 crashes when a tuning database is read"),
}


def run(_arguments: argparse.Namespace) -> int:
    """Print the findings; returns 1 if something does not work."""
    problems: list[str] = []
    table = Table(show_header=False)
    for label, text in [*_versions(problems), *_devices(), *_compilers(problems), *_tables()]:
        table.add_row(label, text)
    console = Console(highlight=False, markup=False)
    console.print(table)
    for problem in problems:
        console.print(f"problem: {problem}")
    if not problems:
        kind = default_target().kind.name
        console.print(f"No problems. Models are compiled for {kind} by default.")
    return 1 if problems else 0


def _versions(problems: list[str]) -> list[tuple[str, str]]:
    rows = [("python", platform.python_version())]
    for name, extra in _PACKAGES.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = f"not installed (pip install 'tvm_scatter[{extra}]')" if extra else "unknown"
        else:
            allowed, why = _NEEDED.get(name, ("", ""))
            if version not in SpecifierSet(allowed, prereleases=True):
                problems.append(f"{name} {version} is not {allowed}: {why}.")
        rows.append((name, version))
    return rows


def _devices() -> list[tuple[str, str]]:
    # In this order: when TVM starts its threads, it binds this one to a core.
    cores = usable_cores()
    rows = [("CPU", in_words(threads_of_tvm(), cores))]
    target = gpu_target()
    if target is None:
        return [*rows, ("GPU", "none found; models run on the CPU")]
    name = tvm.cuda(0).device_name
    return [*rows, ("GPU", f"{name}, {target.attrs['arch']}")]


def _compilers(problems: list[str]) -> list[tuple[str, str]]:
    nvrtc, headers = cuda_toolkit.nvrtc_version(), cuda_toolkit.toolkit()
    if nvrtc and headers:
        cuda = f"nvrtc {nvrtc}, headers in {headers}"
    else:
        missing = [] if nvrtc else ["nvrtc"]
        missing += [] if headers else ["CUDA's headers"]
        cuda = f"no {' and no '.join(missing)}; run: pip install 'tvm_scatter[cuda]'"
        if gpu_target() is not None:
            problems.append("there is a GPU and no compiler for it; see the line above.")
    library = cc.get_cc() or "none; install g++ or clang++ to write compiled models to files"
    return [("CUDA compiler", cuda), ("C++ compiler", library)]


def _tables() -> list[tuple[str, str]]:
    rows = []
    for backend in backends():
        strategy = strategy_for(backend.kind)
        if strategy is not None:
            rows.append((f"for {backend.kind}", ", ".join(strategy.implementations)))
    return rows
