"""From a Relax call to a ScatterProblem: the only place that knows the operators' conventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from tvm_scatter.bounds.agreement import Agreement
from tvm_scatter.bounds.size_check import AtMost, Place, check_sizes
from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.names import COPY_RANGES, INDEX_PUT, SCATTER_ELEMENTS
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import SymbolTable, broadcast, expressions
from tvm_scatter.options import Options
from tvm_scatter.problem.reductions import check_dtypes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Dim, Signature
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.backend import backend_for

from .copy_ranges import as_index_put


@dataclass(frozen=True)
class Lowered:
    """A call in the form in which it is selected and emitted.

    ``data``, ``indices`` and ``updates`` are the Relax expressions behind ``signature``;
    ``symbols`` gives the expression behind each symbolic size. ``temporary`` says that the data is
    no caller's: nobody sees it if the call fails.
    """

    problem: ScatterProblem
    signature: Signature
    data: Any
    indices: Sequence[Any]
    updates: Any
    check: IndexCheck
    symbols: dict[str, Any]
    temporary: bool = False


def lower(bb: relax.BlockBuilder, call: ScatterCall, options: Options, target_kind: str) -> Lowered:
    """Lower a call of any scatter operator.

    Auxiliary tensors (a broadcast of small indices, an index linearised because its box is smaller
    than the data) are emitted through ``bb``.

    Raises
    ------
    ScatterError
        If shapes, types, axis or reduction do not fit each other.
    """
    if call.form == COPY_RANGES:
        # Its positions are known, and lie inside the data.
        return lower(bb, as_index_put(bb, call), replace(options, bounds="trust"), target_kind)
    lowering = _Lowering(bb, call, options, target_kind)
    if call.form == SCATTER_ELEMENTS:
        return lowering.elements()
    return lowering.put() if call.form == INDEX_PUT else lowering.nd()


class _Lowering:
    def __init__(
        self,
        bb: relax.BlockBuilder,
        call: ScatterCall,
        options: Options,
        target_kind: str,
    ) -> None:
        self.bb = bb
        self.operator = call.operator
        self.options = options
        self.bounds = backend_for(target_kind).bounds_under(options)
        self.call = call
        self.data, self.updates = call.data, call.updates
        self.index = call.indices[0] if call.indices else None
        self.symbols = SymbolTable()
        self.data_dtype = _dtype(self.data)

    def shape(self, tensor: Any) -> tuple[Dim, ...]:
        return self.symbols.shape(self.operator, tensor)

    def problem(self, **fields: Any) -> ScatterProblem:
        # An axis of one position varies over nothing; one spelling makes equal problems equal.
        for axis in ("batch", "count", "slice"):
            if fields[axis].is_one:
                fields[f"update_{axis}"] = True
                if axis != "count":
                    fields[f"index_{axis}"] = False
        return ScatterProblem(
            data_dtype=self.data_dtype,
            include_self=self.call.include_self,
            unique=self.call.unique,
            deterministic=self.options.deterministic or self.call.ordered,
            in_place=self.call.in_place,
            bounds=self.bounds,
            **fields,
        )

    # Operators

    def elements(self) -> Lowered:
        """One index for each update element: scatter_elements, PyTorch's scatter family."""
        reduction, wrap_negative = self.call.reduction, self.call.wrap_negative
        check_dtypes(
            self.operator, reduction, self.data_dtype, _dtype(self.index), _dtype(self.updates)
        )
        self.index = self._signed(self.index)
        data, index, updates = map(self.shape, (self.data, self.index, self.updates))
        data_box, index_box = data or (1,), index or (1,)
        axis = self._axis(self.call.axes[0], len(data_box))
        if len(index_box) != len(data_box):
            raise ScatterError(
                f"{self.operator}: index of shape {index} must have the rank of data of shape "
                f"{data}."
            )
        scalar = not updates
        update_box = index_box if scalar else updates
        self._check_box(axis, data_box, index_box, update_box, scalar)
        check = self._check([self.index], (data_box[axis],), False, wrap_negative)
        whole = all(
            d == axis or _equal(data_box[d], index_box[d]) for d in range(len(data_box))
        ) and all(_equal(index_box[d], update_box[d]) for d in range(1, len(data_box)))
        if not whole:
            return self._linear(
                self._linear_elements(data_box, index_box, axis, wrap_negative),
                self.updates if scalar else self._crop(index_box),
                reduction,
                check,
                scalar,
            )
        problem = self.problem(
            batch=SymbolicSize.product(index_box[:axis]),
            extents=(SymbolicSize.product(data_box[axis : axis + 1]),),
            slice=SymbolicSize.product(index_box[axis + 1 :]),
            count=SymbolicSize.product(index_box[axis : axis + 1]),
            index_dtype=_dtype(self.index),
            reduction=reduction,
            index_batch=True,
            index_slice=True,
            update_batch=not scalar,
            update_count=not scalar,
            update_slice=not scalar,
            wrap_negative=wrap_negative,
        )
        return self._lowered(problem, [self.index], self.updates, check)

    def nd(self) -> Lowered:
        """One tuple of indices for each update row: scatter_nd."""
        reduction, wrap_negative = self.call.reduction, self.call.wrap_negative
        check_dtypes(
            self.operator, reduction, self.data_dtype, _dtype(self.index), _dtype(self.updates)
        )
        self.index = self._signed(self.index)
        data, index, updates = map(self.shape, (self.data, self.index, self.updates))
        if not index or not isinstance(index[-1], int) or not 0 <= index[-1] <= len(data):
            raise ScatterError(
                f"{self.operator}: the last dimension of indices of shape {index} must be a static "
                f"number from 0 to the rank of data of shape {data}."
            )
        components = index[-1]
        self._agree_nd(len(index), len(data), components)
        data, index, updates = map(self.shape, (self.data, self.index, self.updates))
        expected = index[:-1] + data[components:]
        if not _all_equal(updates, expected):
            raise ScatterError(
                f"{self.operator}: updates of shape {updates} must have shape {expected} for data "
                f"of shape {data} and indices of shape {index}."
            )
        if components == 0:
            return self._whole(index[:-1], reduction)
        problem = self.problem(
            batch=SymbolicSize(),
            extents=tuple(SymbolicSize.product([dim]) for dim in data[:components]),
            slice=SymbolicSize.product(data[components:]),
            count=SymbolicSize.product(index[:-1]),
            index_dtype=_dtype(self.index),
            reduction=reduction,
            interleaved=True,
            wrap_negative=wrap_negative,
        )
        check = self._check([self.index], data[:components], True, wrap_negative)
        return self._lowered(problem, [self.index], self.updates, check)

    def put(self) -> Lowered:
        """One index tensor for each of some axes: index_put, index_add and their kin."""
        reduction, wrap_negative = self.call.reduction, self.call.wrap_negative
        indices, axes = [self._emitted(index) for index in self.call.indices], list(self.call.axes)
        data = self.shape(self.data)
        if not indices or len(axes) != len(indices) or len(indices) > len(data):
            raise ScatterError(
                f"{self.operator}: {len(indices)} index tensors do not fit data of shape {data}."
            )
        for index in indices:
            check_dtypes(
                self.operator, reduction, self.data_dtype, _dtype(index), _dtype(self.updates)
            )
        indices = self._agree_put(axes, indices)
        data, updates = self.shape(self.data), self.shape(self.updates)
        indices = list(map(self._signed, indices))
        extents = tuple(data[axis] for axis in axes)
        check = self._check(indices, extents, False, wrap_negative)
        indices = self._same_dtype(indices)
        common = broadcast(self.operator, [self.shape(index) for index in indices])
        adjacent = _adjacent(axes)
        first, last = axes[0], axes[-1] + 1
        rest = [dim for axis, dim in enumerate(data) if axis not in axes]
        result = data[:first] + common + data[last:] if adjacent else common + tuple(rest)
        if not _all_equal(broadcast(self.operator, [updates, result]), result):
            raise ScatterError(
                f"{self.operator}: values of shape {updates} do not broadcast to {result}, the "
                f"shape that the indices select from data of shape {data}."
            )
        if not adjacent:
            linear = self._linear_put(data, axes, indices, common, rest, wrap_negative)
            values, scalar = (
                (self.updates, True) if not updates else (self._expand(self.updates, result), False)
            )
            return self._linear(linear, values, reduction, check, scalar)
        groups = (data[:first], common, data[last:])
        flags = _broadcast_flags(updates, groups)
        values = self.updates if flags else self._expand(self.updates, result)
        varies = flags or (True, True, True)
        indices = [
            index if _all_equal(self.shape(index), common) else self._expand(index, common)
            for index in indices
        ]
        problem = self.problem(
            batch=SymbolicSize.product(data[:first]),
            extents=tuple(SymbolicSize.product([dim]) for dim in extents),
            slice=SymbolicSize.product(data[last:]),
            count=SymbolicSize.product(common),
            index_dtype=_dtype(indices[0]),
            reduction=reduction,
            update_batch=varies[0],
            update_count=varies[1],
            update_slice=varies[2],
            wrap_negative=wrap_negative,
        )
        return self._lowered(problem, indices, values, check)

    def _whole(self, shape: tuple[Dim, ...], reduction: str) -> Lowered:
        """Each update goes to all of the data, which is the only row of a tensor of one row."""
        self.bounds = "trust"
        zeros = self.bb.emit_te(
            topi.full, (*expressions(shape, self.symbols.values), 1), "int64", tirx.const(0)
        )
        problem = self.problem(
            batch=SymbolicSize(),
            extents=(SymbolicSize(),),
            slice=SymbolicSize.product(self.shape(self.data)),
            count=SymbolicSize.product(shape),
            index_dtype="int64",
            reduction=reduction,
            interleaved=True,
        )
        check = self._check([zeros], (1,), True, wrap=False)
        return self._lowered(problem, [zeros], self.updates, check)

    # Parts

    def _emitted(self, index: Any) -> Any:
        """An index that is a part of a tuple, as a variable."""
        return self.bb.emit(index) if isinstance(index, relax.TupleGetItem) else index

    def _axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise ScatterError(
                f"{self.operator}: axis {axis} is out of range for data of rank {rank}; it must be "
                f"in [{-rank}, {rank - 1}]."
            )
        return axis % rank

    def _check_box(
        self,
        axis: int,
        data: Sequence[Dim],
        index: Sequence[Dim],
        updates: Sequence[Dim],
        scalar: bool,
    ) -> None:
        """Refuse an index that is larger than what it covers, at run time if not before."""
        if len(updates) != len(index):
            raise ScatterError(
                f"{self.operator}: updates of shape {tuple(updates)} must have the rank of index "
                f"of shape {tuple(index)}."
            )
        unknown = []
        for d, (whole, box, source) in enumerate(zip(data, index, updates, strict=True)):
            if _exceeds(box, source):
                raise ScatterError(
                    f"{self.operator}: index of shape {tuple(index)} is larger than updates of "
                    f"shape {tuple(updates)} in dimension {d}."
                )
            if d != axis and _exceeds(box, whole):
                raise ScatterError(
                    f"{self.operator}: index of shape {tuple(index)} is larger than data of shape "
                    f"{tuple(data)} in dimension {d}, which is not the scatter axis {axis}."
                )
            if not (scalar or self.symbols.fits(box, source)):
                unknown.append(AtMost("index", "updates", d))
            if not (d == axis or self.symbols.fits(box, whole)):
                unknown.append(AtMost("index", "data", d))
        if unknown:
            tensors = {"updates": self.updates, "index": self.index, "data": self.data}
            [self.updates] = check_sizes(self.bb, self.operator, unknown, tensors, ["updates"])

    def _agree_nd(self, index_rank: int, data_rank: int, components: int) -> None:
        """Take the sizes of updates for those of indices and data, and have it checked."""
        tensors = {"data": self.data, "indices": self.index, "updates": self.updates}
        agreement = Agreement(self.operator, self.symbols, tensors)
        expected = [Place("indices", d) for d in range(index_rank - 1)]
        expected += [Place("data", d) for d in range(components, data_rank)]
        if self.updates.ty.ndim == len(expected):
            for d, place in enumerate(expected):
                agreement.expect_equal(Place("updates", d), place)
        tensors = agreement.check(self.bb)
        self.data, self.index, self.updates = tensors.values()

    def _agree_put(self, axes: Sequence[int], indices: Sequence[Any]) -> list[Any]:
        """Take sizes for equal that must be, and have it checked; the indices."""
        names = [f"index {i}" for i in range(len(indices))] if len(indices) > 1 else ["index"]
        tensors = {
            "data": self.data,
            "values": self.updates,
            **dict(zip(names, indices, strict=True)),
        }
        agreement = Agreement(self.operator, self.symbols, tensors)
        common = agreement.expect_broadcast(names)
        rest = [Place("data", d) for d in range(len(self.shape(self.data))) if d not in axes]
        first = axes[0] if _adjacent(axes) else 0
        agreement.expect_to_fit("values", [*rest[:first], *common, *rest[first:]])
        tensors = agreement.check(self.bb)
        self.data, self.updates = tensors["data"], tensors["values"]
        return [tensors[name] for name in names]

    def _check(
        self, indices: Sequence[Any], extents: Sequence[Dim], interleaved: bool, wrap: bool
    ) -> IndexCheck:
        return IndexCheck(
            operator=self.operator,
            data=self.data,
            data_shape=self.shape(self.data),
            data_dtype=self.data_dtype,
            indices=list(indices),
            shapes=tuple(self.shape(index) for index in indices),
            extents=tuple(extents),
            interleaved=interleaved,
            wrap_negative=wrap,
            index_dtypes=tuple(_dtype(index) for index in indices),
        )

    def _lowered(
        self, problem: ScatterProblem, indices: Sequence[Any], updates: Any, check: IndexCheck
    ) -> Lowered:
        signature = Signature(
            operator=self.operator,
            data=self.shape(self.data),
            indices=tuple(self.shape(index) for index in indices),
            updates=self.shape(updates),
        )
        return Lowered(
            problem=problem,
            signature=signature,
            data=self.data,
            indices=indices,
            updates=updates,
            check=check,
            symbols=self.symbols.values,
            temporary=self.call.temporary,
        )

    def _signed(self, index: Any) -> Any:
        """An index as implementations take it: a number beyond int64 as the largest of int64.

        Either is out of bounds for every extent.
        """
        if _dtype(index) != "uint64":
            return index

        def signed(source: te.Tensor) -> te.Tensor:
            most = tirx.const(int(np.iinfo("int64").max), "uint64")
            return te.compute(
                source.shape, lambda *at: tirx.Cast("int64", tirx.min(source(*at), most))
            )

        return self.bb.emit_te(signed, index, primfunc_name_hint="signed_index")

    def _same_dtype(self, indices: Sequence[Any]) -> list[Any]:
        if len({_dtype(index) for index in indices}) == 1:
            return list(indices)
        return [
            index
            if _dtype(index) == "int64"
            else self.bb.emit_te(topi.cast, index, "int64", primfunc_name_hint="cast_index")
            for index in indices
        ]

    def _expand(self, tensor: Any, shape: Sequence[Dim]) -> Any:
        target = expressions(shape, self.symbols.values)
        if 0 in shape:
            # TVM cannot compile a broadcast to a tensor without elements.
            return self.bb.emit_te(topi.full, target, _dtype(tensor), 0, primfunc_name_hint="empty")
        fixed = [dim == 1 for dim in self.shape(tensor)]

        # Not TVM's own, which knows nothing of sizes that have been checked to be equal.
        def broadcast_to(source: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
            def element(*at: Any) -> Any:
                behind = at[len(at) - len(fixed) :]
                return source(*(0 if one else i for one, i in zip(fixed, behind, strict=True)))

            return te.compute(shape, element, name="broadcast_to", tag="broadcast")

        return self.bb.emit_te(broadcast_to, tensor, target, primfunc_name_hint="broadcast_to")

    def _crop(self, box: Sequence[Dim]) -> Any:
        if _all_equal(self.shape(self.updates), box):
            return self.updates

        def crop(updates: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
            return te.compute(shape, lambda *at: updates(*at), name="crop")

        shape = expressions(box, self.symbols.values)
        return self.bb.emit_te(crop, self.updates, shape, primfunc_name_hint="crop")

    def _linear(
        self, linear: Any, updates: Any, reduction: str, check: IndexCheck, scalar: bool
    ) -> Lowered:
        """A scatter into the flattened data, for what three loops cannot say."""
        problem = self.problem(
            batch=SymbolicSize(),
            extents=(SymbolicSize.product(self.shape(self.data)),),
            slice=SymbolicSize(),
            count=SymbolicSize.product(self.shape(linear)),
            index_dtype="int64",
            reduction=reduction,
            update_batch=not scalar,
            update_count=not scalar,
            update_slice=not scalar,
            wrap_negative=False,
        )
        return self._lowered(problem, [linear], updates, check)

    def _linear_elements(
        self, data: Sequence[Dim], index: Sequence[Dim], axis: int, wrap: bool
    ) -> Any:
        # Sizes are arguments, so that symbolic ones become parameters of the function.
        def linear_index(
            source: te.Tensor, box: Sequence[Any], extents: Sequence[Any]
        ) -> te.Tensor:
            def position(*at: Any) -> Any:
                chosen = source(*at) if len(source.shape) else source()
                parts = [_wide(i) for i in at]
                parts[axis] = _normalise(chosen, extents[axis], wrap)
                return _flatten(parts, extents, valid=_valid(parts[axis], extents[axis]))

            return te.compute(box, position, name="linear_index")

        box = expressions(index, self.symbols.values)
        extents = expressions(data, self.symbols.values)
        return self.bb.emit_te(
            linear_index, self.index, box, extents, primfunc_name_hint="linear_index"
        )

    def _linear_put(
        self,
        data: Sequence[Dim],
        axes: Sequence[int],
        indices: Sequence[Any],
        common: Sequence[Dim],
        rest: Sequence[Dim],
        wrap: bool,
    ) -> Any:
        expanded = [self._expand(index, common) for index in indices]
        others = [axis for axis in range(len(data)) if axis not in axes]

        def linear_index(
            sources: Sequence[te.Tensor], shape: Sequence[Any], extents: Sequence[Any]
        ) -> te.Tensor:
            def position(*at: Any) -> Any:
                parts: list[Any] = [None] * len(extents)
                valid: Any = tirx.const(True, "bool")
                for axis, source in zip(axes, sources, strict=True):
                    parts[axis] = _normalise(source(*at[: len(common)]), extents[axis], wrap)
                    valid = tirx.all(valid, _valid(parts[axis], extents[axis]))
                for axis, i in zip(others, at[len(common) :], strict=True):
                    parts[axis] = _wide(i)
                return _flatten(parts, extents, valid)

            return te.compute(shape, position, name="linear_index")

        shape = expressions((*common, *rest), self.symbols.values)
        extents = expressions(data, self.symbols.values)
        return self.bb.emit_te(
            linear_index, expanded, shape, extents, primfunc_name_hint="linear_index"
        )


def _dtype(tensor: Any) -> str:
    return str(tensor.ty.dtype)


def _equal(left: Dim, right: Dim) -> bool:
    return left == right


def _adjacent(axes: Sequence[int]) -> bool:
    return list(axes) == list(range(axes[0], axes[0] + len(axes)))


def _all_equal(left: Sequence[Dim], right: Sequence[Dim]) -> bool:
    return tuple(left) == tuple(right)


def _exceeds(left: Dim, right: Dim) -> bool:
    return isinstance(left, int) and isinstance(right, int) and left > right


def _broadcast_flags(
    updates: Sequence[Dim], groups: Sequence[Sequence[Dim]]
) -> tuple[bool, bool, bool] | None:
    """Over which of (batch, count, slice) the updates vary; ``None`` if only partly over one."""
    total = sum(len(group) for group in groups)
    padded = (1,) * (total - len(updates)) + tuple(updates)
    flags, start = [], 0
    for group in groups:
        part = padded[start : start + len(group)]
        start += len(group)
        if part == tuple(group):
            flags.append(True)
        elif all(dim == 1 for dim in part):
            flags.append(False)
        else:
            return None
    return flags[0], flags[1], flags[2]


def _wide(value: Any) -> Any:
    return tirx.Cast("int64", value)


def _normalise(index: Any, extent: Any, wrap: bool) -> Any:
    index = _wide(index)
    return tirx.Select(index < 0, index + extent, index) if wrap else index


def _valid(index: Any, extent: Any) -> Any:
    return tirx.all(index >= 0, index < extent)


def _flatten(parts: Sequence[Any], extents: Sequence[Any], valid: Any) -> Any:
    offset: Any = tirx.IntImm("int64", 0)
    for part, extent in zip(parts, extents, strict=True):
        offset = offset * extent + part
    return tirx.Select(valid, offset, tirx.IntImm("int64", -1))
