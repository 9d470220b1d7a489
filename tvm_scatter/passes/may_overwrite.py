"""What passes have in common that ask which parameters of a function may be overwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm
from tvm import relax

from .analysis.overwritable import donated_parameters
from .functions import with_changes

#: What a pass makes of a function, given its module, its name, itself, and the parameters that may
#: be overwritten, or ``None`` where nothing is.
Overwriting = Callable[
    [tvm.IRModule, str, relax.Function, Sequence[Any] | None], relax.Function | None
]


def overwriting_pass(
    name: str, change: Overwriting, in_place: bool, donate: Iterable[str]
) -> tvm.transform.Pass:
    """A pass that changes each function.

    Parameters
    ----------
    in_place : bool
        Whether ReuseBuffers runs afterwards. Otherwise nothing is overwritten.
    donate : iterable of str
        Names of parameters that the caller gives away.
    """
    names = tuple(donate)

    def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        def changed(of: tvm.ir.GlobalVar, function: relax.Function) -> relax.Function | None:
            kept = donated_parameters(mod, of, names) if in_place else None
            return change(mod, of.name_hint, function, kept)

        return with_changes(mod, changed)

    return tvm.transform.module_pass(run, opt_level=0, name=name)
