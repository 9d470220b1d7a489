"""Products, reductions and the rest in their default schedule on a CPU: NumPy's answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from harness import run
from tvm import relax, tirx

import tvm_scatter
from tvm_scatter.schedules.cpu import scheduled_for_cpu
from tvm_scatter.selection.targets import host_target

TARGETS = {
    "llvm": tvm.target.Target("llvm"),
    "host": host_target(),
}
SIZES = (1, 2, 3, 7, 16, 32, 47, 64, 67, 100, 129)
TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@dataclass(frozen=True)
class Form:
    """An expression over tensors whose sizes have names, and what it means."""

    shapes: tuple[str, ...]
    build: Callable[..., Any]
    reference: Callable[..., Any]
    floats_only: bool = False


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


FORMS = {
    "product": Form(("mk", "kn"), relax.op.matmul, lambda a, b: a @ b),
    "product with bias and relu": Form(
        ("mk", "kn", "n"),
        lambda a, b, c: relax.op.nn.relu(relax.op.add(relax.op.matmul(a, b), c)),
        lambda a, b, c: np.maximum(a @ b + c, 0),
        floats_only=True,
    ),
    "product with rows added": Form(
        ("mk", "kn", "mn"),
        lambda a, b, c: relax.op.add(relax.op.matmul(a, b), c),
        lambda a, b, c: a @ b + c,
    ),
    "product of a sum": Form(
        ("mk", "mk", "kn"),
        lambda a, b, c: relax.op.matmul(relax.op.add(a, b), c),
        lambda a, b, c: (a + b) @ c,
    ),
    "product reshaped": Form(
        ("mk", "kn"),
        lambda a, b: relax.op.flatten(relax.op.matmul(a, b)),
        lambda a, b: (a @ b).reshape(-1),
    ),
    "product transposed": Form(
        ("mk", "nk"),
        lambda a, b: relax.op.matmul(a, relax.op.permute_dims(b)),
        lambda a, b: a @ b.T,
    ),
    "batched": Form(("bmk", "bkn"), relax.op.matmul, lambda a, b: a @ b),
    "batched by one": Form(("bmk", "kn"), relax.op.matmul, lambda a, b: a @ b),
    "one row": Form(("k", "kn"), relax.op.matmul, lambda a, b: a @ b),
    "one column": Form(("mk", "k"), relax.op.matmul, lambda a, b: a @ b),
    "batched row": Form(("b1k", "bkn"), relax.op.matmul, lambda a, b: a @ b),
    "inner products": Form(
        ("bmk", "1mk"),
        lambda a, b: relax.op.sum(relax.op.multiply(a, b), [2]),
        lambda a, b: (a * b).sum(2),
    ),
    "sum of rows": Form(("mk",), lambda a: relax.op.sum(a, [1]), lambda a: a.sum(1)),
    "sum of columns": Form(("mk",), lambda a: relax.op.sum(a, [0]), lambda a: a.sum(0)),
    "sum of planes": Form(("bmk",), lambda a: relax.op.sum(a, [1]), lambda a: a.sum(1)),
    "sum around": Form(("bmk",), lambda a: relax.op.sum(a, [0, 2]), lambda a: a.sum((0, 2))),
    "sum of all": Form(("mk",), lambda a: relax.op.sum(a), lambda a: a.sum()),
    "centred": Form(
        ("mk",),
        lambda a: relax.op.subtract(a, relax.op.sum(a, [1], keepdims=True)),
        lambda a: a - a.sum(1, keepdims=True),
    ),
    "greatest": Form(("bmk",), lambda a: relax.op.max(a, [2]), lambda a: a.max(2)),
    "argmax": Form(("mk",), lambda a: relax.op.argmax(a, 1), lambda a: a.argmax(1)),
    "softmax": Form(
        ("bmk",), lambda a: relax.op.nn.softmax(a, 2), lambda a: softmax(a, 2), floats_only=True
    ),
    "softmax of columns": Form(
        ("bmk",), lambda a: relax.op.nn.softmax(a, 1), lambda a: softmax(a, 1), floats_only=True
    ),
    "rows taken": Form(
        ("mk", "b"),
        lambda a, i: relax.op.take(a, relax.op.astype(relax.op.multiply(i, i), "int64"), 0, "clip"),
        lambda a, i: a[np.clip((i * i).astype("int64"), 0, len(a) - 1)],
    ),
    "elements": Form(
        ("mk", "k"), lambda a, b: relax.op.multiply(relax.op.add(a, b), a), lambda a, b: (a + b) * a
    ),
    "rows scaled": Form(
        ("bmk", "bm"),
        lambda a, b: relax.op.multiply(a, relax.op.expand_dims(b, 2)),
        lambda a, b: a * b[:, :, None],
    ),
    "compared": Form(
        ("bmk", "k"), lambda a, b: relax.op.greater(a, b), lambda a, b: (a > b).astype("int64")
    ),
    "one of two": Form(
        ("bmk", "bm"),
        lambda a, b: relax.op.where(
            relax.op.expand_dims(relax.op.greater(b, relax.op.multiply(b, b)), 2),
            relax.op.multiply(a, a),
            a,
        ),
        lambda a, b: np.where((b > b * b)[:, :, None], a * a, a),
    ),
    "transposed": Form(("mk",), relax.op.permute_dims, np.transpose),
    "beside each other": Form(
        ("mk", "mn"),
        lambda a, b: relax.op.concat([a, b], 1),
        lambda a, b: np.concatenate([a, b], 1),
    ),
}


def compiled(forms, sizes, dtype, target, symbolic="", schedule=True):
    """Functions of the forms by their numbers, scheduled and compiled together."""
    builder = relax.BlockBuilder()
    for number, form in enumerate(forms):
        dims = {
            name: tirx.Var(name, "int64") if name in symbolic else size
            for name, size in sizes.items()
        }
        dims["1"] = 1
        parameters = [
            relax.Var(f"p{at}", relax.TensorType([dims[name] for name in shape], dtype))
            for at, shape in enumerate(form.shapes)
        ]
        with builder.function(f"f{number}", parameters):
            with builder.dataflow():
                result = builder.emit_output(builder.normalize(form.build(*parameters)))
            builder.emit_func_output(result)
    pipeline = tvm_scatter.pipeline(target, schedule=schedule)
    executable = tvm.compile(builder.get(), target, relax_pipeline=pipeline)
    return relax.VirtualMachine(executable, tvm.cpu())


def check(names, sizes, dtype, target, symbolic=""):
    generator = np.random.default_rng(0)
    forms = [FORMS[name] for name in names]
    machine = compiled(forms, sizes, dtype, target, symbolic)
    numpy_dtype = getattr(ml_dtypes, dtype, None) if dtype == "bfloat16" else dtype
    for number, (name, form) in enumerate(zip(names, forms, strict=True)):
        arrays = [
            generator.integers(-2, 3, [1 if n == "1" else sizes[n] for n in shape])
            if np.issubdtype(np.dtype(numpy_dtype), np.integer)
            else generator.standard_normal([1 if n == "1" else sizes[n] for n in shape])
            for shape in form.shapes
        ]
        arrays = [array.astype(numpy_dtype) for array in arrays]
        found = machine[f"f{number}"](*[tvm.runtime.tensor(array) for array in arrays]).numpy()
        wide = [a if a.dtype.kind in "iu" else a.astype("float64") for a in arrays]
        expected = np.asarray(form.reference(*wide))
        expected = expected.astype(found.dtype if expected.dtype.kind in "iu" else "float64")
        assert found.shape == expected.shape, name
        tolerance = TOLERANCE.get(dtype, 0) * max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(
            found.astype("float64"), expected, rtol=0, atol=tolerance, err_msg=f"{name} {sizes}"
        )


def drawn(seed):
    generator = np.random.default_rng(seed)
    return {name: int(generator.choice(SIZES)) for name in "bmkn"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.turns(2)
def test_sizes(seed, target, caplog):
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        check(list(FORMS), drawn(seed), "float32", TARGETS[target])
    assert not caplog.records


@pytest.mark.parametrize("ones", ["b", pytest.param("mn", marks=pytest.mark.exhaustive)])
def test_axes_of_one_element(ones, caplog):
    """Such as a batch of one: the product has no loop over it, but its result has."""
    sizes = dict.fromkeys("bmkn", 24) | dict.fromkeys(ones, 1)
    forms = ["batched", "batched by one", "batched row", "rows scaled"]
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        check(forms, sizes, "float32", TARGETS["host"])
    assert not caplog.records


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(1, 30))
def test_many_sizes(seed, target):
    check(list(FORMS), drawn(seed), "float32", TARGETS[target])


@pytest.mark.parametrize("symbolic", ["m", "bmkn"])
@pytest.mark.parametrize("seed", (100,))
@pytest.mark.turns(2)
def test_symbolic_sizes(seed, symbolic, caplog):
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        check(list(FORMS), drawn(seed), "float32", TARGETS["host"], symbolic)
    assert not caplog.records


@pytest.mark.parametrize("symbolic", ["k", "n", "bk"])
def test_rows_that_no_tile_divides(symbolic, caplog):
    """Of a known number, while others are not: so are the gradients of weights of any batch."""
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        for rows in (5, 6):
            sizes = {"b": 2, "m": rows, "k": 7, "n": 8}
            check(
                ["product", "product with bias and relu"],
                sizes,
                "float32",
                TARGETS["host"],
                symbolic,
            )
    assert not caplog.records


@pytest.mark.parametrize("empty", "mk")
@pytest.mark.turns(2)
def test_nothing(empty):
    # A maximum or a softmax of nothing is not defined.
    names = [name for name in FORMS if name not in ("greatest", "argmax", "rows taken")]
    names = [name for name in names if "softmax" not in name]
    for symbolic in ("", empty):
        check(names, {**drawn(0), empty: 0}, "float32", TARGETS["host"], symbolic)


def test_one_element():
    """TVM's analysis takes a sum of one for a function of single elements."""
    names = ["product", "product with bias and relu", "product with rows added", "centred"]
    check(names, {"b": 2, "m": 67, "k": 1, "n": 64}, "float32", TARGETS["host"])


#: The shapes of a matrix that is large for one row: its runs of columns are of whole vectors, of
#: others, or there are none; and its rows are not of a number that is read at once.
LARGE = [(512, 512), (1024, 1000), (512, 521), (515, 512), (128, 2500)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.turns(2)
def test_one_row_of_a_large_matrix(target, caplog):
    names = ["product", "product with bias and relu", "one row", "batched row", "product reshaped"]
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        for k, n in LARGE:
            check(names, {"b": 2, "m": 1, "k": k, "n": n}, "float32", TARGETS[target])
    assert not caplog.records


def test_one_row_of_a_large_matrix_of_symbolic_size():
    sizes = {"b": 2, "m": 1, "k": 512, "n": 512}
    for symbolic in "mkn":
        check(["product", "one row"], sizes, "float32", TARGETS["host"], symbolic)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64"])
def test_one_row_of_a_large_matrix_of_other_types(dtype):
    sizes = {"b": 2, "m": 1, "k": 1024, "n": 1024}
    check(["one row", "batched row"], sizes, dtype, TARGETS["host"])


def test_sums_of_the_columns_of_a_large_matrix():
    sizes = {"b": 2, "m": 512, "k": 1000, "n": 1}
    check(["sum of columns", "sum of planes"], sizes, "float32", TARGETS["host"])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "int64"])
@pytest.mark.turns(5)
def test_types(dtype):
    floats = dtype.startswith(("float", "bfloat"))
    names = [name for name, form in FORMS.items() if floats or not form.floats_only]
    if dtype == "bfloat16":
        names.remove("argmax")  # TVM does not compile it, whatever its schedule
    check(names, {"b": 3, "m": 19, "k": 32, "n": 64}, dtype, TARGETS["host"])


def scheduled(build, *shapes):
    """The text of the one function that computes an expression, scheduled for vectors of 16."""
    builder = relax.BlockBuilder()
    parameters = [
        relax.Var(f"p{at}", relax.TensorType(shape, "float32")) for at, shape in enumerate(shapes)
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(*parameters)))
        builder.emit_func_output(result)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    with target:
        mod = scheduled_for_cpu(builder.get(), target)
    (function,) = (each for each in mod.functions.values() if isinstance(each, tirx.PrimFunc))
    return function.script()


@pytest.mark.parametrize("symbolic", ["", "m"])
def test_a_product_is_computed_in_tiles(symbolic):
    """Vectors of columns, several rows at once, and threads."""
    rows = tirx.Var("m", "int64") if symbolic else 512
    text = scheduled(relax.op.matmul, (rows, 512), (512, 512))
    assert "T.vectorized(T.int64(32))" in text
    assert "T.unroll(T.int64(8))" in text
    assert "T.parallel" in text


@pytest.mark.parametrize(("width", "lanes"), [(20, 20), (32, 32), (64, 16), (72, 8)])
def test_short_rows_are_computed_in_vectors(width, lanes):
    """LLVM would unroll them and make vectors of elements of different rows."""
    text = scheduled(FORMS["rows scaled"].build, (1000, 4, width), (1000, 4))
    assert f"T.vectorized(T.int64({lanes}))" in text
    assert "T.parallel(T.int64(4000))" in text


def test_rows_of_one_short_number():
    """TVM cannot write a vector of one number of bfloat16."""
    numbers = np.arange(6, dtype="float32").astype(ml_dtypes.bfloat16)

    def repeated(given):
        emit = relax.BlockBuilder.current().emit
        twice = emit(relax.op.expand_dims(emit(relax.op.add(given, given)), 1))
        return relax.op.broadcast_to(twice, (given.ty.shape[0], 16))

    result = run(repeated, [numbers], symbolic=(6,), schedule=True)
    np.testing.assert_array_equal(result, np.broadcast_to((numbers + numbers)[:, None], (6, 16)))


@pytest.mark.parametrize(
    "build",
    [
        lambda a: relax.op.full((1000, 256), relax.const(0.0, "float32")),
        lambda a: relax.op.multiply(a, relax.op.add(a, relax.const(1.0, "float32"))),
    ],
    ids=["zeros", "elements"],
)
def test_what_needs_no_rows_is_one_loop(build):
    """LLVM would unroll the rows, and write each of them backwards."""
    text = scheduled(build, (1000, 256))
    assert "T.parallel(T.int64(256000))" in text
    assert text.count("for ") == 1


@pytest.mark.optimised
def test_a_scheduled_product_is_several_times_as_fast():
    sizes, times = {"m": 512, "k": 512, "n": 512}, []
    form = FORMS["product"]
    arrays = [tvm.runtime.tensor(np.ones((512, 512), "float32")) for _ in form.shapes]
    for schedule in (False, True):
        machine = compiled([form], sizes, "float32", host_target(), schedule=schedule)
        times.append(min(seconds(machine, arrays) for _ in range(3)))
    assert times[0] > 5 * times[1], times


def seconds(machine, arrays):
    start = time.perf_counter()
    machine["f0"](*arrays)
    return time.perf_counter() - start
