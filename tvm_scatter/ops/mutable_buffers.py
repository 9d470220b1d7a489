"""Buffers that a model writes to: how a function marks them, and how a caller gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError

from .arguments import need_module

#: Attributes of a function: names and initial values of the buffers, which are its last inputs.
_NAMES, _VALUES = "tvm_scatter.buffer_names", "tvm_scatter.buffer_values"


def buffers(mod: tvm.IRModule, device: Any = None, function: str = "main") -> dict[str, Any]:
    """The buffers that a model writes to, with the values that they have before the first call.

    A function imported from a model that writes to its buffers takes them behind its inputs and
    returns the new ones behind its outputs. Where ``in_place`` is on, they are the same tensors.

    Parameters
    ----------
    mod : tvm.IRModule
        A module that an importer made.
    device : tvm.runtime.Device, optional
        The device of the new tensors; by default the CPU.
    function : str
        The name of the function.

    Returns
    -------
    buffers : dict of str to tvm.runtime.Tensor
        New tensors by the names of the model's buffers, in the order of the arguments.

    Raises
    ------
    ScatterError
        If it is no module, or has no such function.
    """
    need_module("buffers", mod)
    known = [name.name_hint for name in mod.functions]
    if function not in known:
        raise ScatterError(
            f"buffers: there is no function {function!r}; there is: {', '.join(known) or 'none'}."
        )
    attrs = mod[function].attrs or {}
    on = tvm.cpu() if device is None else device
    return {
        str(name): tvm.runtime.tensor(value.numpy(), on)
        for name, value in zip(attrs.get(_NAMES, ()), attrs.get(_VALUES, ()), strict=True)
    }


def with_buffers(function: relax.Function, values: Mapping[str, Any]) -> relax.Function:
    """The function with attributes for the names and initial values of its buffers."""
    function = function.with_attr(_NAMES, list(values))
    return function.with_attr(_VALUES, list(values.values()))


def state_parameters(function: relax.Function) -> list[Any]:
    """The parameters of a function that are such buffers."""
    attrs = function.attrs or {}
    # Weights that are arguments come after the buffers.
    end = int(attrs.get("num_input", len(function.params)))
    return list(function.params)[end - len(attrs.get(_NAMES, ())) : end]
