"""Buffers that a model changes: how a function says which they are, and how a caller gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError

from .arguments import need_module

#: Attributes of a function: names and first values of the buffers that its last inputs hold.
_NAMES, _VALUES = "tvm_scatter.buffer_names", "tvm_scatter.buffer_values"


def buffers(mod: tvm.IRModule, device: Any = None, function: str = "main") -> dict[str, Any]:
    """The buffers that a model changes, with the values that they have before the first call.

    A function imported from a model that writes to its buffers takes them behind its inputs and
    returns the new ones behind its outputs. Where ``in_place`` is on, they are the same tensors.

    Parameters
    ----------
    mod : tvm.IRModule
        A module that an importer made.
    device : tvm.runtime.Device, optional
        Where the tensors will be; by default on the CPU.
    function : str
        Which of its functions.

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
    """The function with a note of what its last inputs hold at first."""
    function = function.with_attr(_NAMES, list(values))
    return function.with_attr(_VALUES, list(values.values()))


def state_parameters(function: relax.Function) -> list[Any]:
    """The parameters that hold such buffers."""
    attrs = function.attrs or {}
    # Weights that are arguments stand behind them.
    end = int(attrs.get("num_input", len(function.params)))
    return list(function.params)[end - len(attrs.get(_NAMES, ())) : end]
