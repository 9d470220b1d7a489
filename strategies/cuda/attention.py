"""Attention on the GPU: queries in registers, keys and values that pass by in shared memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import prod
from typing import Any

import tvm
from tvm import tirx

from tvm_scatter.emit.attention import Attention, AttentionProblem
from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.problem.sizes import ceil_div, round_up

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
_WIDEST, _WIDE = 256, 128
_MANY_KEYS, _FEW_KEYS = 64, 32
#: Keys and values are read while others are multiplied.
_STAGES = 2


def _refusal(depth: int, width: int) -> str | None:
    for size in (depth, width):
        if size % _EIGHT or not 0 < size <= _WIDEST:
            return f"heads of {size} elements are no multiple of {_EIGHT} up to {_WIDEST}"
    return None


def _keys(problem: AttentionProblem) -> int:
    """The keys of a tile."""
    return _MANY_KEYS if max(problem.depth, problem.width) <= _WIDE else _FEW_KEYS


def _emit(problem: AttentionProblem) -> None:
    source = _Source(problem)
    struct, text = source.struct()
    lines = source.body(struct)
    tiles = ceil_div(problem.queries, _WARPS * _FRAGMENT)
    blocks = tiles * prod(problem.sizes, start=tirx.IntImm("int64", 1))
    strides = (round_up(size, _FRAGMENT) + _EIGHT for size in (problem.depth, problem.width))
    shared = dynamic_bytes(2 * _STAGES * _keys(problem) * sum(strides), 0)
    parameters = [*source.parameters, "void* shared"]
    name, code = routine(_HEADERS, (text,), parameters, lines)
    run_routine(name, code, source.values, blocks, _WARPS * _WARP, shared)


class _Source:
    """The C++ for a problem."""

    def __init__(self, problem: AttentionProblem) -> None:
        self.problem = problem
        own = (problem.product, problem.query_at, problem.key_at)
        self.axes = {axis: f"x{at}" for at, axis in enumerate(problem.axes)}
        expressions = list(_expressions(problem))
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
        tensors = [f"void* {name}_pointer" for name in self.tensors.values()]
        return [*tensors, *(f"long long {name}" for name in self.sizes.values())]

    @property
    def values(self) -> list[Any]:
        return [*(tensor.data for tensor in self.tensors), *self.sizes]

    def struct(self) -> tuple[str, str]:
        """The type that describes the problem to the templates: its name and its text."""
        problem = self.problem
        fields = [
            f"const {stored_type(str(tensor.dtype))}* {name};"
            for tensor, name in self.tensors.items()
        ]
        fields += [f"long long {name};" for name in (*self.sizes.values(), *self.axes.values())]
        first, end = (
            None if each is None else problem.query_at + each
            for each in (problem.first, problem.end)
        )
        body = f"""  using Data = {c_type(problem.dtype)};
  using Out = {c_type(str(problem.out.tensor.dtype))};
  static constexpr int depth = {problem.depth // _EIGHT}, width = {problem.width // _EIGHT};
  static constexpr int keys = {_keys(problem)};
  static constexpr bool masks_only = {_flag(problem.masks_only)};
  static constexpr bool empty_is_zero = {_flag(problem.empty_is_zero)};
  static constexpr float factor = {float(problem.factor).hex()}f;
{_indented(fields)}
  __device__ __forceinline__ int first(long long query) const {{
{_indented(self._limit(first, "0", "max"), 4)}
  }}
  __device__ __forceinline__ int end(long long query, int keys) const {{
{_indented(self._limit(end, "keys", "min"), 4)}
  }}
  template <bool all>
  __device__ __forceinline__ float score(float own, long long query, long long key) const {{
    using namespace tvm_scatter;
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

    def _limit(self, limit: Any, most: str, by: str) -> list[str]:
        """Statements that return a limit of the keys that a query sees."""
        if limit is None:
            return [f"return {most};"]
        writer = Writer(self.names)
        value = writer.value(limit)
        wide = f"{by}(static_cast<long long>({most}), {value.wide})"
        return ["using namespace tvm_scatter;", *writer.lines, f"return static_cast<int>({wide});"]

    def _score(self, score: Any) -> list[str]:
        writer = Writer(self.names)
        value: Value = writer.value(score)
        return [*writer.lines, f"return static_cast<float>({value.wide});"]

    def body(self, struct: str) -> str:
        """Statements of a thread."""
        problem, writer = self.problem, Writer(self.names)

        def written(value: Any) -> str:
            return str(value) if isinstance(value, int) else writer.value(value).wide

        sizes = [written(size) for size in problem.sizes]
        queries, keys = written(problem.queries), written(problem.keys)
        begin = [*writer.lines, f"const long long outer = {' * '.join(['1ll', *sizes])};"]
        begin += [
            f"const long long tile = outer == 0 ? -1 : ({queries} + {_WARPS * _FRAGMENT - 1}) / "
            f"{_WARPS * _FRAGMENT} - 1 - blockIdx.x / outer;",
            "// Of late queries, which may see the most keys, come first.",
            "if (tile < 0) return;",
            "long long left = blockIdx.x % outer;",
        ]
        for name, size in reversed(list(zip(self.axes.values(), sizes, strict=True))):
            begin += [f"const long long {name} = left % {size};", f"left /= {size};"]
        writer.lines = []
        lines = []
        for label, rows in (
            ("out", problem.out),
            ("query", problem.query),
            ("key", problem.key),
            ("value", problem.value),
        ):
            const = "" if label == "out" else "const "
            kind = f"{const}{c_type(str(rows.tensor.dtype))}"
            pointer = f"static_cast<{kind}*>({self.tensors[rows.tensor]}_pointer)"
            place, stride = written(rows.begin), written(rows.stride)
            lines.append(f"const StridedRows<{kind}> of_{label}{{{pointer} + {place}, {stride}}};")
        fields = [
            f"static_cast<const {stored_type(str(tensor.dtype))}*>({name}_pointer)"
            for tensor, name in self.tensors.items()
        ]
        fields += [*self.sizes.values(), *self.axes.values()]
        lines += [
            f"const {struct} problem{{{', '.join(fields)}}};",
            "attend(problem, of_out, of_query, of_key, of_value, "
            f"static_cast<int>(tile * {_WARPS * _FRAGMENT}), static_cast<int>({queries}), "
            f"static_cast<int>({keys}), shared);",
        ]
        return _indented([*begin, *writer.lines, *lines])


def _expressions(problem: AttentionProblem) -> Iterator[Any]:
    """All expressions of a problem."""
    rows = (problem.out, problem.query, problem.key, problem.value)
    found = [problem.queries, problem.keys, *problem.sizes, problem.first, problem.end]
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


ATTENTION = Attention(_refusal, _emit)
