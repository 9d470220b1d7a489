"""ScatterCall: the description of a call of any scatter operator, TVM's own or this package's.

A pass reads a call with :meth:`ScatterCall.from_call`, changes fields with
:meth:`ScatterCall.replace` and makes the new call with :meth:`ScatterCall.to_call`. Attributes that
it does not change are kept, so that no pass can lose one. Only this module knows the names and the
conventions of TVM's operators.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import REDUCTIONS, Reduction, canonical_reduction

from .called import operator_of
from .epilogue import Epilogue
from .fused_updates import FusedUpdates
from .names import COPY_RANGES, INDEX_PUT, NAMES, SCATTER_ELEMENTS, SCATTER_ND, STOCK_OPERATORS
from .own_operators import call_of

#: The attribute that holds the function of fused updates, as text, because TVMScript cannot print a
#: function there. Their leaves are then the operand.
_PRODUCER = "producer"
#: The attribute that only a call with an ordering has, its operand behind the updates. It says
#: whether nothing else says where updates go.
_ORDER_ALONE = "order_alone"
#: The attribute of the function of an epilogue, whose leaves are the next operand.
_EPILOGUE = "epilogue"


class CopiedRange(NamedTuple):
    """A range of a source tensor and its place in the data, along one axis.

    Attributes
    ----------
    source : int
        The number of the source tensor.
    begin, place, length : int
        Its first position in the source, its first position in the data, and its length.
    """

    source: int
    begin: int
    place: int
    length: int


@dataclass(frozen=True)
class ScatterCall:
    """A call of a scatter operator.

    Attributes
    ----------
    form : str
        The operator of this package, one of :data:`~tvm_scatter.ops.names.NAMES`.
    data : relax.Expr
        The tensor that is scattered into.
    indices : tuple of relax.Expr
        The index tensors; ``index_put`` has one for each of its axes. None for ``copy_ranges``.
    updates : relax.Expr or FusedUpdates or None
        The tensor that is scattered, or how the scatter computes it; ``None`` for ``copy_ranges``.
    sources : tuple of relax.Expr
        The tensors that ``copy_ranges`` copies from.
    axes : tuple of int
        The indexed axes. Empty for ``scatter_nd``, which always indexes the leading axes.
    ranges : tuple of CopiedRange
        The ranges that ``copy_ranges`` copies.
    reduction : str
        How an update is combined with the value at its destination.
    include_self, wrap_negative, unique, ordered, in_place, leaves_out, operator
        As in :func:`~tvm_scatter.ops.operators.scatter_elements`.
    fill : str
        The number that every element of the data is. The data are then not read, and the tensor
        need not hold them. Empty if it does.
    in_range : bool
        Whether all indices are proved to be in range, so that none need be checked.
    known : str
        What is known of the indices, and why, in words.
    checked : bool
        Whether :func:`~tvm_scatter.ops.expectations.expect_indices` has returned the first index,
        so that a bad one is reported without a check of its own.
    temporary : bool
        Whether the data that an in-place scatter overwrites is an intermediate value. No caller
        sees it if the call fails.
    ordering : tuple of relax.Expr
        The permutation and the offsets of :func:`tvm_scatter.order`, for the index and the extent
        of the call, or the offsets alone if updates stand in the order of their destinations
        already; empty if there are none.
    order_alone : bool
        Whether nobody but the ordering knows where updates go: the index is a tensor that nothing
        has written, and nothing reads it.
    epilogue : Epilogue or None
        What is computed of the result where it is written; ``None`` if nothing is.
    earlier : tuple of relax.Expr
        Tensors that must be computed before the call, because they read data that it overwrites.
    """

    form: str
    data: Any
    indices: tuple[Any, ...] = ()
    updates: Any = None
    sources: tuple[Any, ...] = ()
    axes: tuple[int, ...] = ()
    ranges: tuple[CopiedRange, ...] = ()
    reduction: str = "update"
    include_self: bool = True
    wrap_negative: bool = False
    unique: bool = False
    in_range: bool = False
    known: str = ""
    checked: bool = False
    ordered: bool = False
    in_place: bool = False
    temporary: bool = False
    leaves_out: bool = False
    fill: str = ""
    operator: str = ""
    ordering: tuple[Any, ...] = ()
    order_alone: bool = False
    epilogue: Epilogue | None = None
    earlier: tuple[Any, ...] = ()

    @staticmethod
    def from_call(call: relax.Call) -> ScatterCall:
        """The description of a call.

        Raises
        ------
        ScatterError
            If the operator does not scatter, or its reduction is unknown.
        """
        name = call.op.name
        if name in STOCK_OPERATORS:
            return _from_stock(call)
        if name not in NAMES:
            raise ScatterError(f"{name} is no scatter operator.")
        attrs = {str(key): value for key, value in call.attrs.items()}
        requests = {key: type(default)(attrs[key]) for key, default in REQUESTS.items()}
        if name == COPY_RANGES:
            data, sources, *earlier = call.args
            operands: dict[str, Any] = {
                "sources": tuple(sources.fields),
                "ranges": _ranges(attrs["ranges"]),
            }
        else:
            data, indices, updates, *earlier = call.args
            if _PRODUCER in attrs:
                updates = FusedUpdates.from_json(attrs[_PRODUCER], tuple(updates.fields))
            operands = {"indices": _fields(indices), "updates": updates}
            if _ORDER_ALONE in attrs:
                operands["ordering"] = _fields(earlier.pop(0))
                operands["order_alone"] = bool(attrs[_ORDER_ALONE])
            if _EPILOGUE in attrs:
                operands["epilogue"] = Epilogue.from_json(attrs[_EPILOGUE], earlier.pop(0).fields)
        axes = attrs["axes"] if "axes" in attrs else [attrs["axis"]] if "axis" in attrs else []
        return ScatterCall(
            form=name,
            data=data,
            axes=tuple(int(axis) for axis in axes),
            earlier=tuple(earlier[0].fields) if earlier else (),
            **operands,
            **requests,
        )

    def replace(self, **changes: Any) -> ScatterCall:
        """The same call with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_call(self) -> relax.Call:
        """A Relax call of the operator ``form``."""
        attrs: dict[str, Any] = {
            name: type(default)(getattr(self, name)) for name, default in REQUESTS.items()
        }
        operands = [self.data]
        if self.form == COPY_RANGES:
            operands.append(relax.Tuple(list(self.sources)))
            attrs["ranges"] = [number for each in self.ranges for number in each]
        else:
            several = self.form == INDEX_PUT
            operands += [relax.Tuple(list(self.indices)) if several else self.indices[0]]
            if isinstance(self.updates, FusedUpdates):
                operands.append(relax.Tuple(list(self.updates.leaves)))
                attrs[_PRODUCER] = self.updates.to_json()
            else:
                operands.append(self.updates)
        if self.form == INDEX_PUT:
            attrs["axes"] = list(self.axes)
        elif self.form != SCATTER_ND:
            attrs["axis"] = self.axes[0]
        if self.ordering:
            operands.append(relax.Tuple(list(self.ordering)))
            attrs[_ORDER_ALONE] = self.order_alone
        if self.epilogue is not None:
            operands.append(relax.Tuple(list(self.epilogue.leaves)))
            attrs[_EPILOGUE] = self.epilogue.to_json()
        if self.earlier:
            operands.append(relax.Tuple(list(self.earlier)))
        return call_of(self.form, operands, attrs)

    @property
    def ty(self) -> relax.TensorType:
        """The type of the result."""
        return self.data.ty if self.epilogue is None else self.epilogue.type_for(self.data.ty)

    @property
    def reduces(self) -> Reduction:
        """The record of its reduction."""
        return REDUCTIONS[self.reduction]

    @property
    def tensors(self) -> tuple[Any, ...]:
        """Its operands: data, indices and updates."""
        return (self.data, *self.indices, self.updates)

    @property
    def stored_updates(self) -> tuple[Any, ...]:
        """The tensors of its updates, and of their logits if it has some.

        None if it computes them.
        """
        if not isinstance(self.updates, FusedUpdates):
            return () if self.updates is None else (self.updates,)
        return self.updates.leaves if self.updates.are_stored else ()

    @property
    def is_alone(self) -> bool:
        """Whether it overwrites nothing, and no pass has made anything a part of it."""
        joined = self.ordering or self.epilogue is not None or self.earlier or self.fill
        return not (self.in_place or joined or isinstance(self.updates, FusedUpdates))

    def asks_as(self, other: ScatterCall, *but_for: str) -> bool:
        """Whether two calls have equal attributes, so that they can be merged into one.

        The names in errors may differ, and so may facts about the indices: the merged call gets its
        own. Attributes in ``but_for`` may differ as well.
        """
        own = {*REQUESTS} - {"operator", "wrap_negative", *FACTS, *but_for}
        return all(getattr(self, name) == getattr(other, name) for name in own)


#: The attributes of a scatter call that are facts about its indices.
FACTS = ("unique", "in_range", "known")
#: The attributes of every scatter call, with their defaults.
REQUESTS: dict[str, Any] = {
    field.name: field.default
    for field in dataclasses.fields(ScatterCall)
    if isinstance(field.default, bool | str) and field.name != _ORDER_ALONE
}


def is_scatter(value: Any) -> bool:
    """Whether an expression is a call of a scatter operator, TVM's own or this package's."""
    name = operator_of(value)
    return name in STOCK_OPERATORS or name in NAMES


def has_epilogue(call: relax.Call) -> bool:
    """Whether a call of a scatter operator computes what follows it."""
    return isinstance(call.attrs, tvm.ir.DictAttrs) and _EPILOGUE in call.attrs


def operator_name(call: relax.Call) -> str:
    """The name of a call's operator in errors and reports."""
    if isinstance(call.attrs, tvm.ir.DictAttrs) and "operator" in call.attrs:
        return str(call.attrs["operator"])
    return call.op.name.removeprefix("relax.").removeprefix("tvm_scatter.")


def _from_stock(call: relax.Call) -> ScatterCall:
    """The description of a call of TVM's own operators: negative indices count from the end."""
    name, operator, attrs = call.op.name, operator_name(call), call.attrs
    data, indices, updates = call.args
    if name == "relax.index_put":
        reduction = "add" if attrs.accumulate else "update"
    else:
        reduction = str(attrs.reduction)
    fields = _fields(indices)
    axes: tuple[int, ...] = ()
    if STOCK_OPERATORS[name] == INDEX_PUT:
        axes = tuple(range(len(fields)))
    elif STOCK_OPERATORS[name] == SCATTER_ELEMENTS:
        axes = (_from_front(int(attrs.axis), data),)
    return ScatterCall(
        form=STOCK_OPERATORS[name],
        data=data,
        indices=fields,
        updates=updates,
        axes=axes,
        reduction=canonical_reduction(reduction, operator),
        wrap_negative=True,
        operator=operator,
    )


def _from_front(axis: int, data: Any) -> int:
    """An axis, counted from the front. An invalid axis is left as it is and refused later."""
    # A 0-d tensor counts as one with a single axis of size 1.
    rank = max(data.ty.ndim, 1)
    return axis % rank if -rank <= axis < rank else axis


def _fields(indices: Any) -> tuple[Any, ...]:
    """The index tensors, also if the tuple is a variable."""
    if isinstance(indices, relax.Tuple):
        return tuple(indices.fields)
    if not isinstance(indices.ty, relax.TupleType):
        return (indices,)
    return tuple(relax.TupleGetItem(indices, at) for at in range(len(indices.ty.fields)))


def _ranges(numbers: Any) -> tuple[CopiedRange, ...]:
    flat = [int(number) for number in numbers]
    return tuple(CopiedRange(*flat[at : at + 4]) for at in range(0, len(flat), 4))
