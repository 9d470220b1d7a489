"""What computed updates have in common where several lines share one index, once for each entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import (
    BRANCH,
    ComputedUpdates,
    function_name,
    loads_of,
    parts_of,
)
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .expression import Value, Writer, is_half

#: The most bytes of an entry's parts: they take registers for each entry of a thread.
_MOST_BYTES = 8


def entry_members(
    problem: ScatterProblem,
    updates: ComputedUpdates,
    long: list[int],
    names: dict[Any, str],
    coordinates: list[str],
) -> str:
    """Members of the C++ type of updates that compute an element in two steps.

    ``entry`` computes what depends on the entry of the index alone, and ``at_entry`` the element.

    Parameters
    ----------
    long : list of int
        The axes of more than one element.
    names : dict
        The C++ names of coordinates, sizes and leaves.
    coordinates : list of str
        Statements that find the coordinates of the element at ``row + column``.
    """
    finder, writer = (Writer(names, leaves=updates.known) for _ in range(2))
    parts: list[Value] = []
    for part in _parts_of_entries(problem, updates, long):
        found = finder.value(part)
        if sum(map(_bytes, [*parts, found])) <= _MOST_BYTES:
            writer.preset(part, replace(found, name=f"entry.part{len(parts)}"))
            parts.append(found)
    result = writer.value(updates.value)
    narrow = result.narrow
    if result.dtype == "bool":
        narrow = f"static_cast<unsigned char>({narrow})"
    start = ["using namespace tvm_scatter;", "constexpr Offset column = 0;", *coordinates]
    made = f"return Entry{{{', '.join(part.name for part in parts)}}};"
    find = [*start, *finder.lines, made] if parts else ["return Entry{};"]
    compute = [*start, "(void)entry;", *writer.lines, f"return bit_cast<Data>({narrow});"]
    fields = "".join(f"    {part.type} part{at};\n" for at, part in enumerate(parts))
    body, found_body = ("\n".join(f"    {line}" for line in each) for each in (compute, find))
    return f"""  // What is the same for an entry of the index in all lines.
  struct Entry {{
{fields}  }};
  template <class Offset>
  __device__ __forceinline__ Entry entry(Offset row) const {{
{found_body}
  }}
  template <class Offset>
  __device__ __forceinline__ Data at_entry(const Entry& entry, Offset row) const {{
{body}
  }}
"""


def _bytes(value: Value) -> int:
    return 4 if is_half(value.dtype) and not value.stored else item_bytes(value.dtype)


def _parts_of_entries(
    problem: ScatterProblem, updates: ComputedUpdates, long: list[int]
) -> list[Any]:
    """The largest parts of an element that read memory and depend on its entry alone."""
    entries = _entry_axes(problem, updates, long)
    found: list[Any] = []
    for part in _parts(updates.value, set(updates.axes), entries):
        if not any(tvm_ffi.structural_equal(part, other) for other in found):
            found.append(part)
    return found


def _entry_axes(problem: ScatterProblem, updates: ComputedUpdates, long: list[int]) -> set[Any]:
    """The axes along which entries of the index differ; none if others share an axis with them."""
    if not problem.update_count:
        return set()
    end = _begin(problem.slice if problem.update_slice else SymbolicSize(), updates, long)
    begin = None if end is None else _begin(problem.count, updates, long[:end])
    return set() if begin is None else {updates.axes[at] for at in long[begin:end]}


def _begin(size: SymbolicSize, updates: ComputedUpdates, long: list[int]) -> int | None:
    """How many axes come before the last ones of so many elements; ``None`` if none make it up."""
    found, begin = SymbolicSize(), len(long)
    while found != size and begin > 0:
        begin -= 1
        found = SymbolicSize.product([updates.dims[long[begin]]]) * found
    return begin if found == size else None


def _parts(expression: Any, axes: set[Any], entries: set[Any]) -> Iterator[Any]:
    """The largest parts over entries alone that read memory and that no branch guards."""
    depends = axes & set(tirx.analysis.undefined_vars(expression))
    if depends and depends <= entries and any(True for _ in loads_of(expression)):
        yield expression
        return
    inner = parts_of(expression)
    is_branch = isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH
    for each in inner[:1] if is_branch else inner:
        yield from _parts(each, axes, entries)
