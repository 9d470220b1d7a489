"""What is said at run time of sizes that do not fit and were not known before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .emission import PRIM_FUNC_ATTRS, opaque_block
from .host_text import raise_error
from .kept_memory import sizes_of


@dataclass(frozen=True)
class AtMost:
    """One tensor may be no larger than another in a dimension.

    Attributes
    ----------
    small, large : str
        Their names.
    dimension : int
        The dimension.
    """

    small: str
    large: str
    dimension: int


def check_sizes(
    bb: relax.BlockBuilder,
    operator: str,
    rules: Sequence[AtMost],
    tensors: dict[str, relax.Expr],
    returned: str,
) -> relax.Expr:
    """Emit a check of sizes that costs the host a comparison for each rule.

    Parameters
    ----------
    rules : sequence of AtMost
        What must hold.
    tensors : dict of str to relax.Expr
        The tensors that rules name.
    returned : str
        One of these, which nothing reads before the check if it reads the result.

    Returns
    -------
    tensor : relax.Expr
        The tensor ``returned``, itself and no copy.
    """
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.is_host_func": True})
            handles = {name: T.arg(name, T.handle()) for name in tensors}
            with opaque_block():
                sizes = {
                    name: sizes_of(handle, tensors[name].ty.ndim)
                    for name, handle in handles.items()
                }
                for rule in rules:
                    _check_rule(operator, rule, sizes)
    func = bb.add_func(builder.get(), "check_sizes")
    place = list(tensors).index(returned)
    arguments = list(tensors.values())
    return bb.emit(relax.op.call_tir_inplace(func, arguments, place, arguments[place].ty))


def _check_rule(operator: str, rule: AtMost, sizes: dict[str, Any]) -> None:
    small, large = (_size(sizes[name], rule.dimension) for name in (rule.small, rule.large))
    with T.If(small > large):
        with T.Then():
            raise_error(
                "ValueError",
                [
                    f"{operator}: {rule.small} of size ",
                    small,
                    f" in dimension {rule.dimension} is larger than {rule.large}, of size ",
                    large,
                    " there.",
                ],
            )


def _size(sizes: Any, dimension: int) -> Any:
    """A size of a tensor; a 0-d one stands for one of a single element."""
    return sizes[dimension] if int(sizes.shape[0]) else tirx.IntImm("int64", 1)
