"""nvrtc from the wheels serves where no CUDA toolkit is installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tvm_scatter.runtime import cuda_toolkit

pytestmark = pytest.mark.skipif(cuda_toolkit.wheels() is None, reason="CUDA wheels not installed")

_COMPILE = """
import tvm, tvm_scatter
from tvm.support import nvcc
source = 'extern "C" __global__ void k(float* a) { a[threadIdx.x] += 1.f; }'
for arch in ("sm_75", "sm_80", "sm_90", "sm_100"):
    with tvm.target.Target({"kind": "cuda", "arch": arch}):
        cubin = nvcc.compile_cuda(source, target_format="cubin", compiler="nvrtc", arch=arch)
    assert bytes(cubin[:4]) == b"\\x7fELF"
"""


@pytest.fixture
def no_toolkit(monkeypatch):
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("TVM_CUDA_NVRTC_EXTRA_OPTS", raising=False)
    monkeypatch.setattr(cuda_toolkit, "toolkit", lambda: None)
    monkeypatch.setattr(cuda_toolkit, "_set_here", {})


def test_wheels_are_used_and_forgotten(no_toolkit):
    cuda_toolkit.use_wheels()
    assert os.environ["CUDA_PATH"] == str(cuda_toolkit.wheels())
    assert os.environ["TVM_CUDA_NVRTC_EXTRA_OPTS"].endswith("cccl")
    cuda_toolkit.use_wheels()
    cuda_toolkit.forget_wheels()
    assert "CUDA_PATH" not in os.environ
    assert "TVM_CUDA_NVRTC_EXTRA_OPTS" not in os.environ


def test_what_the_user_has_set_stays(no_toolkit, monkeypatch):
    monkeypatch.setenv("CUDA_PATH", "/somewhere")
    cuda_toolkit.use_wheels()
    cuda_toolkit.forget_wheels()
    assert os.environ["CUDA_PATH"] == "/somewhere"
    assert "TVM_CUDA_NVRTC_EXTRA_OPTS" not in os.environ


@pytest.mark.exhaustive
def test_wheels_compile_with_nothing_on_the_path(no_toolkit):
    cuda_toolkit.use_wheels()
    environment = {**os.environ, "PATH": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    cuda_toolkit.forget_wheels()
    subprocess.run([sys.executable, "-c", _COMPILE], check=True, env=environment, timeout=120)
