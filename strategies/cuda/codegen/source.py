"""The CUDA C++ source of a kernel: headers, and the problem's compile-time facts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from tvm_scatter.emit.device_headers import header
from tvm_scatter.problem.reductions import HALVES, Reduction, item_bytes, numpy_dtype
from tvm_scatter.problem.scatter_problem import ScatterProblem

_DATA_TYPES = {
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "bool": "tvm_scatter::Boolean",
}
_BITS_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


def accumulate_dtype(dtype: str) -> str:
    """The type in which values of a data type are accumulated."""
    return "float32" if dtype in HALVES else dtype


def accumulate_bytes(dtype: str) -> int:
    """Bytes of the type in which values of a data type are accumulated."""
    return item_bytes(accumulate_dtype(dtype))


def data_type(problem: ScatterProblem) -> str:
    """The C++ type of an element: for plain updates, which only move bits, by size alone."""
    if problem.reduces.is_store:
        return _BITS_TYPES[item_bytes(problem.data_dtype)]
    return _DATA_TYPES[problem.data_dtype]


def c_type(dtype: str) -> str:
    """The C++ type for a data type."""
    return _DATA_TYPES[dtype]


def combiner_struct(reduction: Reduction) -> str:
    """The struct of ``device/reduction.cuh`` that combines two values: ``BitwiseOr``, say."""
    return "".join(part.capitalize() for part in reduction.combiner.split("_"))


@cache
def headers(names: tuple[str, ...]) -> str:
    """The text of device headers and of all headers of this package that they include, in order."""
    folder = resources.files("tvm_scatter.strategies.cuda") / "device"
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in texts:
            return
        lines = []
        for line in (folder / f"{name}.cuh").read_text(encoding="utf-8").splitlines():
            if line.startswith('#include "'):
                add(line.split('"')[1].removesuffix(".cuh"))
            else:
                lines.append(line)
        texts[name] = "\n".join(lines)

    for name in names:
        add(name)
    return "".join(header(*each) for each in texts.items())


def problem_struct(
    problem: ScatterProblem,
    offset: str,
    signals_drops: bool = False,
    counts_completion: bool = False,
    updates: str = "tvm_scatter::StoredUpdates<Data>",
    output: str = "tvm_scatter::StoredOutput<Data>",
) -> tuple[str, str]:
    """The struct ``P`` that describes a problem to the templates: its name and its text.

    Parameters
    ----------
    offset : str
        The C++ type of index arithmetic: ``int`` or ``long long``.
    signals_drops : bool
        Whether the kernel tells the host of an index that is out of bounds.
    counts_completion : bool
        Whether blocks tell the host that they have resolved their indices.
    updates, output : str
        The C++ types of the updates and of the output.
    """
    data = data_type(problem)
    start = "0"
    if not problem.reduces.is_store:
        start = _literal(problem.reduces.identity(problem.data_dtype), problem.data_dtype)
    fill = _literal(_number(problem), problem.data_dtype) if problem.fill else start

    def flag(value: bool) -> str:
        return "true" if value else "false"

    body = f"""  using Data = {data};
  using Index = {_DATA_TYPES[problem.index_dtype]};
  using Offset = {offset};
  using Updates = {updates};
  using Output = {output};
  using Reduction = tvm_scatter::{combiner_struct(problem.reduces)};
  static constexpr int components = {len(problem.extents)};
  static constexpr bool interleaved = {flag(problem.interleaved)};
  static constexpr bool index_batch = {flag(problem.index_batch)};
  static constexpr bool index_slice = {flag(problem.index_slice)};
  static constexpr bool update_batch = {flag(problem.update_batch)};
  static constexpr bool update_count = {flag(problem.update_count)};
  static constexpr bool update_slice = {flag(problem.update_slice)};
  static constexpr bool wrap = {flag(problem.wrap_negative)};
  static constexpr bool check = {flag(problem.bounds != "trust")};
  static constexpr bool signals_drops = {flag(signals_drops)};
  static constexpr bool counts_completion = {flag(counts_completion)};
  static constexpr bool include_self = {flag(problem.include_self)};
  static constexpr bool unique = {flag(problem.unique)};
  static constexpr bool softmax = {flag(problem.softmax)};
  static constexpr bool filled = {flag(bool(problem.fill))};
  static __device__ __forceinline__ Data start() {{ return {start}; }}
  static __device__ __forceinline__ Data fill() {{ return {fill}; }}
"""
    name = "ScatterProblem_" + hashlib.sha256(body.encode()).hexdigest()[:12]
    guarded = (
        f"#ifndef {name}_DEFINED\n#define {name}_DEFINED\nstruct {name} {{\n{body}}};\n#endif\n"
    )
    return name, guarded


def _number(problem: ScatterProblem) -> int | float:
    """The number that every element of the data is."""
    return (float if "float" in problem.data_dtype else int)(problem.fill)


def _literal(value: Any, dtype: str) -> str:
    """A number as an expression of type ``Data``, bit by bit."""
    bits = np.asarray(value).astype(numpy_dtype(dtype)).tobytes()
    literal = f"static_cast<tvm_scatter::Bits<Data>>({int.from_bytes(bits, 'little')}ull)"
    return f"tvm_scatter::bit_cast<Data>({literal})"


def routine(
    header_names: Sequence[str], structs: Sequence[str], parameters: Sequence[str], body: str
) -> tuple[str, str]:
    """A ``__device__`` function around ``body``: its name and its complete source.

    The name is a digest of the text, so that a module has equal routines only once.
    """
    text = headers(tuple(header_names)) + "".join(structs)
    name = "scatter_" + hashlib.sha256((text + repr(parameters) + body).encode()).hexdigest()[:16]
    signature = ", ".join(parameters)
    text += (
        f"#ifndef {name}_DEFINED\n#define {name}_DEFINED\n"
        f"__device__ __forceinline__ void {name}({signature}) {{\n"
        f"  using namespace tvm_scatter;\n{body}\n}}\n#endif\n"
    )
    return name, text
