"""CUDA's compiler without a CUDA toolkit: nvrtc and its headers from the ``nvidia-cuda-*`` wheels.

To compile with nvrtc, TVM needs a folder with CUDA's headers. Without a toolkit, the wheels of the
``cuda`` extra provide it. Two environment variables point TVM to them.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

_PATH = "CUDA_PATH"
_OPTIONS = "TVM_CUDA_NVRTC_EXTRA_OPTS"
_set_here: dict[str, str] = {}


def toolkit() -> Path | None:
    """The CUDA folder that TVM finds by itself, if it holds the headers."""
    from tvm.support.nvcc import find_cuda_path

    try:
        path = Path(find_cuda_path())
    except (RuntimeError, OSError):  # FileNotFoundError if there is no program `which`
        return None
    headers = [path / "include", *path.glob("targets/*/include")]
    return path if any((folder / "cuda_runtime.h").is_file() for folder in headers) else None


def wheels() -> Path | None:
    """The folder into which the wheels unpack CUDA, the newest if there are several."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    roots = spec.submodule_search_locations if spec else None
    found = [
        folder
        for root in roots or ()
        for folder in Path(root).glob("cu*")
        if (folder / "include" / "cuda_runtime.h").is_file() and _cccl(folder).is_dir()
    ]
    return max(found, key=lambda folder: folder.name, default=None)


def nvrtc_version() -> str | None:
    """The version of the nvrtc library, if it can be loaded."""
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except Exception:  # the package raises its own errors if the library is missing
        return None
    return f"{major}.{minor}"


def use_wheels() -> None:
    """Point TVM at the wheels, unless a toolkit is there or the user has set the variables."""
    if _PATH in os.environ or toolkit() is not None:
        return
    folder = wheels()
    if folder is None:
        return
    settings = {_PATH: str(folder)}
    if _OPTIONS not in os.environ:
        settings[_OPTIONS] = f"-I{_cccl(folder)}"
    os.environ.update(settings)
    _set_here.update(settings)


def forget_wheels() -> None:
    """Remove the environment variables that :func:`use_wheels` has set."""
    for name, value in _set_here.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    _set_here.clear()


def _cccl(folder: Path) -> Path:
    return folder / "include" / "cccl"
