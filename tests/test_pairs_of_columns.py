"""CPUs read rows of bfloat16 in words of two columns, and keep even and odd columns apart."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from column_parts import columns_in_parts
from harness import at_its_address, called, compiled_with
from test_prefetch import compiled
from tvm import relax, tirx

from tvm_scatter.ops.operators import index_put
from tvm_scatter.strategies.llvm.steps import pairs

NODES, EDGES = 13, 700
BFLOAT16 = ml_dtypes.bfloat16
FORCED = {"implementation": "sort_based", "fuse": True, "share_order": False}


def module(
    width: int,
    reduction: str = "add",
    weighted: bool = False,
    skipped: int = 0,
    begin: float | None = 0.0,
) -> tvm.IRModule:
    """x[src] from a column on, times a weight, reduced into numbers or into data."""
    builder = relax.BlockBuilder()
    columns = width + skipped
    x = relax.Var("x", relax.TensorType([NODES, columns], "bfloat16"))
    src, dst = (relax.Var(name, relax.TensorType([EDGES], "int64")) for name in ("src", "dst"))
    weight = relax.Var("weight", relax.TensorType([EDGES, 1], "bfloat16"))
    data = relax.Var("data", relax.TensorType([NODES, width], "bfloat16"))
    with builder.function("main", [x, src, dst, weight, data]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, src, axis=0))
            if skipped:
                rows = builder.emit(relax.op.strided_slice(rows, [1], [skipped], [columns]))
            if weighted:
                rows = builder.emit(relax.op.multiply(rows, weight))
            into = data
            if begin is not None:
                into = builder.emit(relax.op.full([NODES, width], relax.const(begin, "bfloat16")))
            output = builder.emit_output(index_put(into, [dst], rows, [0], reduction))
        builder.emit_func_output(output)
    return builder.get()


def operands(width: int, skipped: int = 0) -> list[np.ndarray[Any, Any]]:
    """Small whole numbers, so that sums are exact. One place has most edges, and one has none."""
    random = np.random.default_rng(width)
    x = random.integers(-2, 3, [NODES, width + skipped]).astype(BFLOAT16)
    src = random.integers(0, NODES, EDGES)
    dst = np.where(random.random(EDGES) < 0.8, 5, random.integers(0, NODES - 1, EDGES))
    weight = random.integers(1, 3, [EDGES, 1]).astype(BFLOAT16)
    data = random.integers(-2, 3, [NODES, width]).astype(BFLOAT16)
    return [x, src, dst, weight, data]


def expected(
    arrays: list[Any], weighted: bool = False, skipped: int = 0, begin: float | None = 0.0
) -> np.ndarray[Any, Any]:
    x, src, dst, weight, data = arrays
    rows = x[src][:, skipped:].astype("float64")
    if weighted:
        rows = rows * weight.astype("float64")
    result = data.astype("float64") if begin is None else np.full(data.shape, begin)
    np.add.at(result, dst, rows)
    return result.astype(BFLOAT16)


@pytest.mark.turns(4)
@pytest.mark.parametrize("weighted", [False, True], ids=["sum", "weighted"])
@pytest.mark.parametrize("width", [32, 64, 288, 48, 33, 31])
@pytest.mark.parametrize("carry", [False, True], ids=["read", "carried"])
def test_sums(width: int, weighted: bool, carry: bool) -> None:
    """Of whole vectors of words, of several blocks of columns, and of what is neither."""
    arrays = operands(width)
    if carry:
        with columns_in_parts():
            machine = compiled_with(module(width, weighted=weighted), "llvm", **FORCED)
    else:
        machine = compiled_with(module(width, weighted=weighted), "llvm", **FORCED)
    np.testing.assert_array_equal(called(machine, "llvm", arrays), expected(arrays, weighted))


def test_rows_that_begin_with_whole_words() -> None:
    item, column = (tirx.Var(name, "int64") for name in ("item", "column"))
    narrow, wide = (tirx.decl_buffer((4096,), dtype) for dtype in ("bfloat16", "float32"))
    sources = tirx.decl_buffer((64,), "int64")

    def read(buffer: Any, at: Any) -> bool:
        return pairs.read_in_words(tirx.BufferLoad(buffer, [at]), column)

    with tvm.target.Target("llvm"):
        assert read(narrow, item * 32 + column)
        assert read(narrow, sources[item] * 64 + 32 + column)
        assert not read(narrow, item * 32 + 1 + column)
        assert not read(narrow, item * 33 + column)
        assert not read(narrow, sources[item] + column)
        assert not read(narrow, item * 32 + column * 2)
        assert not read(narrow, item)
        assert not read(wide, item * 32 + column)


@pytest.mark.parametrize("skipped", [1, 2])
def test_rows_that_begin_within_a_word(skipped: int) -> None:
    arrays = operands(32, skipped)
    machine = compiled_with(module(32, skipped=skipped), "llvm", **FORCED)
    np.testing.assert_array_equal(called(machine, "llvm", arrays), expected(arrays, False, skipped))


@pytest.mark.parametrize("begin", [0.0, 3.0, None], ids=["zeros", "threes", "data"])
def test_what_sums_begin_with(begin: float | None) -> None:
    arrays = operands(32)
    machine = compiled_with(module(32, begin=begin), "llvm", **FORCED)
    found = called(machine, "llvm", arrays)
    np.testing.assert_array_equal(found, expected(arrays, begin=begin))


def test_means() -> None:
    arrays = operands(64)
    machine = compiled_with(module(64, "mean"), "llvm", **FORCED)
    x, src, dst, *_ = arrays
    total, count = np.zeros([NODES, 64]), np.ones([NODES, 1])
    np.add.at(total, dst, x[src].astype("float64"))
    np.add.at(count, dst, 1)
    wanted = (total.astype("float32") / count.astype("float32")).astype(BFLOAT16)
    np.testing.assert_array_equal(called(machine, "llvm", arrays), wanted)


def test_numbers_that_are_none_and_signs_of_zeros() -> None:
    """A NaN, whatever its bits, is one in its own column alone, and infinities are kept."""
    arrays = operands(32)
    arrays[2] = np.arange(EDGES) % NODES
    arrays[1] = arrays[2].copy()
    bits = arrays[0].view("uint16")
    bits[:] = 0
    bits[:6, 7] = [0x7F81, 0x7FFF, 0xFFFF, 0xFF81, 0x7FC0, 0xFFC0]
    bits[6:8, 8] = [0x7F80, 0xFF80]
    found = called(compiled_with(module(32), "llvm", **FORCED), "llvm", arrays).astype("float32")
    assert np.isnan(found[:6, 7]).all()
    assert list(found[6:8, 8]) == [np.inf, -np.inf]
    found[:6, 7] = found[6:8, 8] = 0
    assert not found.any()


def test_a_tensor_that_begins_with_half_a_word() -> None:
    arrays = operands(32)
    machine = compiled_with(module(32), "llvm", **FORCED)
    x = arrays[0]
    room = tvm.runtime.tensor(np.concatenate([np.zeros(1, BFLOAT16), x.reshape(-1)]))
    view = at_its_address(room._create_view(x.shape, "bfloat16", 2))
    found = machine["main"](view, *map(tvm.runtime.tensor, arrays[1:])).numpy()
    np.testing.assert_array_equal(found, expected(arrays))


def test_what_is_read_in_words() -> None:
    """Elements of half a word are widened one by one only where rows are not read in words."""
    assert "vpmovzxwd" not in compiled(module(64), **FORCED)
    assert "vpmovzxwd" in compiled(module(48), **FORCED)
