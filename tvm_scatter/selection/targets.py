"""The targets of this machine, and targets from the text that users type."""

from __future__ import annotations

import json
import re
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.errors import ScatterError

from .backend import backend_for, backend_of, backends


def gpu_target() -> Target | None:
    """The target for this machine's first GPU of a kind with implementations, or ``None``."""
    on_gpu = [each.of_this_machine for each in backends() if each.is_gpu and each.of_this_machine]
    return next(filter(None, (find() for find in on_gpu)), None)


def host_target() -> Target:
    """The target for this machine's CPU, with all of its instruction set extensions."""
    cpu = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return Target({"kind": "llvm", "mcpu": str(cpu())}) if cpu is not None else Target("llvm")


def on_this_machine(target: Target) -> Target:
    """The target; for a CPU that it does not name, this machine's with all of its extensions."""
    is_unnamed = target.kind.name == "llvm" and not target.attrs.get("mcpu")
    return host_target() if is_unnamed else target


def default_target() -> Target:
    """The target for this machine's GPU if it has one, else for its CPU."""
    return gpu_target() or Target("llvm")


def parse_target(text: str | None) -> Target:
    """A target from a command line.

    Parameters
    ----------
    text : str, optional
        ``cuda`` (this machine's GPU), an architecture such as ``sm_90``, or anything TVM takes: a
        kind, a tag such as ``nvidia/nvidia-h100``, or JSON. By default, :func:`default_target`.

    Raises
    ------
    ScatterError
        If there is no such target.
    """
    if text is None:
        return default_target()
    backend = backend_for(text)
    if backend.of_this_machine is None:
        return to_target(text)
    target = backend.of_this_machine()
    if target is None:
        raise ScatterError(
            f"target {text!r}: there is no device here to take the architecture from; name one, "
            f"such as {backend.example}."
        )
    return target


def to_target(target: Any) -> Target:
    """A target from a target, the name of an architecture, or anything that TVM takes.

    Raises
    ------
    ScatterError
        If there is no such target.
    """
    if isinstance(target, Target):
        return target
    named = _of_architecture(target) if isinstance(target, str) else None
    if named is not None:
        return named
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


def _of_architecture(name: str) -> Target | None:
    """The target for the name of an architecture, or ``None`` if no kind knows it."""
    parsers = [each.of_architecture for each in backends() if each.of_architecture]
    return next(filter(None, (parse(name) for parse in parsers)), None)


def _as_json(kind: str, options: str) -> str:
    """The JSON of a target in the form ``kind -option=value`` of older versions of TVM."""
    pairs = (option.strip("- ").partition("=") for option in options.split())
    return json.dumps({"kind": kind, **{name: value for name, _, value in pairs}})


def need_device(target: Target) -> tvm.runtime.Device:
    """This machine's device for a target.

    Raises
    ------
    ScatterError
        If it has none.
    """
    name = backend_of(target).device
    device = tvm.device(name, 0) if name else None
    if device is None or not device.exist:
        raise ScatterError(f"this machine has no device for target {target.kind.name}.")
    return device
