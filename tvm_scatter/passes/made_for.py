"""Refuses functions that were made for another kind of target than they are compiled for."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.target import Target

from tvm_scatter.emit.parameters import MADE_FOR
from tvm_scatter.errors import ScatterError


def check_made_for(mod: tvm.IRModule) -> None:
    """Raise if TVM has legalized the module for another kind of target than the current one.

    Other targets may not compile such code, or run it on the host with a device's memory.

    Raises
    ------
    ScatterError
        If a function of this package was made for another kind of target.
    """
    target = Target.current(allow_none=True)
    # In a module of several devices, each function is for the one of its tensors.
    if target is None or "vdevice" in mod.global_infos:
        return
    for name, function in mod.functions.items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        made_for = (function.attrs or {}).get(MADE_FOR)
        if made_for is not None and str(made_for) != target.kind.name:
            raise ScatterError(
                f"{name.name_hint}: this function was legalized for {made_for} and cannot be "
                f"compiled for {target.kind.name}; name the target when legalizing (without one, "
                "llvm is taken): with target: mod = relax.transform.LegalizeOps()(mod)."
            )
