"""Checks arguments of operators, because TVM's C++ crashes on bad ones or gives unclear errors."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_scatter.errors import ScatterError


def need_module(operator: str, mod: Any) -> None:
    """Raise unless ``mod`` is a module.

    Raises
    ------
    ScatterError
        If it is no module.
    """
    if not isinstance(mod, tvm.IRModule):
        raise ScatterError(
            f"{operator}: it takes an IRModule, not {type(mod).__name__}; an importer makes one, "
            "such as tvm.relax.frontend.torch.from_exported_program."
        )


def need_tensor(operator: str, name: str, value: Any) -> None:
    """Raise if an operand is certainly not a tensor. Expressions that are not emitted have no type.

    Raises
    ------
    ScatterError
        If it is certainly not a tensor.
    """
    if not isinstance(value, relax.Expr):
        raise ScatterError(
            f"{operator}: {name} is {_short(value)}, which is no tensor of Relax; give a "
            "relax.Var, a relax.const or what BlockBuilder.emit returned."
        )
    unknown = type(value.ty) is tvm.ir.Type and not isinstance(value, tvm.ir.Op | tvm.ir.GlobalVar)
    if not unknown and not isinstance(value.ty, relax.TensorType):
        raise ScatterError(f"{operator}: {name} is {_short(value)}, which is no tensor.")


def flag(operator: str, name: str, value: Any) -> bool:
    """Something that is true or false, also if NumPy says so.

    Raises
    ------
    ScatterError
        If it is neither.
    """
    if not isinstance(value, bool | np.bool_):
        raise ScatterError(f"{operator}: {name}={value!r} must be True or False.")
    return bool(value)


def need_tensors(operator: str, name: str, values: Any) -> list[Any]:
    """The operands of a list, checked.

    Raises
    ------
    ScatterError
        If it is no list, or an entry is certainly no tensor.
    """
    tensors = _listed(operator, name, values, "tensors")
    for at, tensor in enumerate(tensors):
        need_tensor(operator, f"{name}[{at}]", tensor)
    return tensors


def need_indices(operator: str, indices: Any) -> list[Any]:
    """The index tensors of a list, checked; an entry may not be ``None``.

    Raises
    ------
    ScatterError
        If it is no list, or an entry is certainly no tensor.
    """
    listed = _listed(operator, "indices", indices, "tensors")
    for at, index in enumerate(listed):
        if index is None:
            raise ScatterError(
                f"{operator}: indices[{at}] is None; leave it out, and name the axes of the others "
                "in axes."
            )
    return need_tensors(operator, "indices", listed)


def components_of(operator: str, indices: Any) -> int | None:
    """The size of the last axis of indices, along which tuples lie; ``None`` if they have no type.

    Raises
    ------
    ScatterError
        If the size is symbolic, or there is no such axis.
    """
    if not isinstance(indices.ty, relax.TensorType):
        return None
    shape = getattr(indices.ty.shape, "values", None)
    if not shape or not isinstance(shape[-1], tirx.IntImm):
        raise ScatterError(
            f"{operator}: the last axis of indices of type {indices.ty} holds a tuple, and its "
            "size must be a known number."
        )
    return int(shape[-1])


def rank_of(operator: str, data: Any) -> int:
    """The rank of the data.

    Raises
    ------
    ScatterError
        If it is not known, or the data is no tensor.
    """
    need_tensor(operator, "data", data)
    if not isinstance(data.ty, relax.TensorType):
        raise ScatterError(
            f"{operator}: {_short(data)} is not known to be a tensor; emit it with "
            "BlockBuilder.emit first."
        )
    if data.ty.ndim < 0:
        raise ScatterError(f"{operator}: the rank of data must be known.")
    return int(data.ty.ndim)


def checked_axis(operator: str, axis: Any, rank: int, name: str = "axis") -> int:
    """An axis, counted from the front.

    Raises
    ------
    ScatterError
        If it is no axis of data of that rank.
    """
    number = integer(operator, name, axis)
    if not -rank <= number < rank:
        allowed = f"in [{-rank}, {rank - 1}]" if rank else "left out"
        raise ScatterError(
            f"{operator}: {name} {number} is out of range for data of rank {rank}; it must be "
            f"{allowed}."
        )
    return number % rank


def checked_axes(operator: str, axes: Any, rank: int, count: int) -> list[int]:
    """The axes that ``count`` index tensors address, counted from the front.

    Raises
    ------
    ScatterError
        If they are not as many distinct axes of data of that rank, ascending.
    """
    listed = _listed(operator, "axes", axes, "integers")
    if not count or len(listed) != count:
        raise ScatterError(
            f"{operator}: {count} index tensors for {len(listed)} axes; give one for each."
        )
    found = [checked_axis(operator, axis, rank, f"axes[{at}]") for at, axis in enumerate(listed)]
    if sorted(set(found)) != found:
        raise ScatterError(f"{operator}: axes {found} must be distinct, ascending.")
    return found


def checked_ordering(
    operator: str, ordering: Any, indices: Sequence[Any], axes: Sequence[int]
) -> tuple[Any, ...]:
    """The permutation and the offsets of an ordering, or the offsets alone; empty if there is none.

    Raises
    ------
    ScatterError
        If it is no tuple of one or two tensors, or the call has another index than one along the
        first axis.
    """
    if ordering is None:
        return ()
    if len(indices) != 1 or list(axes) != [0]:
        raise ScatterError(
            f"{operator}: ordering is of one index along axis 0, but there are {len(indices)} "
            f"index tensors along axes {list(axes)}."
        )
    fields: Sequence[Any] = ()
    if isinstance(ordering, tuple | list | relax.Tuple):
        fields = list(ordering)
    elif isinstance(ordering, relax.Var) and isinstance(ordering.ty, relax.TupleType):
        fields = [relax.TupleGetItem(ordering, at) for at in range(len(ordering.ty.fields))]
    if len(fields) not in (1, 2):
        raise ScatterError(
            f"{operator}: ordering is {_short(ordering)}; it must be a pair of tensors, such as "
            "what BlockBuilder.emit returns for tvm_scatter.order, or a tuple of the offsets alone."
        )
    for name, field in zip(("permutation", "offsets")[-len(fields) :], fields, strict=True):
        need_tensor(operator, f"the {name} of ordering", field)
    return tuple(fields)


def integer(operator: str, name: str, value: Any) -> int:
    """An integer of Python, NumPy or TVM.

    Raises
    ------
    ScatterError
        If it is not an integer.
    """
    if isinstance(value, numbers.Integral | tirx.IntImm) and not isinstance(value, bool):
        return int(value)
    raise ScatterError(f"{operator}: {name} {_short(value)} must be an integer.")


def checked_ranges(operator: str, ranges: Any) -> list[list[int]]:
    """The ranges that are copied.

    Raises
    ------
    ScatterError
        If they are not of four integers each.
    """
    listed = _listed(operator, "ranges", ranges, "ranges")
    found = []
    for at, each in enumerate(listed):
        four = list(each) if isinstance(each, Iterable) else []
        if len(four) != 4:
            raise ScatterError(
                f"{operator}: ranges[{at}] is {_short(each)}; it must be (source, first position "
                "in it, first position in the data, length)."
            )
        found.append([integer(operator, f"ranges[{at}]", number) for number in four])
    return found


def _listed(operator: str, name: str, values: Any, of: str) -> list[Any]:
    single = isinstance(values, relax.Expr) and not isinstance(values, relax.Tuple)
    if single or isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ScatterError(
            f"{operator}: {name} must be a list of {of}, not {_short(values)}; put a single one "
            "into a list."
        )
    return list(values)


def _short(value: Any) -> str:
    """A value as a short text on one line."""
    text = " ".join((str if isinstance(value, relax.Expr) else repr)(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
