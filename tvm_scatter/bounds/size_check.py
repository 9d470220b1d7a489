"""Checks at run time of sizes that are unknown at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.error_text import raise_error
from tvm_scatter.emit.kept_memory import sizes_of
from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, opaque_block
from tvm_scatter.ops.shapes import same_size
from tvm_scatter.problem.sizes import as_expression


@dataclass(frozen=True)
class AtMost:
    """A rule: one tensor must not be larger than another in a dimension.

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


class Place(NamedTuple):
    """A dimension of a named tensor."""

    tensor: str
    dimension: int


@dataclass(frozen=True)
class Equal:
    """A rule: two dimensions must have the same size.

    Attributes
    ----------
    left, right : Place
        The dimensions.
    """

    left: Place
    right: Place


@dataclass(frozen=True)
class SizeCheck:
    """The rules for the sizes of the tensors of one call.

    Attributes
    ----------
    operator : str
        The name of the operator in errors.
    rules : tuple of AtMost or Equal
        The rules.
    tensors : dict of str to Any
        The tensors that the rules name. Until operands are emitted, placeholders for them.
    returned : tuple of str
        Names of the tensors that the check returns. Readers use these results, so that they run
        after the check.
    """

    operator: str
    rules: tuple[AtMost | Equal, ...]
    tensors: dict[str, Any]
    returned: tuple[str, ...]


def check_sizes(bb: relax.BlockBuilder, check: SizeCheck) -> list[relax.Expr]:
    """Emit a check of sizes: one comparison on the host for each rule.

    Returns
    -------
    results : list of relax.Expr
        The tensors named by ``check.returned``, not copied.
    """
    tensors, operator = check.tensors, check.operator
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.is_host_func": True})
            handles = {name: T.arg(name.replace(" ", "_"), T.handle()) for name in tensors}
            with opaque_block():
                sizes = {
                    name: sizes_of(handle, tensors[name].ty.ndim)
                    for name, handle in handles.items()
                }
                for rule in check.rules:
                    if isinstance(rule, AtMost):
                        _check_at_most(operator, rule, sizes)
                    else:
                        _check_equal(operator, rule, sizes)
    func = bb.add_func(builder.get(), "check_sizes")
    arguments = list(tensors.values())
    places = [list(tensors).index(name) for name in check.returned]
    types = [arguments[place].ty for place in places]
    if len(types) == 1:
        return [bb.emit(relax.op.call_tir_inplace(func, arguments, places, types[0]))]
    results = bb.emit(relax.op.call_tir_inplace(func, arguments, places, types))
    return [bb.emit(relax.TupleGetItem(results, at)) for at in range(len(types))]


def check_shape(
    bb: relax.BlockBuilder,
    operator: str,
    what: str,
    tensor: relax.Expr,
    found: Sequence[Any],
    wanted: Sequence[Any],
) -> relax.Expr:
    """Emit a check that a shape is the one that it must be.

    Parameters
    ----------
    what : str
        The name, in errors, of the operand with that shape.
    tensor : relax.Expr
        The tensor to return. Readers use the result, so that they run after the check.
    found, wanted : sequence of int or expression
        The shapes.

    Returns
    -------
    result : relax.Expr
        The tensor itself.
    """
    pairs = list(zip(found, wanted, strict=True))
    unsure = [at for at, (left, right) in enumerate(pairs) if not same_size(left, right)]
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.is_host_func": True})
            T.arg("tensor", T.handle())
            sizes = [
                [T.arg(name, tirx.Var(name, "int64")) for name in (f"size{at}", f"wanted{at}")]
                for at in unsure
            ]
            with opaque_block():
                for at, (size, right) in zip(unsure, sizes, strict=True):
                    _check_size(operator, what, at, size, right)
    func = bb.add_func(builder.get(), "check_shape")
    numbers = [as_expression(size) for at in unsure for size in pairs[at]]
    call = relax.op.call_tir_inplace(func, [tensor, *numbers], 0, tensor.ty)
    return bb.emit(call)


def _check_size(operator: str, what: str, dimension: int, size: Any, wanted: Any) -> None:
    with T.If(size != wanted):
        with T.Then():
            raise_error(
                "ValueError",
                [
                    f"{operator}: {what} of size ",
                    size,
                    f" in dimension {dimension} must have size ",
                    wanted,
                    " there.",
                ],
            )


def _check_at_most(operator: str, rule: AtMost, sizes: dict[str, Any]) -> None:
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


def _check_equal(operator: str, rule: Equal, sizes: dict[str, Any]) -> None:
    left, right = (_size(sizes[name], dimension) for name, dimension in (rule.left, rule.right))
    with T.If(left != right):
        with T.Then():
            raise_error(
                "ValueError",
                [
                    f"{operator}: {rule.left.tensor} of size ",
                    left,
                    f" in dimension {rule.left.dimension} must have the size of "
                    f"{rule.right.tensor} in dimension {rule.right.dimension}, which is ",
                    right,
                    ".",
                ],
            )


def _size(sizes: Any, dimension: int) -> Any:
    """A size of a tensor. A 0-d tensor counts as one with a single element."""
    return sizes[dimension] if int(sizes.shape[0]) else tirx.IntImm("int64", 1)
