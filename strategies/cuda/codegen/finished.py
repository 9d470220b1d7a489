"""The C++ type of an output: it is written to like ``StoredOutput``, and computes what follows."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from tvm_scatter.emit.computed_result import ComputedResult
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem

from .computed import Generated, alignment, coordinates_of, long_axes, sizes_of, whole_vectors
from .expression import Value, Writer, is_half, result_of, stored_type
from .source import c_type, data_type

_STORED = Generated(
    "tvm_scatter::StoredOutput<Data>", "", (), {}, {}, ("static_cast<Data*>(out_pointer)",)
)


def written_output(operands: Operands, finishes: bool) -> Generated:
    """How a kernel writes the output.

    Parameters
    ----------
    finishes : bool
        Whether the kernel writes the result. Another one may hold anything there.
    """
    if operands.result is None or not finishes:
        return _STORED
    return _finished(operands.problem, operands.result)


@lru_cache(maxsize=8)
def _finished(problem: ScatterProblem, result: ComputedResult) -> Generated:
    """The same for all launches of a scatter."""
    others = {f"other{at}": leaf for at, leaf in enumerate(result.leaves)}
    sizes = {f"length{at}": size for at, size in enumerate(sizes_of(result))}
    body = _body(problem, result, others, sizes)
    name = "FinishedOutput_" + hashlib.sha256(body.encode()).hexdigest()[:12]
    text = f"#ifndef {name}_DEFINED\n#define {name}_DEFINED\nstruct {name} {{\n{body}}};\n#endif\n"
    fields = [f"static_cast<{stored_type(result.dtype)}*>(out_pointer)"]
    fields += [
        f"static_cast<const {stored_type(str(leaf.dtype))}*>({each}_pointer)"
        for each, leaf in others.items()
    ]
    return Generated(name, text, ("computed",), others, sizes, (*fields, *sizes))


def _body(
    problem: ScatterProblem,
    result: ComputedResult,
    others: dict[str, Any],
    sizes: dict[str, Any],
) -> str:
    names = {leaf: name for name, leaf in others.items()}
    names |= {size: name for name, size in sizes.items()}
    names |= {axis: f"x{at}" for at, axis in enumerate(result.axes)}
    long = long_axes(result)
    writer = Writer(names, result.axes[long[-1]] if long else None)
    # A result of one element has no neighbours along any axis.
    name = "own" if long else "own.at[0]"
    own = Value(name, problem.data_dtype, bool(long), is_half(problem.data_dtype))
    for load in result.own_loads:
        writer.preset(load, own)
    value = writer.value(result.value)
    kind = stored_type(result.dtype)
    statements = [*coordinates_of(result, long, names), *writer.lines, *result_of(value, kind)]
    lines = "\n".join(f"    {line}" for line in statements)
    fields = [f"  {kind}* first;"]
    fields += [f"  const {stored_type(str(leaf.dtype))}* {each};" for each, leaf in others.items()]
    fields += [f"  long long {size};" for size in sizes]
    conditions = [
        f"tvm_scatter::aligned<{kind}, count>(first)",
        *alignment(others, writer.multiples),
    ]
    declared = "\n".join(fields)
    return f"""  using Data = {data_type(problem)};
  template <int count>
  using Row = tvm_scatter::Vector<Data, count>;
  static constexpr bool finishes = true;
{declared}
  template <int count>
  __device__ __forceinline__ bool aligned() const {{
    return {" && ".join(conditions)};
  }}
  template <int count>
  __device__ __forceinline__ bool aligned_at(long long at) const {{
    return at % count == 0 && aligned<count>();
  }}
  __device__ __forceinline__ bool holds(const Data*) const {{ return false; }}
  template <class Offset, int count>
  __device__ __forceinline__ void store(long long at, const Row<count>& value) const {{
    if constexpr ({whole_vectors(result, long)} % count == 0) {{
      line<Offset, count>(at, value);
    }} else {{
#pragma unroll
      for (int i = 0; i < count; ++i) line<Offset, 1>(at + i, Row<1>{{{{value.at[i]}}}});
    }}
  }}
  // Neighbours along the last axis.
  template <class Offset, int count>
  __device__ __forceinline__ void line(long long at, const Row<count>& value) const {{
    using namespace tvm_scatter;
    const auto own = bit_cast<Vector<{c_type(problem.data_dtype)}, count>>(value);
    const Offset row = static_cast<Offset>(at);
    constexpr Offset column = 0;
    (void)own, (void)row, (void)column;
{lines}
    tvm_scatter::store<{kind}, count>(first + at, result);
  }}
"""
