"""The C++ type of computed updates for who writes whole destinations.

What is the same for all updates of a destination is read once, ``own``, and ``owned`` computes the
elements of an update with it. Where a logit is a sum along a row, ``owned`` has a part of the sum,
and ``complete`` computes the logit from all of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tvm import tirx

from tvm_scatter.emit.computed_updates import ComputedUpdates
from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.owned_updates import OwnedUpdates, parts_without
from tvm_scatter.emit.weighted_rows import WeightedRows
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .carried import Carried, carried
from .computed import (
    Generated,
    alignment,
    long_axes,
    read_ahead,
    read_updates,
    sizes_of,
    whole_vectors,
)
from .expression import (
    NameOfNoneError,
    Value,
    Writer,
    computed_type,
    declared_in_struct,
    is_half,
    result_of,
    stored_type,
)
from .read_first import read_first
from .source import data_type

#: The most values of a destination that are held: they take registers all the time.
_MOST_HELD = 6
_UNSIGNED = "typename If<sizeof(Offset) == 4, uint32, uint64>::type"


def read_owned(operands: Operands) -> Generated:
    """How a kernel reads the updates that knows the destination of each."""
    updates = operands.updates
    found = None
    if isinstance(updates, ComputedUpdates):
        found = _owned(operands.problem, updates)
    return read_updates(operands) if found is None else found


def carried_bytes(operands: Operands, vector: int) -> int:
    """Bytes that a list carries of each update for who owns it; 0 if it only says which it is.

    Parameters
    ----------
    vector : int
        The elements of a vector.
    """
    return read_owned(operands).carried if vectors_apart(operands, vector) else 0


def vectors_apart(operands: Operands, vector: int) -> int:
    """How many vectors of an update are read, whoever owns it, before it is computed.

    Parameters
    ----------
    vector : int
        The elements of a vector.

    Returns
    -------
    int
        0 if nobody owns updates, or if an update must be computed as it is read.
    """
    read, updates = read_owned(operands), operands.updates
    if not read.owns or whole_vectors(updates, long_axes(updates)) % vector:
        return 0
    return read.vectors


@lru_cache(maxsize=8)
def _owned(problem: ScatterProblem, updates: ComputedUpdates) -> Generated | None:
    """The same for all launches of a scatter; ``None`` if updates have no rows of their own."""
    owned = OwnedUpdates.of(updates, problem)
    return None if owned is None else _Type(problem, owned).generated()


@dataclass(frozen=True)
class _Source:
    """What is known of a row before it is read.

    Attributes
    ----------
    type : str
        The C++ type that has it; an object of it is called ``found``.
    known : list of (expression, Value)
        Expressions whose values it has.
    numbered : bool
        Whether it has the number of the row, so that everything else can be found.
    """

    type: str
    known: Sequence[tuple[Any, Value]]
    numbered: bool = True

    def preset(self, writer: Writer) -> None:
        """Let a writer find in it what is known."""
        for expression, value in self.known:
            writer.preset(expression, value)


class _Type:
    """Writes the type."""

    def __init__(self, problem: ScatterProblem, owned: OwnedUpdates) -> None:
        self._owned, self._updates = owned, owned.updates
        self._problem = problem
        self._leaves = {f"leaf{at}": leaf for at, leaf in enumerate(self._updates.leaves)}
        self._sizes = {f"size{at}": size for at, size in enumerate(sizes_of(self._updates))}
        self._names = {leaf: name for name, leaf in self._leaves.items()}
        self._names |= {size: name for name, size in self._sizes.items()}
        self._names |= {axis: f"x{at}" for at, axis in enumerate(self._updates.axes)}
        self._multiples: list[tuple[str, int]] = []
        self._whole = whole_vectors(self._updates, long_axes(self._updates))
        #: The fields of an update whose logit is not complete; none if updates are complete.
        self._row: list[str] = []
        #: The vectors of an update that are read before anything is computed; 0 if there are none.
        self._read_first = 0
        self._carried = 0

    def generated(self) -> Generated:
        """The type, and what an object of it is made of."""
        ahead, find = self._ahead()
        held, own = self._held()
        found = _Source("Found<Offset>", _numbered(ahead, "found.ahead"))
        members = own + self._element(found, held) + self._apart(found, held)
        members += self._carrying(held)
        body = self._frame(ahead, find) + members
        name = "OwnedUpdates_" + hashlib.sha256(body.encode()).hexdigest()[:12]
        text = f"#ifndef {name}_DEFINED\n#define {name}_DEFINED\nstruct {name} {{\n{body}}};\n"
        fields = [
            f"static_cast<const {stored_type(str(leaf.dtype))}*>({each}_pointer)"
            for each, leaf in self._leaves.items()
        ]
        headers = ("computed",) if self._updates.logit is None else ("computed", "softmax")
        return Generated(
            name,
            text + "#endif\n",
            headers,
            self._leaves,
            self._sizes,
            (*fields, *self._sizes),
            self._read_first,
            owns=True,
            carried=self._carried,
        )

    @property
    def _column(self) -> Any:
        """The axis along which the elements of a vector are neighbours."""
        long = long_axes(self._updates)
        return self._updates.axes[long[-1]] if long else None

    def _ahead(self) -> tuple[list[tuple[Any, Value]], list[str]]:
        """What is read for a whole row before the row, and statements that read it."""
        rows = set(self._updates.axes[: self._owned.rows])
        writer, found = Writer(self._names, leaves=self._updates.known), []
        for load in read_ahead(self._problem, self._updates, long_axes(self._updates)):
            if rows & set(tirx.analysis.undefined_vars(load)):
                found.append((load, writer.value(load)))
        return found, [*self._row_coordinates("row"), *writer.lines] if found else []

    def _held(self) -> tuple[list[tuple[Any, Value]], str]:
        """What is held for a destination, and the members that read it."""
        writer = self._writer("destination")
        parts = self._owned.parts()[:_MOST_HELD]
        held = [(part, writer.value(part)) for part in parts]
        self._multiples += writer.multiples
        fields = [f"{declared_in_struct(each)} part{at};" for at, (_, each) in enumerate(held)]
        made = ", ".join(["destination", *(each.name for _, each in held)])
        lines = [
            "const long long destination = place;",
            "(void)destination;",
            *self._column_coordinates(),
            *writer.lines,
            f"return Own<count>{{{made}}};",
        ]
        return (
            held,
            f"""  // What is the same for all updates of a destination, in some columns.
  template <int count>
  struct Own {{
    long long destination;
{_indented(fields)}
  }};
  template <int count, bool whole, class Offset>
  __device__ __forceinline__ Own<count> own(long long place, Offset column) const {{
    using namespace tvm_scatter;
    if constexpr ({self._whole} % count == 0) {{
{_indented(lines, 6)}
    }} else {{
      Own<count> single;
      single.destination = place;
      return single;
    }}
  }}
""",
        )

    def _element(self, found: _Source, held: Sequence[tuple[Any, Value]]) -> str:
        """The members that compute elements of an update."""
        writer = self._writer("own.destination", rows=found.numbered)
        _preset(writer, held, "own.part")
        found.preset(writer)
        lines, complete = self._computing(writer, "found.row" if found.numbered else None)
        # Whatever the row is found by, the update is completed in the same way.
        complete = complete if found.numbered else ""
        return f"""  // Neighbours along the last axis.
  template <int count, bool whole, class Offset>
  __device__ __forceinline__ Row<count> line(const {found.type}& found, Offset column,
                                             const Own<count>& own) const {{
    using namespace tvm_scatter;
    (void)own;
{_indented(lines)}
  }}
  template <int count, bool whole, class Offset>
  __device__ __forceinline__ Row<count> owned(const {found.type}& found, Offset column,
                                              const Own<count>& own) const {{
    if constexpr ({self._whole} % count == 0) {{
      return line<count, whole>(found, column, own);
    }} else {{
      Row<count> result;
#pragma unroll
      for (int i = 0; i < count; ++i) {{
        const Offset at = static_cast<Offset>(column + i);
        const auto single = this->template own<1, whole>(own.destination, at);
        result.at[i] = line<1, whole>(found, at, single).at[0];
      }}
      return result;
    }}
  }}
{complete}"""

    def _computing(self, writer: Writer, row: str | None) -> tuple[list[str], str]:
        """Statements that compute and return elements of an update, and what completes them.

        Parameters
        ----------
        row : str or None
            The number of the row in C++; ``None`` if nothing depends on it.
        """
        result, complete = writer.value(self._updates.value), ""
        if self._updates.term is not None:
            last, complete = self._summed(writer)
        elif self._updates.logit is not None:
            logit = writer.value(self._updates.logit)
            # These elements have one logit, that of the first.
            last = ["constexpr int i = 0;", "(void)i;"]
            last.append(f"return SoftmaxUpdate<Data, count>{{{logit.wide}, result}};")
        else:
            last = ["return result;"]
        self._multiples += writer.multiples
        lines = [
            *([] if row is None else self._row_coordinates(row)),
            *self._column_coordinates(),
            *writer.lines,
            *result_of(result),
            *last,
        ]
        return lines, complete

    def _apart(self, found: _Source, held: Sequence[tuple[Any, Value]]) -> str:
        """Members that read an update, and others that compute it then, if that is possible."""
        updates = self._updates
        reader = self._writer("", prefix="r", rows=found.numbered)
        writer = self._writer("own.destination", rows=found.numbered)
        found.preset(reader)
        _preset(writer, held, "own.part")
        unknown = frozenset([updates.destination]) - {None}
        known = [part for part, _ in held]
        if updates.sum is not None:
            known.append(updates.sum)
        first = read_first(updates.expressions, self._column, reader, writer, known, unknown)
        possible = ""
        if found.numbered:
            possible = "  template <int count>\n  static constexpr bool reads_first = "
            possible += f"{self._whole} % count == 0;\n" if first else "false;\n"
            self._read_first = first.vectors if first else 0
        if first is None:
            return possible
        self._multiples += reader.multiples
        fetch = [*self._column_coordinates(), *reader.lines]
        read, of, row = "CarriedRead<count>", "int count", []
        if found.numbered:
            read, of, row = "Read<count, Offset>", "int count, class Offset", ["Offset row;"]
            fetch = [*self._row_coordinates("found.row"), *fetch]
        made = [*(["found.row"] if row else []), *first.values]
        compute, _ = self._computing(writer, "read.row" if found.numbered else None)
        return f"""  // What is read of an update, whatever its destination is.
{possible}  template <{of}>
  struct {read.partition("<")[0]} {{
{_indented([*row, *first.fields])}
  }};
  template <int count, bool whole, class Offset>
  __device__ __forceinline__ {read} fetch(const {found.type}& found, Offset column) const {{
    using namespace tvm_scatter;
{_indented(fetch)}
    return {read}{{{", ".join(made)}}};
  }}
  template <int count, class Offset>
  __device__ __forceinline__ Row<count> computed(const {read}& read, Offset column,
                                                 const Own<count>& own) const {{
    using namespace tvm_scatter;
    (void)own;
{_indented(compute)}
  }}
"""

    def _carrying(self, held: Sequence[tuple[Any, Value]]) -> str:
        """Members for lists that carry what is the same for all elements of a row."""
        found = self._found_carried()
        if found is not None:
            source = _Source("Carried", found.known("found.part"), numbered=False)
            multiples = [*self._multiples]
            try:
                members = self._element(source, held) + self._apart(source, held)
            except NameOfNoneError:
                # Something is computed element by element, which needs the coordinates of the row.
                self._multiples = multiples
            else:
                self._carried = found.bytes
                return self._listed(found) + members
        return "  struct Carried {};\n"

    def _found_carried(self) -> Carried | None:
        if not self._read_first:
            return None
        return carried(self._owned, self._writer("", prefix="c"))

    def _listed(self, found: Carried) -> str:
        """What a list carries of a row, and the member that reads it."""
        fields = [f"{each.type} part{at};" for at, each in enumerate(found.values)]
        made = ", ".join(each.name for each in found.values)
        return f"""  // What is the same for all elements of a row.
  struct alignas({found.bytes}) Carried {{
{_indented(fields)}
  }};
  template <class Offset>
  __device__ __forceinline__ Carried carried(Offset row) const {{
    using namespace tvm_scatter;
{_indented([*self._row_coordinates("row"), *found.lines])}
    return Carried{{{made}}};
  }}
"""

    def _summed(self, writer: Writer) -> tuple[list[str], str]:
        """Statements that return an update with a part of a sum, and what completes it."""
        logit, total = self._updates.logit, self._updates.sum
        dtype = str(total.ty.dtype)
        kind = computed_type(dtype)
        last = [f"{kind} part = 0;", "#pragma unroll"]
        last.append(f"for (int i = 0; i < count; ++i) {_added(writer, self._updates.term)}")
        found = Writer(self._names | {total: "sum"}, prefix="s", leaves=self._updates.known)
        fields: list[str] = []
        values: list[str] = []
        for expression in parts_without(logit, total):
            value = writer.value(expression)
            name = f"more{len(values)}"
            fields.append(f"{value.type} {name};")
            values.append(value.element)
            found.preset(expression, replace(value, name=f"row.{name}", varies=False))
        result = found.value(logit)
        last += ["constexpr int i = 0;", "(void)i;"]
        last.append(f"return Row<count>{{{', '.join(['part', *values, 'result'])}}};")
        self._row = [f"{kind} part;", *fields, "tvm_scatter::Vector<Data, count> result;"]
        total_text = f"rounded<{stored_type(dtype)}>(all)" if is_half(dtype) else "all"
        lines = [
            f"const {kind} sum = {total_text};",
            *found.lines,
            f"return SoftmaxUpdate<Data, count>{{{result.wide}, row.result}};",
        ]
        return (
            last,
            f"""  // The update, given the sum of all parts that belong to its logit.
  template <int count>
  __device__ __forceinline__ auto complete(const Row<count>& row, {kind} all) const {{
    using namespace tvm_scatter;
{_indented(lines)}
  }}
""",
        )

    def _frame(self, ahead: Sequence[tuple[Any, Value]], find: Sequence[str]) -> str:
        """What comes in front of the members that compute."""
        fields = [
            f"const {stored_type(str(leaf.dtype))}* {name};" for name, leaf in self._leaves.items()
        ]
        fields += [f"long long {name};" for name in self._sizes]
        kept = ["Offset row;", *(f"{each.type} ahead{at};" for at, (_, each) in enumerate(ahead))]
        made = ", ".join(["row", *(each.name for _, each in ahead)])
        columns, row = 0, "using Row = tvm_scatter::Vector<Data, count>;"
        if self._updates.logit is not None:
            row = "using Row = tvm_scatter::SoftmaxUpdate<Data, count>;"
        if self._row:
            row = f"struct Row {{\n{_indented(self._row)}\n  }};"
            count = Sizes.of(self._problem, self._updates.symbols).count
            columns = WeightedRows(self._updates, count).columns
        conditions = " && ".join(alignment(self._leaves, self._multiples)) or "true"
        return f"""  using Data = {data_type(self._problem)};
  static constexpr bool finds = true;
  static constexpr bool owns = true;
  // The columns that have one logit, if that is a sum along them.
  static constexpr int summed_columns = {columns};
{_indented(fields, 2)}
  template <int count>
  {row}
  // A row, and what is read for all of it.
  template <class Offset>
  struct Found {{
{_indented(kept)}
  }};
  template <int count>
  __device__ __forceinline__ bool aligned() const {{
    return {conditions};
  }}
  template <class Offset>
  __device__ __forceinline__ Found<Offset> find(Offset row) const {{
    using namespace tvm_scatter;
{_indented(find)}
    return Found<Offset>{{{made}}};
  }}
"""

    def _writer(self, destination: str, prefix: str = "t", rows: bool = True) -> Writer:
        names = self._names
        if self._updates.destination is not None:
            names = names | {self._updates.destination: destination}
        if not rows:
            of_rows = {*self._updates.axes[: self._owned.rows]}
            names = {each: name for each, name in names.items() if each not in of_rows}
        known = self._updates.known
        return Writer(names, self._column, prefix, splits=True, leaves=known)

    def _row_coordinates(self, row: str) -> list[str]:
        """Statements that find the coordinates of a row of updates."""
        start = f"{row} / static_cast<Offset>({self._owned.width})"
        return self._coordinates("entry", start, range(self._owned.rows))

    def _column_coordinates(self) -> list[str]:
        """Statements that find those of a column."""
        axes = range(self._owned.rows, len(self._updates.axes))
        return self._coordinates("rest", "column", axes)

    def _coordinates(self, left: str, start: str, axes: Sequence[int]) -> list[str]:
        lines = [f"{_UNSIGNED} {left} = static_cast<{_UNSIGNED}>({start});", f"(void){left};"]
        long = [at for at in axes if at in long_axes(self._updates)]
        for at in reversed(axes):
            kind = stored_type(str(self._updates.axes[at].ty.dtype))
            if at not in long:
                place = "0"
            elif at == long[0]:
                place = left
            else:
                size = self._updates.shape[at]
                name = size if isinstance(size, int) else self._names[size]
                place = f"{left} % static_cast<{_UNSIGNED}>({name})"
            lines += [f"const {kind} x{at} = static_cast<{kind}>({place});", f"(void)x{at};"]
            if at in long[1:]:
                lines.append(f"{left} /= static_cast<{_UNSIGNED}>({name});")
        return lines


def _numbered(known: Sequence[tuple[Any, Value]], name: str) -> list[tuple[Any, Value]]:
    """The same expressions, whose values have a name each with a number behind it."""
    return [(each, replace(value, name=f"{name}{at}")) for at, (each, value) in enumerate(known)]


def _preset(writer: Writer, known: Sequence[tuple[Any, Value]], name: str) -> None:
    """Let expressions be numbered values that are known by a name."""
    for expression, value in _numbered(known, name):
        writer.preset(expression, value)


def _added(writer: Writer, term: Any) -> str:
    """A statement that adds the i-th of some terms."""
    dtype = str(term.ty.dtype)
    if isinstance(term, tirx.Mul) and not is_half(dtype):
        # Rounded once, as where a compiler joins a product with a sum.
        factors = ", ".join(writer.wide(writer.value(each)) for each in (term.a, term.b))
        return f"part = {'fma' if dtype == 'float64' else 'fmaf'}({factors}, part);"
    return f"part += {writer.wide(writer.value(term))};"


def _indented(lines: Sequence[str], spaces: int = 4) -> str:
    return "\n".join(" " * spaces + line for line in lines)
