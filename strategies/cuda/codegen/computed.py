"""The C++ type of computed updates: it is read like ``StoredUpdates`` and computes each element."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import ComputedUpdates, unguarded_loads
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .entry_parts import entry_members
from .expression import Value, Writer, result_of, stored_type
from .read_first import ReadFirst, read_first
from .source import data_type

#: The most values that are read ahead: they take registers for each row that is in flight.
_MOST_AHEAD = 4


@dataclass(frozen=True)
class Generated:
    """A type that is written for an operand of a scatter, and what an object of it is made of.

    Attributes
    ----------
    type : str
        Its name in C++.
    text : str
        The text that defines it.
    headers : tuple of str
        The device headers that the text needs.
    tensors : dict of str to buffer
        The buffers that a kernel gets, by name.
    sizes : dict of str to expression
        The numbers that it gets.
    fields : tuple of str
        C++ expressions of the fields, of the pointers ``NAME_pointer`` and of the sizes.
    vectors : int
        How many vectors of a row are read before it is computed; 0 if there are none apart.
    owns : bool
        Whether what is the same for all updates of a destination is apart.
    carried : int
        Bytes that a list can carry of each update; 0 if it can only say which it is.
    """

    type: str
    text: str
    headers: tuple[str, ...]
    tensors: dict[str, Any]
    sizes: dict[str, Any]
    fields: tuple[str, ...]
    vectors: int = 0
    owns: bool = False
    carried: int = 0


def read_updates(operands: Operands) -> Generated:
    """How a kernel reads the updates."""
    updates = operands.updates
    if not isinstance(updates, ComputedUpdates):
        return Generated(
            "tvm_scatter::StoredUpdates<Data>",
            "",
            (),
            {"updates": updates},
            {},
            ("static_cast<const Data*>(updates_pointer)",),
        )
    return _computed(operands.problem, updates)


@lru_cache(maxsize=8)
def _computed(problem: ScatterProblem, updates: ComputedUpdates) -> Generated:
    """The same for all launches of a scatter."""
    leaves = {f"leaf{at}": leaf for at, leaf in enumerate(updates.leaves)}
    sizes = {f"size{at}": size for at, size in enumerate(sizes_of(updates))}
    name, text, vectors = _struct(problem, updates, leaves, sizes)
    fields = [
        f"static_cast<const {stored_type(str(leaf.dtype))}*>({each}_pointer)"
        for each, leaf in leaves.items()
    ]
    headers = ("computed",) if updates.logit is None else ("computed", "softmax")
    return Generated(name, text, headers, leaves, sizes, (*fields, *sizes), vectors)


def sizes_of(updates: ComputedUpdates) -> list[Any]:
    """The symbolic sizes that the updates depend on."""
    others = {*updates.axes, updates.destination, updates.sum}
    found: dict[Any, None] = {}

    def add(var: Any) -> None:
        if var not in others and tvm.ir.is_prim_expr(var):
            found[var] = None

    sizes = [size for size in updates.shape if not isinstance(size, int)]
    for expression in (*updates.expressions, *sizes):
        tvm_ffi.structural_walk(expression, (tvm.ir.Var, add))
    return list(found)


def _struct(
    problem: ScatterProblem,
    updates: ComputedUpdates,
    leaves: dict[str, Any],
    sizes: dict[str, Any],
) -> tuple[str, str, int]:
    names = {leaf: name for name, leaf in leaves.items()}
    names |= {size: name for name, size in sizes.items()}
    long = long_axes(updates)
    names |= {axis: f"x{at}" for at, axis in enumerate(updates.axes)}
    ahead: list[Value] = []
    column = updates.axes[long[-1]] if long else None
    known = updates.known
    finder, reader = Writer(names, leaves=known), Writer(names, column, "r", leaves=known)
    writer, at_once = (Writer(names, column, leaves=known) for _ in range(2))
    for at, load in enumerate(read_ahead(problem, updates, long)):
        value = finder.value(load)
        ahead.append(value)
        for each in (reader, at_once):
            each.preset(load, replace(value, name=f"found.ahead{at}"))
    first = read_first(updates.expressions, column, reader, writer)
    if first is None:
        writer = at_once
    result = writer.value(updates.value)
    logit = None if updates.logit is None else writer.value(updates.logit)
    coordinates = coordinates_of(updates, long, names)
    find = [*coordinates, *finder.lines] if ahead else []
    find.append(f"return Found<Offset>{{{', '.join(['row', *(each.name for each in ahead)])}}};")
    begin = ["const Offset row = found.row;", *coordinates]
    lines = [*writer.lines, *result_of(result)]
    if logit is None:
        row = "Vector<Data, count>"
        lines.append("return result;")
    else:
        # These elements have one logit, that of the first.
        row = "SoftmaxUpdate<Data, count>"
        lines += ["constexpr int i = 0;", "(void)i;", f"return {row}{{{logit.wide}, result}};"]
    whole = whole_vectors(updates, long)
    fields = [f"{each.type} ahead{at};" for at, each in enumerate(ahead)]
    data = data_type(problem)
    multiples = writer.multiples + reader.multiples
    body = _text(data, row, leaves, sizes, multiples, whole, fields, find)
    body += _line(whole, begin, first, lines)
    if problem.shares_index:
        body += entry_members(problem, updates, long, names, coordinates)
    name = "ComputedUpdates_" + hashlib.sha256(body.encode()).hexdigest()[:12]
    text = f"#ifndef {name}_DEFINED\n#define {name}_DEFINED\nstruct {name} {{\n{body}}};\n#endif\n"
    return name, text, 0 if first is None else first.vectors


def long_axes(updates: ComputedUpdates) -> list[int]:
    """The axes of more than one element. Vectors do not cross what is along the others."""
    return [
        at for at, size in enumerate(updates.shape) if not (isinstance(size, int) and size == 1)
    ]


def whole_vectors(updates: ComputedUpdates, long: list[int]) -> int:
    """The number that the elements of a vector divide if they are neighbours along an axis."""
    # Along the only axis every vector is whole; else only if it divides the last axis.
    last = updates.dims[long[-1]] if len(long) > 1 else 16
    return last if isinstance(last, int) else 1


def alignment(leaves: dict[str, Any], multiples: list[tuple[str, int]]) -> list[str]:
    """The C++ conditions under which leaves are read as vectors of ``count`` elements."""
    return [
        f"({multiple} % count != 0 || tvm_scatter::aligned<{stored_type(str(leaves[leaf].dtype))}, "
        f"count>({leaf}))"
        for leaf, multiple in dict.fromkeys(multiples)
    ]


def read_ahead(problem: ScatterProblem, updates: ComputedUpdates, long: list[int]) -> list[Any]:
    """The loads that are the same for a whole row of the problem, and that no branch guards.

    Indices above all: a kernel reads those of its next rows while these are on their way.
    """
    width, row = SymbolicSize(), len(long)
    while width != problem.width and row > 0:
        row -= 1
        width = SymbolicSize.product([updates.dims[long[row]]]) * width
    if width != problem.width:
        return []
    varying = {updates.axes[at] for at in (*long[row:], *long[-1:])} | {updates.destination}
    found: list[Any] = []
    for load in (load for each in updates.expressions for load in unguarded_loads(each)):
        if varying & set(tirx.analysis.undefined_vars(load)):
            continue
        if not any(tvm_ffi.structural_equal(load, other) for other in found):
            found.append(load)
    return found[:_MOST_AHEAD]


def coordinates_of(updates: ComputedUpdates, long: list[int], names: dict[Any, str]) -> list[str]:
    """Statements that find the coordinates of the element at ``row + column``."""
    unsigned = "typename If<sizeof(Offset) == 4, uint32, uint64>::type"
    lines = [f"{unsigned} left = static_cast<{unsigned}>(row + column);", "(void)left;"]
    for at, axis in reversed(list(enumerate(updates.axes))):
        kind = stored_type(str(axis.ty.dtype))
        coordinate = "0"
        if at in long:
            size = updates.shape[at]
            divisor = f"static_cast<{unsigned}>({size if isinstance(size, int) else names[size]})"
            coordinate = "left" if at == long[0] else f"left % {divisor}"
        lines += [f"const {kind} x{at} = static_cast<{kind}>({coordinate});", f"(void)x{at};"]
        if at in long and at != long[0]:
            lines.append(f"left /= {divisor};")
    return lines


def _text(
    data: str,
    row: str,
    leaves: dict[str, Any],
    sizes: dict[str, Any],
    multiples: list[tuple[str, int]],
    whole: int,
    ahead: list[str],
    find: list[str],
) -> str:
    fields = [f"const {stored_type(str(leaf.dtype))}* {name};" for name, leaf in leaves.items()]
    fields += [f"long long {name};" for name in sizes]
    conditions = alignment(leaves, multiples)
    found = _indented(find)
    declared = "\n".join(f"  {field}" for field in fields)
    kept = "\n".join(f"    {field}" for field in ["Offset row;", *ahead])
    return f"""  using Data = {data};
  template <int count>
  using Row = tvm_scatter::{row};
  static constexpr bool finds = true;
  static constexpr bool owns = false;
  static constexpr int summed_columns = 0;
  template <int count>
  struct Own {{}};
  struct Carried {{}};
{declared}
  // A row, and what is read for all of it.
  template <class Offset>
  struct Found {{
{kept}
  }};
  template <int count>
  __device__ __forceinline__ bool aligned() const {{
    return {" && ".join(conditions) or "true"};
  }}
  template <class Offset>
  __device__ __forceinline__ Found<Offset> find(Offset row) const {{
    using namespace tvm_scatter;
    constexpr Offset column = 0;
    (void)column;
{found}
  }}
  template <class Offset>
  __device__ __forceinline__ Data operator[](Offset at) const {{
    return (*this)[find(at)];
  }}
  template <class Offset>
  __device__ __forceinline__ Data operator[](const Found<Offset>& found) const {{
    return line<1>(found, Offset(0)).at[0];
  }}
  template <int count, class Offset>
  __device__ __forceinline__ Row<count> load(
      Offset row, Offset column = 0) const {{
    return load<count>(find(row), column);
  }}
  template <int count, class Offset>
  __device__ __forceinline__ Row<count> load_once(
      Offset row, Offset column = 0) const {{
    return load<count>(find(row), column);
  }}
  template <int count, class Offset>
  __device__ __forceinline__ Row<count> load_once(
      const Found<Offset>& found, Offset column) const {{
    return load<count>(found, column);
  }}
  template <class Offset>
  __device__ __forceinline__ Data once(Offset at) const {{
    return (*this)[at];
  }}
  // Elements side by side. What is read for a row is not that of the next row.
  template <int count, bool, class Offset>
  __device__ __forceinline__ Row<count> neighbours(Offset at) const {{
    if constexpr ({whole} % count == 0) {{
      return load<count>(at);
    }} else {{
      Row<count> result;
#pragma unroll
      for (int i = 0; i < count; ++i) result.at[i] = (*this)[static_cast<Offset>(at + i)];
      return result;
    }}
  }}
  template <int count, class Offset>
  __device__ __forceinline__ Row<count> load(
      const Found<Offset>& found, Offset column) const {{
    if constexpr ({whole} % count == 0) {{
      return line<count>(found, column);
    }} else {{
      Row<count> result;
#pragma unroll
      for (int i = 0; i < count; ++i)
        result.at[i] = line<1>(found, static_cast<Offset>(column + i)).at[0];
      return result;
    }}
  }}
"""


def _line(whole: int, begin: list[str], first: ReadFirst | None, compute: list[str]) -> str:
    """The members that compute neighbours along the last axis.

    Parameters
    ----------
    whole : int
        The number that the elements of a vector divide if they are such neighbours.
    begin : list of str
        Statements in front of those that read and of those that compute.
    first : ReadFirst or None
        What is read first; ``None`` if it is read where it is computed with.
    """
    if first is None:
        return f"""  template <int count, class Offset>
  __device__ __forceinline__ Row<count> fetch(const Found<Offset>& found, Offset column) const {{
    return load<count>(found, column);
  }}
  template <int count, class Read, class Offset>
  __device__ __forceinline__ const Read& computed(const Read& read, Offset) const {{
    return read;
  }}
  // Neighbours along the last axis.
  template <int count, class Offset>
  __device__ __forceinline__ Row<count> line(const Found<Offset>& found, Offset column) const {{
    using namespace tvm_scatter;
{_indented([*begin, *compute])}
  }}
"""
    made = ", ".join(["found.row", *first.values])
    fetch = [*begin, *first.lines, f"return Read<count, Offset>{{{made}}};"]
    return f"""  // What is read of neighbours along the last axis.
  template <int count, class Offset>
  struct Read {{
    Offset row;
{_indented(first.fields)}
  }};
  template <int count, class Offset>
  __device__ __forceinline__ auto fetch(const Found<Offset>& found, Offset column) const {{
    using namespace tvm_scatter;
    if constexpr ({whole} % count == 0) {{
{_indented(fetch, 6)}
    }} else {{
      return load<count>(found, column);
    }}
  }}
  // These neighbours, given what was read of them.
  template <int count, class Offset>
  __device__ __forceinline__ Row<count> computed(const Read<count, Offset>& read,
                                                 Offset column) const {{
    using namespace tvm_scatter;
{_indented([begin[0].replace("found", "read"), *begin[1:], *compute])}
  }}
  template <int count, class Offset>
  __device__ __forceinline__ const Row<count>& computed(const Row<count>& row, Offset) const {{
    return row;
  }}
  template <int count, class Offset>
  __device__ __forceinline__ Row<count> line(const Found<Offset>& found, Offset column) const {{
    return computed<count>(fetch<count>(found, column), column);
  }}
"""


def _indented(lines: list[str], spaces: int = 4) -> str:
    return "\n".join(" " * spaces + line for line in lines)
