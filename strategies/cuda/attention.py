"""Attention on the GPU: queries in registers, keys and values that pass by in shared memory.

A block has 64 queries. Of no more than one warp can have, such as those of a step of a decoder,
several blocks take a part of the keys each, and another launch puts together what they found
("Flash-Decoding", T. Dao, D. Haziza, F. Massa and G. Sizov, 2023). Heads that share their keys are
then computed together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.attention import Attention, AttentionProblem, AttentionSizes
from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.problem.sizes import at_least, at_most, ceil_div, round_up

from .codegen.constants import device_constant
from .codegen.expression import Value, Writer, stored_type
from .codegen.launch import run_routine
from .codegen.source import c_type, routine
from .codegen.target import dynamic_bytes

_HEADERS = ("attention", "computed")
_FRAGMENT = device_constant("attention", "kFragment")
_WARPS = device_constant("attention", "kAttentionWarps")
_EIGHT = device_constant("attention", "kEight")
_WARP = device_constant("common", "kWarp")
#: The most elements of a key or a value, and of those of which a block has more keys at a time.
_WIDEST, _WIDE, _NARROW = 256, 128, 64
_MANY_KEYS, _FEW_KEYS = 64, 32
#: The last coordinate of a score, in C++.
_OWN = "at_head"
#: Keys and values are read while others are multiplied.
_STAGES = 2


def _refusal(depth: int, width: int) -> str | None:
    for size in (depth, width):
        if size % _EIGHT or not 0 < size <= _WIDEST:
            return f"heads of {size} elements are no multiple of {_EIGHT} up to {_WIDEST}"
    return None


#: As many blocks as keep a large GPU busy, and the fewest keys that are worth a block.
_BUSY, _LEAST_KEYS = 264, 256


def _keys(sizes: AttentionSizes) -> int:
    """The keys of a tile."""
    return _MANY_KEYS if max(sizes.depth, sizes.width) <= _WIDE else _FEW_KEYS


def _together(sizes: AttentionSizes) -> int:
    """The blocks that a multiprocessor has room for in its registers."""
    return max(_WIDE // max(sizes.depth, sizes.width, _NARROW) + 1, 1)


@dataclass(frozen=True)
class _Parts:
    """How few queries are shared among blocks.

    Attributes
    ----------
    heads : int
        The heads that are computed together.
    outer : int or expression
        How many of these there are.
    count : int or expression
        The parts of their keys.
    numbers : int
        What is known of a part.
    """

    heads: int
    outer: Any
    count: Any
    numbers: int

    @staticmethod
    def of(sizes: AttentionSizes) -> _Parts | None:
        """``None`` where a block takes all keys."""
        queries = sizes.queries
        if not isinstance(queries, int) or queries > _FRAGMENT or _keys(sizes) == _FEW_KEYS:
            return None
        heads = sizes.shared if sizes.shared * queries <= _FRAGMENT else 1
        outer = prod(sizes.outer[:-1]) if heads > 1 else prod(sizes.outer)
        if heads > 1:
            outer = outer * (sizes.outer[-1] // heads)
        wanted = ceil_div(_BUSY, at_least(outer, 1))
        count = at_least(at_most(wanted, ceil_div(sizes.keys, _LEAST_KEYS)), 1)
        if isinstance(count, int) and count == 1:
            return None
        return _Parts(heads, outer, count, heads * queries * (sizes.width + 2))


def _workspace(sizes: AttentionSizes) -> Any:
    parts = _Parts.of(sizes)
    return 0 if parts is None else parts.outer * parts.count * parts.numbers


def _emit(problem: AttentionProblem, workspace: Any) -> None:
    sizes = problem.sizes
    parts = _Parts.of(sizes)
    source = _Source(problem, 1 if parts is None else parts.heads, workspace)
    struct = source.struct()
    strides = (round_up(size, _FRAGMENT) + _EIGHT for size in (sizes.depth, sizes.width))
    tiles = 2 * _STAGES * _keys(sizes) * sum(strides)
    if parts is None:
        blocks = ceil_div(sizes.queries, _WARPS * _FRAGMENT) * prod(sizes.outer)
        _launch(source, struct, source.of_tile(struct[0]), blocks, tiles)
        return
    of_warps = 4 * _WARPS * _FRAGMENT * (sizes.width + 2)
    body = source.of_part(struct[0], parts.count, parts.numbers)
    _launch(source, struct, body, parts.outer * parts.count, max(tiles, of_warps))
    body = source.of_parts(struct[0], parts.count, parts.numbers)
    _launch(source, struct, body, parts.outer, 4 * _FRAGMENT)


def _launch(source: _Source, struct: tuple[str, str], body: str, blocks: Any, shared: int) -> None:
    parameters = [*source.parameters, "void* shared"]
    name, code = routine(_HEADERS, struct[1:], parameters, body)
    shared = dynamic_bytes(shared, 0)
    together = _together(source.problem.sizes)
    run_routine(name, code, source.values, blocks, _WARPS * _WARP, shared, together=together)


class _Source:
    """The C++ for a problem."""

    def __init__(self, problem: AttentionProblem, heads: int, workspace: Any) -> None:
        self.problem, self.heads, self.workspace = problem, heads, workspace
        own = (problem.product, problem.query_at, problem.key_at)
        self.axes = {axis: f"x{at}" for at, axis in enumerate(problem.axes)}
        expressions = [*_expressions(problem)]
        self.tensors = _numbered("tensor", self._tensors(expressions))
        found = (var for each in expressions for var in all_of(each, tvm.ir.Var))
        known = {*own, *self.axes, *self.tensors}
        sizes = (each for each in found if tvm.ir.is_prim_expr(each) and each not in known)
        self.sizes = _numbered("size", sizes)
        self.names = {**self.axes, **self.tensors, **self.sizes}
        for var, name in zip(own, ("own", "query", "key"), strict=True):
            self.names[var] = name

    def _tensors(self, expressions: list[Any]) -> Iterator[Any]:
        problem = self.problem
        for rows in (problem.out, problem.query, problem.key, problem.value):
            yield rows.tensor
        for each in expressions:
            yield from (load.source for load in loads_of(each))

    @property
    def parameters(self) -> list[str]:
        names = [*(f"{name}_pointer" for name in self.tensors.values())]
        names += [] if self.workspace is None else ["workspace"]
        sizes = (f"long long {name}" for name in self.sizes.values())
        return [*(f"void* {name}" for name in names), *sizes]

    @property
    def values(self) -> list[Any]:
        tensors = [*self.tensors, *([] if self.workspace is None else [self.workspace])]
        return [*(tensor.data for tensor in tensors), *self.sizes]

    def struct(self) -> tuple[str, str]:
        """The type that describes the problem to the templates: its name and its text."""
        problem = self.problem
        fields = [
            f"const {stored_type(str(tensor.dtype))}* {name};"
            for tensor, name in self.tensors.items()
        ]
        fields += [f"long long {name};" for name in (*self.sizes.values(), *self.axes.values())]
        body = f"""  using Data = {c_type(problem.dtype)};
  using Out = {c_type(str(problem.out.tensor.dtype))};
  static constexpr int depth = {problem.sizes.depth // _EIGHT};
  static constexpr int width = {problem.sizes.width // _EIGHT};
  static constexpr int keys = {_keys(problem.sizes)}, heads = {self.heads};
  static constexpr bool masks_only = {_flag(problem.masks_only)};
  static constexpr bool empty_is_zero = {_flag(problem.empty_is_zero)};
  static constexpr float factor = {float(problem.factor).hex()}f;
{_indented(fields)}
  __device__ __forceinline__ int first(long long query, int keys) const {{
{_indented(self._limit(problem.first, "0"), 4)}
  }}
  __device__ __forceinline__ int end(long long query, int keys) const {{
{_indented(self._limit(problem.end, "keys"), 4)}
  }}
  template <bool all>
  __device__ __forceinline__ float score(
      float own, long long query, long long key, int head) const {{
    using namespace tvm_scatter;
{_indented(self._head(), 4)}
    if constexpr (all) {{
{_indented(self._score(problem.score), 6)}
    }} else {{
{_indented(self._score(problem.seen_score), 6)}
    }}
  }}
"""
        name = "Attention_" + hashlib.sha256(body.encode()).hexdigest()[:12]
        guard = f"{name}_DEFINED"
        return name, f"#ifndef {guard}\n#define {guard}\nstruct {name} {{\n{body}}};\n#endif\n"

    def _limit(self, limit: Any, otherwise: str) -> list[str]:
        """Statements that return a limit of the keys that a query sees."""
        if limit is None:
            return [f"return {otherwise};"]
        writer = Writer(self.names)
        value = writer.value(limit)
        inside = f"min(static_cast<long long>(keys), max(0ll, {value.wide}))"
        return [
            "using namespace tvm_scatter;",
            *writer.lines,
            f"return static_cast<int>({inside});",
        ]

    def _head(self) -> list[str]:
        """Statements that find the last coordinate of a score."""
        if not self.axes:
            return ["(void)head;"]
        return [
            f"const long long {_OWN} = {list(self.axes.values())[-1]} + head;",
            f"(void){_OWN};",
        ]

    def _score(self, score: Any) -> list[str]:
        names = dict(self.names)
        if self.axes:
            names[list(self.axes)[-1]] = _OWN
        writer = Writer(names)
        value: Value = writer.value(score)
        return [*writer.lines, f"return static_cast<float>({value.wide});"]

    def of_tile(self, struct: str) -> str:
        """Statements of a thread whose block has some queries and all keys."""
        writer, sizes = Writer(self.names), self.problem.sizes
        queries, keys = (_written(writer, size) for size in (sizes.queries, sizes.keys))
        outer = " * ".join(["1ll", *(_written(writer, size) for size in sizes.outer)])
        rows = _WARPS * _FRAGMENT
        lines = [
            *writer.lines,
            f"const long long outer = {outer};",
            "// Late queries, which may see the most keys, come first.",
            f"const long long tile = outer == 0 ? -1 : ({queries} + {rows - 1}) / {rows} - 1 - "
            "blockIdx.x / outer;",
            "if (tile < 0) return;",
            *self._placed("blockIdx.x % outer"),
            *self._rows("out", "query", "key", "value"),
            *self._made(struct),
            "attend(problem, of_out, of_query, of_key, of_value, "
            f"static_cast<int>(tile * {rows}), static_cast<int>({queries}), "
            f"static_cast<int>({keys}), shared);",
        ]
        return _indented(lines)

    def of_part(self, struct: str, count: Any, numbers: int) -> str:
        """Statements of a thread whose block has few queries and a part of the keys."""
        return _indented(
            [
                *self._parted("blockIdx.x / count", count),
                *self._rows("query", "key", "value"),
                *self._made(struct),
                "attend_to_part(problem, static_cast<float*>(workspace) + "
                f"static_cast<long long>(blockIdx.x) * {numbers}, of_query, of_key, of_value, "
                f"{self.problem.sizes.queries}, static_cast<int>(keys), "
                "static_cast<int>(blockIdx.x % count), static_cast<int>(count), shared);",
            ]
        )

    def of_parts(self, struct: str, count: Any, numbers: int) -> str:
        """Statements of a thread whose block puts together what is known of few queries."""
        return _indented(
            [
                *self._parted("blockIdx.x", count),
                *self._rows("out"),
                f"attend_to_parts<{struct}>(of_out, static_cast<const float*>(workspace) + "
                f"blockIdx.x * count * {numbers}, {self.problem.sizes.queries}, "
                "static_cast<int>(keys), static_cast<int>(count), shared);",
            ]
        )

    def _parted(self, place: str, count: Any) -> list[str]:
        """Statements that find the coordinates of few queries, if the block has any."""
        writer, sizes = Writer(self.names), self.problem.sizes
        keys, parts = _written(writer, sizes.keys), _written(writer, count)
        outer = " * ".join(["1ll", *(_written(writer, size) for size in sizes.outer)])
        return [
            *writer.lines,
            f"const long long keys = {keys}, count = {parts};",
            f"if ({place} >= {outer} / {self.heads}) return;",
            *self._placed(place),
        ]

    def _placed(self, place: str) -> list[str]:
        """Statements that find coordinates by their number."""
        writer = Writer(self.names)
        sizes = [_written(writer, size) for size in self.problem.sizes.outer]
        lines = [*writer.lines, f"long long left = {place};"]
        for name, size in reversed(list(zip(self.axes.values(), sizes, strict=True))):
            if name == list(self.axes.values())[-1] and self.heads > 1:
                lines.append(
                    f"const long long {name} = left % ({size} / {self.heads}) * {self.heads};"
                )
                lines.append(f"left /= {size} / {self.heads};")
            else:
                lines += [f"const long long {name} = left % {size};", f"left /= {size};"]
        return [*lines, "(void)left;"]

    def _rows(self, *labels: str) -> list[str]:
        """Statements that declare rows."""
        writer, lines = Writer(self.names, prefix="r"), []
        for label in labels:
            rows = getattr(self.problem, label)
            const = "" if label == "out" else "const "
            kind = f"{const}{c_type(str(rows.tensor.dtype))}"
            pointer = f"static_cast<{kind}*>({self.tensors[rows.tensor]}_pointer)"
            parts = (rows.begin, rows.stride, self._next_head(rows))
            place, stride, head = (_written(writer, part) for part in parts)
            lines.append(
                f"const StridedRows<{kind}> of_{label}{{{pointer} + {place}, {stride}, {head}}};"
            )
        return [*writer.lines, *lines]

    def _next_head(self, rows: Any) -> Any:
        """How many elements there are from a row to that of the next head."""
        if self.heads == 1:
            return 0
        axis = list(self.axes)[-1]
        after = substitute(rows.begin, {axis: axis + 1})
        step = Analyzer().simplify(after - rows.begin)
        return int(step) if isinstance(step, tirx.IntImm) else step

    def _made(self, struct: str) -> list[str]:
        """The statement that makes the problem."""
        fields = [
            f"static_cast<const {stored_type(str(tensor.dtype))}*>({name}_pointer)"
            for tensor, name in self.tensors.items()
        ]
        fields += [*self.sizes.values(), *self.axes.values()]
        return [f"const {struct} problem{{{', '.join(fields)}}};"]


def _written(writer: Writer, value: Any) -> str:
    return str(value) if isinstance(value, int) else writer.value(value).wide


def _expressions(problem: AttentionProblem) -> Iterator[Any]:
    """All expressions of a problem."""
    rows = (problem.out, problem.query, problem.key, problem.value)
    sizes = problem.sizes
    found = [sizes.queries, sizes.keys, *sizes.outer, problem.first, problem.end]
    found += [problem.score, problem.seen_score]
    found += [part for each in rows for part in (each.begin, each.stride)]
    for each in found:
        if each is not None and not isinstance(each, int):
            yield each


def _numbered(name: str, found: Any) -> dict[Any, str]:
    """Names for what is found, each once."""
    return {each: f"{name}{at}" for at, each in enumerate(dict.fromkeys(found))}


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _indented(lines: list[str], spaces: int = 2) -> str:
    return "\n".join(" " * spaces + line for line in lines)


ATTENTION = Attention(_refusal, _workspace, _emit)
