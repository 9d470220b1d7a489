"""The target for this machine, and targets from what people type."""

from __future__ import annotations

import json
import re
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.errors import ScatterError

#: What TVM's schedules ask of a CUDA target and a bare architecture does not say.
_CUDA_LIMITS = {
    "max_num_threads": 1024,
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}


def gpu_target() -> Target | None:
    """The target for this machine's first CUDA GPU, or ``None`` if it has none."""
    device = tvm.cuda(0)
    return Target.from_device(device) if device.exist else None


def host_target() -> Target:
    """The target for this machine's CPU, with all of its instructions; code for it runs here."""
    cpu = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return Target({"kind": "llvm", "mcpu": str(cpu())}) if cpu is not None else Target("llvm")


def default_target() -> Target:
    """The GPU if there is one, else the CPU."""
    return gpu_target() or Target("llvm")


def parse_target(text: str | None) -> Target:
    """A target from a command line.

    Parameters
    ----------
    text : str, optional
        ``cuda`` (this machine's GPU), an architecture such as ``sm_90``, or anything TVM takes: a
        kind, a tag such as ``nvidia/nvidia-h100``, or JSON. Without it :func:`default_target`.

    Raises
    ------
    ScatterError
        If there is no such target.
    """
    if text is None:
        return default_target()
    if text == "cuda":
        target = gpu_target()
        if target is None:
            raise ScatterError(
                "target 'cuda': there is no GPU here to take the architecture from; name one, such "
                "as sm_90."
            )
        return target
    return to_target(text)


def to_target(target: Any) -> Target:
    """A target from a target, or from what stands for one: an architecture, or what TVM takes.

    Raises
    ------
    ScatterError
        If there is no such target.
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, str) and re.fullmatch(r"sm_\d+[af]?", target):
        return Target({"kind": "cuda", "arch": target, **_CUDA_LIMITS}, host="llvm")
    try:
        return Target(target)
    except (ValueError, TypeError, RuntimeError, KeyError) as error:
        said = repr(target)
        shown = said if len(said) <= 80 else f"{said[:77]}..."
        options = re.fullmatch(r"(\w+)((?: +-[\w-]+=[^ ]+)+)", str(target))
        if options is not None:
            raise ScatterError(
                f"target {shown}: this TVM takes options as JSON, such as "
                f"'{_as_json(*options.groups())}'."
            ) from error
        raise ScatterError(
            f"unknown target {shown}; it must be llvm, cuda, an architecture such as sm_90, or "
            "what TVM takes as a target."
        ) from error


def _as_json(kind: str, options: str) -> str:
    """A target with options as older versions of TVM took them, as it takes them now."""
    pairs = (option.strip("- ").partition("=") for option in options.split())
    return json.dumps({"kind": kind, **{name: value for name, _, value in pairs}})


def need_device(target: Target) -> tvm.runtime.Device:
    """This machine's device for a target.

    Raises
    ------
    ScatterError
        If it has none.
    """
    device = {"llvm": tvm.cpu(0), "cuda": tvm.cuda(0)}.get(target.kind.name)
    if device is None or not device.exist:
        raise ScatterError(f"this machine has no device for target {target.kind.name}.")
    return device
