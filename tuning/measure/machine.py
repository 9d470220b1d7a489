"""Facts of the machine that measurements are made on."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import tvm

import tvm_scatter
from tvm_scatter.strategies.llvm.machines import processor


def describe(kind: str) -> dict[str, Any]:
    """This machine's device for a kind of target, its driver, its clocks, and the versions."""
    facts: dict[str, Any] = {
        "device": processor(),
        "tvm_scatter": tvm_scatter.__version__,
        "tvm": tvm.__version__,
        "python": platform.python_version(),
    }
    return facts | _FACTS.get(kind, dict[str, Any])()


def _of_nvidia() -> dict[str, Any]:
    device = tvm.cuda(0)
    if not device.exist:
        return {}
    return {"device": str(device.device_name), "driver": driver_version(), "clocks": clocks()}


#: What more is told of the device of a kind of target.
_FACTS = {"cuda": _of_nvidia}


def kernels() -> str:
    """A digest of the implementations and their rules; equal digests mean equal kernels."""
    folder = Path(str(resources.files("tvm_scatter.strategies")))
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".cuh", ".json"):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()} {len(content)} ".encode())
            digest.update(content)
    return digest.hexdigest()[:12]


def driver_version() -> str:
    """The version of NVIDIA's driver, or ``unknown``."""
    path = Path("/proc/driver/nvidia/version")
    if not path.exists():
        return "unknown"
    words = path.read_text(encoding="utf-8").splitlines()[0].split()
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")


def clocks() -> str:
    """The GPU's clocks at this moment, as ``nvidia-smi`` reads them, or ``unknown``."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown"
    query = "--query-gpu=clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem"
    try:
        said = subprocess.run(
            [tool, query, "--format=csv,noheader", "-i", "0"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    sm, memory, most_sm, most_memory = (part.strip() for part in said.stdout.split(","))
    return f"SM {sm} of {most_sm}, memory {memory} of {most_memory}"
