"""ScatterProblem: the one description that every scatter operator is lowered to.

Every operator is brought into the form

    out = data
    for b in range(batch):
        for k in range(count):
            for s in range(slice):
                out[b, destination(b, k, s), s] op= updates[b, k, s]

with data viewed as (batch, extent, slice) and updates as (batch, count, slice). Operators differ
only in the axes that the index varies over, in how several index tensors combine into one
destination, and in which axes of the updates are broadcast.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, reduce
from typing import Any

from tvm_scatter.errors import ScatterError

from .plain_data import parse
from .reductions import (
    HALVES,
    INDEX_DTYPES,
    REDUCTIONS,
    Reduction,
    canonical_reduction,
)
from .symbolic_size import SymbolicSize

BOUNDS = ("raise", "drop", "trust")
FORMAT_VERSION = 1
_MOST_ELEMENTS = (1 << 63) - 1
#: Fields that older records do not have.
_YOUNGER = ("fused", "ordered", "in_order", "order_alone", "softmax", "fill", "epilogue")


@dataclass(frozen=True)
class ScatterProblem:
    """A scatter, without its tensors and without an implementation. Frozen and hashable.

    Parameters
    ----------
    batch, slice, count : SymbolicSize
        The product of the axes before the scatter axis, of those after it, and the number of
        updates along it.
    extents : tuple of SymbolicSize
        The extent that each index component addresses. Their product is the extent of the scatter
        axis. The last component varies fastest, as in a row-major tensor.
    data_dtype, index_dtype : str
        Element types of data (and updates) and of every index tensor.
    reduction : str
        A key of :data:`tvm_scatter.problem.reductions.REDUCTIONS`.
    index_batch, index_slice : bool
        Whether the index varies over the batch and over the slice. If neither: one index per update
        row, shared by all batches.
    interleaved : bool
        Whether the components are the last axis of one tensor (``scatter_nd``), rather than one
        tensor each (``index_put``).
    update_batch, update_count, update_slice : bool
        Whether updates vary over that axis. If not, they are stored once and broadcast.
    include_self : bool
        Whether the value in ``data`` takes part in the reduction.
    wrap_negative : bool
        Whether an index in [-extent, 0) counts from the end.
    unique : bool
        Whether no two updates share a destination, as promised by the caller or proved.
    deterministic : bool
        Whether equal inputs must give equal bits on every run.
    bounds : str
        ``"raise"``, ``"drop"`` or ``"trust"``.
    in_place : bool
        Whether the output overwrites the data's buffer.
    fused : bool
        Whether updates are computed where they are read, and not read from memory.
    ordered : bool
        Whether the order of the updates by destination is given.
    in_order : bool
        Whether updates stand in that order already: only where each destination's begin is given.
    order_alone : bool
        Whether the order is all that is given: then the index holds nothing.
    softmax : bool
        Whether each update has a logit, and is weighted by the softmax of the logits of all updates
        of its destination. Without ``include_self`` only.
    fill : str
        The number that every element of the data is, which are then not in memory; empty if they
        are read.
    epilogue : str
        The data type of what is computed of the result where it is written; empty if nothing is.
    """

    batch: SymbolicSize
    extents: tuple[SymbolicSize, ...]
    slice: SymbolicSize
    count: SymbolicSize
    data_dtype: str
    index_dtype: str
    reduction: str = "update"
    index_batch: bool = False
    index_slice: bool = False
    interleaved: bool = False
    update_batch: bool = True
    update_count: bool = True
    update_slice: bool = True
    include_self: bool = True
    wrap_negative: bool = True
    unique: bool = False
    deterministic: bool = False
    bounds: str = "drop"
    in_place: bool = False
    fused: bool = False
    ordered: bool = False
    in_order: bool = False
    order_alone: bool = False
    softmax: bool = False
    fill: str = ""
    epilogue: str = ""

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            canonical_reduction(self.reduction, "ScatterProblem")
            raise ScatterError(
                f"ScatterProblem: reduction {self.reduction!r} is an alias; use "
                f"{canonical_reduction(self.reduction, 'ScatterProblem')!r}."
            )
        if self.bounds not in BOUNDS:
            raise ScatterError(
                f"ScatterProblem: bounds {self.bounds!r} must be one of {', '.join(BOUNDS)}."
            )
        if (self.in_order or self.order_alone) and not self.ordered:
            raise ScatterError(
                "ScatterProblem: in_order and order_alone say what is given of an order; they need "
                "ordered=True."
            )
        if self.fill:
            self._check_fill()

    def _check_fill(self) -> None:
        try:
            (float if "float" in self.data_dtype else int)(self.fill)
        except ValueError:
            raise ScatterError(
                f"ScatterProblem: fill {self.fill!r} must be a number of type {self.data_dtype}."
            ) from None

    @property
    def reduces(self) -> Reduction:
        """The record of the reduction."""
        return REDUCTIONS[self.reduction]

    @property
    def reduces_into_data(self) -> bool:
        """Whether updates can be combined directly into a copy of the data."""
        return self.reduces.reduces_into_data(self.include_self)

    @property
    def starts_from_identity(self) -> bool:
        """Whether the reduction starts from its identity, because the data takes no part."""
        return not (self.include_self or self.reduces.is_store)

    @cached_property
    def extent(self) -> SymbolicSize:
        """The extent of the scatter axis."""
        return reduce(SymbolicSize.__mul__, self.extents, SymbolicSize())

    @cached_property
    def data_size(self) -> SymbolicSize:
        """The number of elements of the data."""
        return self.batch * self.extent * self.slice

    @cached_property
    def update_size(self) -> SymbolicSize:
        """The number of elements of the updates after broadcasting."""
        return self.batch * self.count * self.slice

    @property
    def index_size(self) -> SymbolicSize:
        """The number of entries of all index tensors together."""
        entries = self.count * self.slice if self.index_slice else self.count
        entries = self.batch * entries if self.index_batch else entries
        return SymbolicSize.product([len(self.extents)]) * entries

    @property
    def elements(self) -> int:
        """The number of elements of data and updates together. All sizes must be static."""
        return self.data_size.constant + self.update_size.constant

    @cached_property
    def items(self) -> SymbolicSize:
        """The number of indices read: one for each update element or for each update row."""
        rows = self.batch * self.count
        return rows * self.slice if self.index_slice else rows

    @cached_property
    def width(self) -> SymbolicSize:
        """The number of contiguous elements that one index moves."""
        return SymbolicSize() if self.index_slice else self.slice

    @cached_property
    def destinations(self) -> SymbolicSize:
        """The number of places that an index can address; each is ``width`` elements wide."""
        places = self.batch * self.extent
        return places * self.slice if self.index_slice else places

    @cached_property
    def slab(self) -> SymbolicSize:
        """The number of elements of the data in one batch."""
        return self.extent * self.slice

    @property
    def only_stores(self) -> bool:
        """Whether each update is a plain store: updates have distinct destinations or replace."""
        return self.unique or self.reduces.is_store

    @property
    def rounds(self) -> bool:
        """Whether updates of one place are combined by an operation that rounds to 16 bits."""
        once = self.count.is_one and not self.reduces.needs_count
        stays = self.only_stores or self.reduces.is_extreme or once
        return self.data_dtype in HALVES and not stays

    @property
    def shares_index(self) -> bool:
        """Whether there are several batches, and one index for all of their elements."""
        return not (self.index_batch or self.index_slice or self.batch.is_one)

    @property
    def ordering(self) -> tuple[str, ...]:
        """The names of the tensors that say the order of the updates; none if it is not given."""
        if not self.ordered:
            return ()
        return ("offsets",) if self.in_order else ("permutation", "offsets")

    @property
    def is_empty(self) -> bool:
        """Whether the output certainly has no elements."""
        return self.data_size.constant == 0

    @property
    def is_static(self) -> bool:
        """Whether every size is known at compile time."""
        return not self.symbols

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic sizes, sorted."""
        extents = (self.batch, self.slice, self.count, *self.extents)
        return tuple(sorted({symbol for extent in extents for symbol in extent.symbols}))

    @property
    def needs_order(self) -> bool:
        """Whether the caller asks for a determinism that needs a fixed order of updates.

        Without ``deterministic``, any of several updates of one destination may win.
        """
        if self.unique or not self.deterministic:
            return False
        return not self.reduces.is_order_free(self.data_dtype)

    @property
    def rank(self) -> int:
        """How many of batch, scatter axis and slice have more than one position: 1, 2 or 3."""
        return 1 + (not self.batch.is_one) + (not self.slice.is_one)

    @property
    def measured(self) -> ScatterProblem:
        """The same problem as tuning measures it: data, updates and result in memory, no order."""
        in_memory = replace(self, fused=False, softmax=False, fill="", epilogue="")
        return replace(in_memory, ordered=False, in_order=False, order_alone=False)

    def with_sizes(self, sizes: Mapping[str, int]) -> ScatterProblem:
        """The same problem with symbolic sizes replaced by numbers."""

        def fix(extent: SymbolicSize) -> SymbolicSize:
            return SymbolicSize.product(
                [extent.constant, *(sizes.get(symbol, symbol) for symbol in extent.symbols)]
            )

        return replace(
            self,
            batch=fix(self.batch),
            slice=fix(self.slice),
            count=fix(self.count),
            extents=tuple(fix(extent) for extent in self.extents),
        )

    def to_json(self) -> str:
        """A stable text form, used as the key of tuning records."""
        plain: dict[str, Any] = {"version": FORMAT_VERSION}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, SymbolicSize):
                value = str(value)
            elif field.name == "extents":
                value = [str(extent) for extent in value]
            if field.name in _YOUNGER and not value:
                # Records that are older than these fields stay valid.
                continue
            plain[field.name] = value
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> ScatterProblem:
        """The inverse of :meth:`to_json`.

        Raises
        ------
        ScatterError
            If the text has another format version or is not a problem.
        """
        try:
            plain = parse(text)
            version = plain.pop("version")
            if version == FORMAT_VERSION:
                for name in ("batch", "slice", "count"):
                    plain[name] = SymbolicSize.parse(plain[name])
                plain["extents"] = tuple(SymbolicSize.parse(extent) for extent in plain["extents"])
                return _checked(ScatterProblem(**plain))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScatterError(f"ScatterProblem: cannot read {text[:80]!r}: {error}.") from error
        raise ScatterError(
            f"ScatterProblem: format version {version!r} is not {FORMAT_VERSION}; tune again."
        )

    def __str__(self) -> str:
        kind = "element" if self.index_slice else "row"
        parts = [
            f"{self.reduction} {self.data_dtype}",
            f"data ({self.batch}, {self.extent}, {self.slice})",
            f"updates ({self.batch}, {self.count}, {self.slice})",
            f"one {self.index_dtype} index per {kind}",
        ]
        if len(self.extents) > 1:
            parts.append(f"{len(self.extents)} components")
        defaults = {field.name: field.default for field in fields(self)}
        flags = (
            *("include_self", "unique", "deterministic"),
            *("in_place", *_YOUNGER),
        )
        parts += [
            f"{name}={value}"
            for name, value in asdict(self).items()
            if name in flags and value != defaults[name]
        ]
        return ", ".join(parts) + f", bounds={self.bounds}"


def _checked(problem: ScatterProblem) -> ScatterProblem:
    """A problem from untrusted text, after checking the type of every field.

    Raises
    ------
    TypeError
        If a field has another type.
    """
    for field in fields(problem):
        value = getattr(problem, field.name)
        if isinstance(field.default, bool) and not isinstance(value, bool):
            raise TypeError(f"{field.name} is {value!r}, neither true nor false")
    if problem.data_dtype not in problem.reduces.dtypes or problem.index_dtype not in INDEX_DTYPES:
        raise TypeError(f"no scatter has types {problem.data_dtype!r} and {problem.index_dtype!r}")
    for extent in (problem.batch, problem.slice, problem.count, *problem.extents):
        if extent.constant < 0 or not all(symbol.isidentifier() for symbol in extent.symbols):
            raise TypeError(f"{str(extent)!r} is no size")
    for size in (problem.data_size, problem.update_size, problem.index_size):
        if size.constant > _MOST_ELEMENTS:
            raise TypeError(f"{str(size)!r} elements are more than any memory has")
    return problem
