"""Scatters that between them reach every kernel: data types, index forms, reductions, sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put, scatter_elements
from tvm_scatter.selection.targets import parse_target

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")


@dataclass(frozen=True)
class Case:
    """A scatter: the shapes and types of its operands, and the operator applied to them."""

    data: tuple[Any, ...]
    index: tuple[Any, ...]
    updates: tuple[Any, ...]
    dtype: str
    index_dtype: str
    apply: Callable[..., Any]

    def add_to(self, bb: relax.BlockBuilder, name: str) -> None:
        """Add a function of that name which does the scatter."""
        sizes: dict[str, Any] = {}

        def shape(dims: tuple[Any, ...]) -> list[Any]:
            return [
                sizes.setdefault(dim, tvm.tirx.Var(dim, "int64")) if isinstance(dim, str) else dim
                for dim in dims
            ]

        parameters = [
            relax.Var("data", relax.TensorType(shape(self.data), self.dtype)),
            relax.Var("index", relax.TensorType(shape(self.index), self.index_dtype)),
            relax.Var("updates", relax.TensorType(shape(self.updates), self.dtype)),
        ]
        with bb.function(name, parameters):
            bb.emit_func_output(bb.emit(self.apply(*parameters)))


def elements(reduction: str, axis: int = 0, **more: Any) -> Callable[..., Any]:
    """One index for each update element."""

    def apply(data: Any, index: Any, updates: Any) -> Any:
        return scatter_elements(data, index, updates, axis, reduction, **more)

    return apply


def rows(reduction: str, axis: int = 0, **more: Any) -> Callable[..., Any]:
    """One index for each row of updates."""

    def apply(data: Any, index: Any, updates: Any) -> Any:
        return index_put(data, [index], updates, [axis], reduction, **more)

    return apply


def nd(reduction: str) -> Callable[..., Any]:
    """One tuple of indices for each row of updates."""

    def apply(data: Any, index: Any, updates: Any) -> Any:
        return relax.op.scatter_nd(data, index, updates, reduction)

    return apply


CASES = {
    "rows_f32_add": Case((1000, 64), (5000,), (5000, 64), "float32", "int64", rows("add")),
    "rows_f32_update": Case((1000, 6), (500,), (500, 6), "float32", "int32", rows("update")),
    "rows_bf16_add": Case((1000, 64), (5000,), (5000, 64), "bfloat16", "int64", rows("add")),
    "rows_f16_max": Case((9, 1000, 8), (500,), (9, 500, 8), "float16", "int64", rows("max", 1)),
    "rows_f32_mean": Case((1000, 5), (500,), (500, 5), "float32", "int64", rows("mean")),
    "rows_symbolic": Case(("n", "s"), ("k",), ("k", "s"), "float32", "int64", rows("add")),
    "line_f32_add": Case((256,), (1000000,), (1000000,), "float32", "int32", elements("add")),
    "line_f16_add": Case((256,), (1000000,), (1000000,), "float16", "int64", elements("add")),
    "line_i32_add": Case((4096,), (10000,), (10000,), "int32", "int64", elements("add")),
    "line_f64_add": Case((4096,), (10000,), (10000,), "float64", "int64", elements("add")),
    "line_i64_min": Case((4096,), (10000,), (10000,), "int64", "int64", elements("min")),
    "line_i8_mul": Case((4096,), (10000,), (10000,), "int8", "int64", elements("mul")),
    "line_u8_update": Case((4096,), (10000,), (10000,), "uint8", "int16", elements("update")),
    "line_bool_max": Case((4096,), (10000,), (10000,), "bool", "int64", elements("max")),
    "lines_f32_add": Case((9, 1000), (500,), (9, 500), "float32", "int64", rows("add", 1)),
    "lines_bf16_mean": Case((9, 1000), (500,), (9, 500), "bfloat16", "int64", rows("mean", 1)),
    "lines_symbolic": Case(("n", "m"), ("k",), ("n", "k"), "float64", "int32", rows("max", 1)),
    "few_f32_update": Case((16,), (1,), (1,), "float32", "int64", elements("update")),
    "box_f32_mul": Case(
        (4, 99, 8), (4, 50, 8), (4, 50, 8), "float32", "int64",
        elements("mul", 1, include_self=False),
    ),
    "box_symbolic": Case(
        ("n", "m"), ("n", "k"), ("n", "k"), "float32", "int32", elements("max", 1)
    ),
    "nd_f32_add": Case((50, 60, 8), (700, 2), (700, 8), "float32", "int64", nd("add")),
}  # fmt: skip

#: Enough of them for every device routine to be compiled, without every data type.
REPRESENTATIVE = ("rows_bf16_add", "rows_f32_update", "rows_symbolic", "line_f16_add",
                  "line_i64_min", "lines_symbolic", "box_f32_mul")  # fmt: skip

#: The float32, float64 and int32 sums among them: hardware adds these atomically.
NATIVE_SUMS = ("rows_f32_add", "line_f32_add", "line_f64_add", "line_i32_add")


def cuda_target(arch: str) -> tvm.target.Target:
    """A CUDA target that needs no GPU."""
    return parse_target(arch)


def accepted(names: Iterable[str], implementation: str, target: tvm.target.Target) -> list[str]:
    """Those of the named cases that an implementation does not refuse."""
    strategy = tvm_scatter.strategy_for("cuda")
    chosen = strategy.implementations[implementation]
    return [
        explanation.where.split(".")[0]
        for explanation in tvm_scatter.explain(module(names), target)
        if strategy.refusal(chosen, explanation.problem, target) is None
    ]


def module(names: Iterable[str]) -> tvm.IRModule:
    """The named cases, a function each."""
    bb = relax.BlockBuilder()
    for name in names:
        CASES[name].add_to(bb, name)
    return bb.get()


@contextmanager
def no_compiler() -> Iterator[None]:
    """Where there is a driver, TVM compiles what it generates for it; not in here."""
    name = "tvm_callback_cuda_compile"
    compiler = tvm_ffi.get_global_func(name)
    tvm_ffi.register_global_func(name, lambda code: b"not compiled", override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(name, compiler, override=True)


@dataclass(frozen=True)
class Generated:
    """What TVM makes of some cases: the names of the functions and the CUDA C++ of all of them."""

    functions: list[str]
    source: str


def generate(names: Iterable[str], target: tvm.target.Target) -> Generated:
    """Generate CUDA for the named cases under the options in force, all in one source."""
    return in_one_source(lowered(names, target), target)


def lowered(names: Iterable[str], target: tvm.target.Target) -> dict[str, tvm.tirx.PrimFunc]:
    """The functions for the named cases under the options in force."""
    with target:
        mod = relax.transform.LegalizeOps()(module(names))
    return {
        name.name_hint: function
        for name, function in mod.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }


def in_one_source(
    functions: Mapping[str, tvm.tirx.PrimFunc], target: tvm.target.Target
) -> Generated:
    """Generate CUDA for functions, under the names that they are given here."""
    named = {name: each.with_attr("global_symbol", name) for name, each in functions.items()}
    with no_compiler():
        built = tvm.compile(tvm.IRModule(named), target=target)
    imports = [module for module in built.mod.imports if module.kind == "cuda"]
    return Generated(
        functions=list(named),
        source="\n".join(module.inspect_source() for module in imports),
    )
