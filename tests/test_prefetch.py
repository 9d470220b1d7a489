"""Rows that a CPU is asked for before they are read."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm
from softmax_programs import Attention
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import scatter_elements

NODES, EDGES = 300, 2000


def assembly(width: Any, dtype: str = "float32") -> str:
    """What is compiled of a sum of read rows, for a CPU with vectors of 32 bytes."""
    builder = relax.BlockBuilder()
    shapes = {"x": ([NODES, width], dtype), "to": ([EDGES], "int64"), "source": ([EDGES], "int64")}
    given = [relax.Var(name, relax.TensorType(*each)) for name, each in shapes.items()]
    x, to, source = given
    with builder.function("main", given):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, source, 0))
            zeros = builder.emit(relax.op.zeros_like(x))
            index = builder.emit(relax.op.broadcast_to(relax.op.expand_dims(to, 1), [EDGES, width]))
            output = builder.emit_output(scatter_elements(zeros, index, rows, 0, "add"))
        builder.emit_func_output(output)
    return compiled(builder.get(), implementation="sort_based")


def compiled(module: tvm.IRModule, **options: Any) -> str:
    """The assembly of a module, for a CPU with vectors of 32 bytes."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
    with tvm_scatter.options(**options):
        executable = tvm.compile(module, target)
    return "\n".join(each.inspect_source("s") for each in executable.mod.imports)


@pytest.mark.parametrize(
    ("width", "dtype", "lines"),
    [(128, "float32", 2), (128, "bfloat16", 4), (16, "float32", 1), (40, "float32", 2)],
)
def test_lines_of_a_row_are_asked_for(width: int, dtype: str, lines: int) -> None:
    """Each line, or the first two where an update takes few instructions."""
    found = re.findall(r"prefetcht0\t(\d*)\(", assembly(width, dtype))
    assert {int(offset or 0) for offset in found} == {64 * line for line in range(lines)}


@pytest.mark.parametrize("width", [8, tvm.tirx.Var("width", "int64")], ids=["narrow", "unknown"])
def test_rows_that_are_not(width: Any) -> None:
    assert "prefetcht0" not in assembly(width)


def test_logits_are_asked_for_however_narrow_rows_are() -> None:
    assert "prefetcht0" in compiled(Attention(columns=(2,)).module(), bounds="drop")
