"""The code that a module becomes for CUDA: C++, and what NVIDIA's compiler makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from cuda_cases import cuda_target, no_compiler
from tvm.support import nvcc

import tvm_scatter
from tvm_scatter.runtime.cuda_toolkit import nvrtc_version

needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="nvrtc is not installed")


def cuda(mod: tvm.IRModule, arch: str = "sm_90", **options: Any) -> str:
    """The CUDA C++ of a module."""
    with no_compiler(), tvm_scatter.options(**{"bounds": "drop", **options}):
        executable = tvm.compile(mod, cuda_target(arch))
    found = []
    stack = [executable.mod]
    while stack:
        each = stack.pop()
        stack.extend(list(each.imports))
        found += [each.inspect_source()] if each.kind == "cuda" else []
    return "\n".join(found)


def ptx(source: str, arch: str = "sm_90") -> str:
    """The PTX of CUDA C++."""
    return _compiled(source, "ptx", arch).decode()


def cubin(source: str, arch: str = "sm_90") -> bytes:
    """Machine code that is as soon there as it can be: what uses it looks at no instructions."""
    return _compiled(source, "cubin", arch, "--ptxas-options=-O0")


def _compiled(source: str, form: str, arch: str, *options: str) -> bytes:
    how = {"compiler": "nvrtc", "arch": arch, "options": list(options)}
    with cuda_target(arch):
        return bytes(nvcc.compile_cuda(source, target_format=form, **how))
