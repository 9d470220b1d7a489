"""The operators that read by index, TVM's and this package's, and their rules for indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from tvm_scatter.bounds.size_check import AtMost, SizeCheck
from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.read_forms import ByAxes, ByElements, ByTuples, Form
from tvm_scatter.ops.read_ops import GATHER_ELEMENTS, GATHER_ND, INDEX, NAMES
from tvm_scatter.ops.shapes import SymbolTable, broadcast

from .operands import Checked, Field, Given, Operand

STOCK_OPERATORS = (
    "relax.take",
    "relax.gather_elements",
    "relax.gather_nd",
    "relax.index_tensor",
)
#: Modes of ``relax.take`` that define the result for a bad index. The other modes are ``fast``,
#: TVM's default, and the names of operators that the importers have written as a ``take``.
_MODES = ("clip", "wrap", "nan")
#: Operators of front ends, given as mode, for which a negative index is out of bounds.
_WITHOUT_NEGATIVE = ("index_select", "embedding")
#: Operators whose importer flattens the indices, so that errors give flat positions.
_FLATTENED = ("embedding",)


@dataclass(frozen=True)
class Read:
    """A read by index, ready to be checked and emitted.

    Attributes
    ----------
    form : Form
        Which elements the indices address.
    check : IndexCheck
        The check of the indices. Its tensors, the operands of the read, are not emitted yet.
    proved : bool
        Whether all indices are proved to be within bounds.
    checked : bool
        Whether bad ones are reported without a check of its own.
    """

    form: Form
    check: IndexCheck
    proved: bool = False
    checked: bool = False

    def is_in_range(self) -> bool:
        """Whether all indices are proved to be within bounds, or constants within bounds."""
        return self.proved or all(
            values is not None and bool(((values >= lowest) & (values < extent)).all())
            for values, lowest, extent in self._known()
        )

    def is_empty(self) -> bool:
        """Whether the result certainly has no element."""
        check = self.check
        return 0 in self.form.shape(check.data_shape, check.shapes)

    def has_negative(self) -> bool:
        """Whether a negative index may occur that counts from the end."""
        return self.check.wrap_negative and any(
            bool((values < 0).any()) if values is not None else not dtype.startswith("uint")
            for (values, *_), dtype in zip(self._known(), self._dtypes(), strict=True)
        )

    def _dtypes(self) -> Sequence[str]:
        return self.check.index_dtypes * (len(self.check.extents) if self.check.interleaved else 1)

    def _known(self) -> list[tuple[Any, Any, Any]]:
        """For each component the indices, the least valid index and the extent.

        All three are ``None`` if the indices or the extent are not known.
        """
        known: list[tuple[Any, Any, Any]] = []
        check = self.check
        for component, extent in enumerate(check.extents):
            index = check.indices[0 if check.interleaved else component]
            if not (isinstance(index, Given) and index.is_constant and isinstance(extent, int)):
                known.append((None, None, None))
                continue
            values = np.asarray(index.expression.value.numpy())
            values = values[..., component] if check.interleaved else values
            known.append((values, -extent if check.wrap_negative else 0, extent))
        return known


def read_of(call: relax.Call) -> Read | None:
    """Describe a call that reads by index; ``None`` if its mode defines bad indices itself.

    Raises
    ------
    ScatterError
        If index tensors do not certainly broadcast against each other, or if an index is larger
        than the data in a dimension where it must not be.
    """
    name, attrs = call.op.name, call.attrs
    data, index = map(Given, call.args)
    if name == "relax.take":
        mode = str(attrs.mode)
        if mode in _MODES:
            return None
        axis = 0 if attrs.axis is None else int(attrs.axis) % data.ty.ndim
        operator = "take" if mode == "fast" else mode
        wrap = mode not in _WITHOUT_NEGATIVE
        return _read(ByAxes((axis,)), operator, data, [index], wrap, mode in _FLATTENED)
    if name == "relax.gather_elements":
        form: Form = ByElements(data.ty.ndim, int(attrs.axis) % data.ty.ndim)
        return _read(form, "gather_elements", data, [index], True)
    if name == "relax.gather_nd":
        form = ByTuples(int(attrs.batch_dims), int(index.ty.shape[-1]))
        return _read(form, "gather_nd", data, [index], True)
    if name == "relax.index_tensor":
        indices = _fields(index.expression)
        return _read(ByAxes(tuple(range(len(indices)))), "index_tensor", data, indices, True)
    operator, wrap = str(attrs["operator"]), bool(attrs["wrap_negative"])
    indices = [index]
    if name == INDEX:
        form = ByAxes(tuple(int(axis) for axis in attrs["axes"]))
        indices = _fields(index.expression)
    elif name == GATHER_ELEMENTS:
        form = ByElements(data.ty.ndim, int(attrs["axis"]))
    else:
        assert name == GATHER_ND
        form = ByTuples(int(attrs["batch_dims"]), int(index.ty.shape[-1]))
    found = _read(form, operator, data, indices, wrap)
    return replace(found, proved=bool(attrs["in_range"]), checked=bool(attrs["checked"]))


def is_read(value: Any) -> bool:
    """Whether an expression is a call of an operator that reads by index."""
    return operator_of(value) in (*STOCK_OPERATORS, *NAMES)


def _fields(indices: Any) -> list[Operand]:
    if isinstance(indices, relax.Tuple):
        return list(map(Given, indices.fields))
    return [Field(indices, at) for at in range(len(indices.ty.fields))]


def _read(
    form: Form,
    operator: str,
    data: Operand,
    indices: Sequence[Operand],
    wrap: bool,
    flattened: bool = False,
) -> Read:
    symbols = SymbolTable()
    shape = symbols.shape(operator, data)
    shapes = tuple(symbols.shape(operator, index) for index in indices)
    if isinstance(form, ByAxes):
        broadcast(operator, shapes)
    unknown = [axis for axis in form.shared if not symbols.fits(shapes[0][axis], shape[axis])]
    for axis in unknown:
        if isinstance(shapes[0][axis], int) and isinstance(shape[axis], int):
            raise ScatterError(
                f"{operator}: index of shape {shapes[0]} is larger than data of shape {shape} in "
                f"dimension {axis}."
            )
    if unknown:
        rules = tuple(AtMost("index", "data", axis) for axis in unknown)
        tensors = {"index": indices[0], "data": data}
        data = Checked(SizeCheck(operator, rules, tensors, ("data",)), "data")
    check = IndexCheck(
        operator=operator,
        data=data,
        data_shape=shape,
        data_dtype=str(data.ty.dtype),
        indices=tuple(indices),
        shapes=shapes,
        extents=tuple(shape[axis] for axis in form.addressed),
        interleaved=isinstance(form, ByTuples),
        wrap_negative=wrap,
        index_dtypes=tuple(str(index.ty.dtype) for index in indices),
        flattened=flattened,
    )
    return Read(form, check)
