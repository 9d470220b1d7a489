"""The models of the demonstration, exported and imported once in a process: that takes the time."""

from __future__ import annotations

from functools import cache
from typing import Any

import tvm

from tvm_scatter.demo import demo_models
from tvm_scatter.demo.compare import export, import_program, make

MODELS = {model.name: model for model in demo_models()}


@cache
def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """The module in its small size, and its inputs."""
    return make(MODELS[name], "small")


@cache
def exported(name: str) -> Any:
    """What PyTorch exports."""
    return export(*made(name))


@cache
def imported(name: str) -> tvm.IRModule:
    """What TVM imports, with no options."""
    return import_program(exported(name))
