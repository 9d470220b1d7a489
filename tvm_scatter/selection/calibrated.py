"""Machines that the user has measured: what costs go by for a device of the same name."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

from tvm.target import Target

from tvm_scatter.errors import ScatterError, ScatterWarning
from tvm_scatter.problem.plain_data import parse, read_text

from .backend import Backend
from .machine import Machine
from .user_folder import user_folder

_FILE = "machines.json"
#: For each kind of target the measured machines, by what the device calls itself.
Machines = Mapping[str, Mapping[str, Machine]]


def machine_for(backend: Backend, target: Target) -> Machine:
    """The machine that the user has measured, else the one that is known of the target."""
    name = backend.device_name(target)
    measured = _read(_path()).get(backend.kind, {}).get(name) if name else None
    return measured or backend.machine(target)


def keep(kind: str, machine: Machine) -> Path:
    """Write a measured machine to the user's folder; returns the file.

    Raises
    ------
    ScatterError
        If it cannot be written.
    """
    path = _path()
    known = {each: dict(machines) for each, machines in _read(path).items()}
    known.setdefault(kind, {})[machine.name] = machine
    text = json.dumps(known, default=_plain, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{_FILE}.{os.getpid()}.new")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise ScatterError(f"calibrate: {str(path)!r} cannot be written: {error}.") from error
    _read.cache_clear()
    return path


def _path() -> Path:
    return user_folder() / _FILE


@cache
def _read(path: Path) -> Machines:
    """The measured machines; none, with a warning, if the file is damaged."""
    if not path.exists():
        return {}
    try:
        return {
            kind: {name: _machine(name, plain) for name, plain in machines.items()}
            for kind, machines in parse(read_text(path)).items()
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        warnings.warn(
            f"{str(path)!r} is ignored: {error}; tvm-scatter calibrate writes it anew.",
            ScatterWarning,
            stacklevel=2,
        )
        return {}


#: The fields that are numbers.
_NUMBERS = [field.name for field in fields(Machine) if field.name not in ("name", "measured")]


def _plain(machine: Machine) -> dict[str, Any]:
    return {name: value for name, value in asdict(machine).items() if name in _NUMBERS}


def _machine(name: str, plain: Any) -> Machine:
    if sorted(plain) != sorted(_NUMBERS):
        raise ValueError(f"{name!r} must have {', '.join(_NUMBERS)}")
    for field, value in plain.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            raise ValueError(f"{field} of {name!r} is {value!r}, no number of a machine")
    if not all(
        plain[field] for field in ("multiprocessors", "clock", "memory", "launch", "threads")
    ):
        raise ValueError(f"{name!r} has a rate of 0")
    return Machine(name=name, measured=True, **plain)
