"""ScatterProblem: the one description that every scatter operator is lowered to.

Every operator is brought into the form

    out = data
    for b in range(batch):
        for k in range(count):
            for s in range(slice):
                out[b, destination(b, k, s), s] op= updates[b, k, s]

with data viewed as (batch, extent, slice) and updates as (batch, count, slice). What differs
between operators is only what the index varies over, how several index tensors combine into one
destination, and which axes of the updates are broadcast.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import reduce
from typing import Any

from tvm_scatter.errors import ScatterError

from .plain_data import parse
from .reductions import (
    INDEX_DTYPES,
    REDUCTIONS,
    Reduction,
    canonical_reduction,
)
from .symbolic_size import SymbolicSize

BOUNDS = ("raise", "drop", "trust")
FORMAT_VERSION = 1
_MOST_ELEMENTS = (1 << 63) - 1


@dataclass(frozen=True)
class ScatterProblem:
    """A scatter, independent of how it will be computed. Frozen and hashable.

    Parameters
    ----------
    batch, slice, count : SymbolicSize
        Positions before the scatter axis, positions after it, and updates along it.
    extents : tuple of SymbolicSize
        The extent that each index component addresses; their product is the extent of the axis.
        The last component varies fastest, as in a row-major tensor.
    data_dtype, index_dtype : str
        Element types of data (and updates) and of every index tensor.
    reduction : str
        A key of :data:`tvm_scatter.problem.reductions.REDUCTIONS`.
    index_batch, index_slice : bool
        Whether the index varies over the batch and over the slice. Neither: one index per update
        row, shared by all batches.
    interleaved : bool
        Whether the components stand side by side in one tensor (``scatter_nd``) rather than in
        one tensor each (``index_put``).
    update_batch, update_count, update_slice : bool
        Whether updates vary over that axis; where not, they are broadcast and read as they are.
    include_self : bool
        Whether the value in ``data`` takes part in the reduction.
    wrap_negative : bool
        Whether an index in [-extent, 0) counts from the end.
    unique : bool
        Whether no two updates share a destination (the caller's promise, or proved).
    deterministic : bool
        Whether equal inputs must give equal bits on every run.
    bounds : str
        ``"raise"``, ``"drop"`` or ``"trust"``.
    in_place : bool
        Whether the data buffer may be overwritten and is the output.
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

    @property
    def reduces(self) -> Reduction:
        """All that is known of the reduction."""
        return REDUCTIONS[self.reduction]

    @property
    def reduces_into_data(self) -> bool:
        """Whether each update is combined with the data as it is, and nothing is left to do."""
        return self.reduces.reduces_into_data(self.include_self)

    @property
    def starts_from_identity(self) -> bool:
        """Whether the data has no part in what updates are reduced to."""
        return not (self.include_self or self.reduces.is_store)

    @property
    def extent(self) -> SymbolicSize:
        """Positions along the scatter axis."""
        return reduce(SymbolicSize.__mul__, self.extents, SymbolicSize())

    @property
    def data_size(self) -> SymbolicSize:
        """Elements of data."""
        return self.batch * self.extent * self.slice

    @property
    def update_size(self) -> SymbolicSize:
        """Updates, counted after broadcasting."""
        return self.batch * self.count * self.slice

    @property
    def index_size(self) -> SymbolicSize:
        """Entries of all index tensors together."""
        entries = self.count * self.slice if self.index_slice else self.count
        entries = self.batch * entries if self.index_batch else entries
        return SymbolicSize.product([len(self.extents)]) * entries

    @property
    def elements(self) -> int:
        """Elements of data and updates together; all sizes are known."""
        return self.data_size.constant + self.update_size.constant

    @property
    def items(self) -> SymbolicSize:
        """Distinct index reads: one per update element, or one per update row."""
        rows = self.batch * self.count
        return rows * self.slice if self.index_slice else rows

    @property
    def width(self) -> SymbolicSize:
        """Contiguous elements that one index read moves."""
        return SymbolicSize() if self.index_slice else self.slice

    @property
    def destinations(self) -> SymbolicSize:
        """Distinct places that an item can go to; each is ``width`` elements wide."""
        places = self.batch * self.extent
        return places * self.slice if self.index_slice else places

    @property
    def slab(self) -> SymbolicSize:
        """Elements of data that one batch scatters into."""
        return self.extent * self.slice

    @property
    def only_stores(self) -> bool:
        """Whether an update is a store: none meets another, or any of those that meet may win."""
        return self.unique or self.reduces.is_store

    @property
    def is_static(self) -> bool:
        """Whether every extent is known at compile time."""
        return not self.symbols

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic sizes, sorted."""
        extents = (self.batch, self.slice, self.count, *self.extents)
        return tuple(sorted({symbol for extent in extents for symbol in extent.symbols}))

    @property
    def needs_order(self) -> bool:
        """Whether the order of updates must be fixed to get an answer that the caller accepts.

        Without ``deterministic``, a plain update with duplicate indices may end with any of them.
        """
        if self.unique or not self.deterministic:
            return False
        return not self.reduces.is_order_free(self.data_dtype)

    @property
    def rank(self) -> int:
        """How many of batch, axis and slice are more than one position: 1, 2 or 3."""
        return 1 + (not self.batch.is_one) + (not self.slice.is_one)

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
        """A stable text form: the key of tuning records."""
        plain: dict[str, Any] = {"version": FORMAT_VERSION}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, SymbolicSize):
                value = str(value)
            elif field.name == "extents":
                value = [str(extent) for extent in value]
            plain[field.name] = value
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> ScatterProblem:
        """The inverse of :meth:`to_json`.

        Raises
        ------
        ScatterError
            If the text is of another format version or no problem at all.
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
        flags = ("include_self", "unique", "deterministic", "in_place")
        parts += [
            f"{name}={value}"
            for name, value in asdict(self).items()
            if name in flags and value != defaults[name]
        ]
        return ", ".join(parts) + f", bounds={self.bounds}"


def _checked(problem: ScatterProblem) -> ScatterProblem:
    """A problem that somebody else wrote down, with every field of its type.

    Raises
    ------
    TypeError
        If one is not.
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
