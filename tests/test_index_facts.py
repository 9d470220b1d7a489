"""What is known of indices holds for all inputs, and the programs that use it compute the same."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import index_programs
import numpy as np
import pytest
import tvm
import tvm_ffi
from harness import device_of, target_of
from tvm import relax, te, tirx, topi

import tvm_scatter
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.compaction import true_positions
from tvm_scatter.passes.analysis.index_analysis import IndexAnalysis


def few(often, rarely):
    """Parameters of which most are tried in exhaustive runs only."""
    return [*often, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in rarely)]


def bound(value, sizes):
    """A bound as a number."""
    if isinstance(value, int):
        return value
    filled = tvm_ffi.structural_map(
        value, (tvm.ir.Var, lambda var: tirx.IntImm("int64", sizes[var.name]))
    )
    return int(tvm.sym.Analyzer().simplify(filled))


def check(facts, array, sizes, what):
    """Everything that is known of a tensor is true of its elements."""
    array = array.astype(object)
    low, high = (bound(each, sizes) for each in facts.range)
    flat = array.reshape(-1)
    assert all(low <= each <= high for each in flat), (what, low, high, flat)
    if facts.ascending:
        assert all(a <= b for a, b in pairwise(flat)), (what, flat)
    if facts.uniform:
        assert len(set(flat)) <= 1, (what, flat)
    if facts.distinct:
        axes = sorted(facts.distinct)
        lines = np.moveaxis(array, axes, range(-len(axes), 0))
        count = int(np.prod([array.shape[axis] for axis in axes]))
        for line in lines.reshape(-1, count) if count else ():
            assert len(set(line)) == len(line), (what, line)


def analysed(seed):
    builder = relax.BlockBuilder()
    program = index_programs.draw(seed, builder)
    mod = builder.get()
    return program, mod, IndexAnalysis(mod, mod["main"])


@pytest.mark.parametrize("group", few(range(1), range(1, 50)))
def test_what_is_known_is_true(group):
    found = 0
    for seed in range(group * 40, group * 40 + 40):
        program, _, known = analysed(seed)
        facts = [known(each) for each in program.variables]
        for size in index_programs.SIZES:
            values = program.evaluate(index_programs.inputs(size, seed))
            for at, (each, array) in enumerate(zip(facts, values, strict=True)):
                sizes = {
                    "n": size,
                    **{
                        str(dim): count
                        for var, value in zip(program.variables, values, strict=True)
                        for dim, count in zip(var.ty.shape.values, value.shape, strict=True)
                        if isinstance(dim, tvm.ir.Var)
                    },
                }
                if each is not None:
                    check(each, array, sizes, (seed, size, at))
                    found += bool(each.distinct or each.ascending)
    assert found > 200


N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
TYPES = {
    "x": relax.TensorType([N], "int64"),
    "y": relax.TensorType([M], "int64"),
    "matrix": relax.TensorType([N, 4], "int64"),
    "ten": relax.TensorType([10], "int64"),
    "i": relax.TensorType([10], "int32"),
    "byte": relax.TensorType([10], "uint8"),
    "real": relax.TensorType([10], "float32"),
    "mask": relax.TensorType([N], "bool"),
}
op = relax.op


def number(value, dtype="int64"):
    return relax.const(value, dtype)


def order(e, tensor, **attributes):
    return e(op.argsort(tensor, dtype="int64", **attributes))


#: Fragments of graphs, with what is known of each: the range, the axes along which elements are
#: distinct, and the order.
TABLE = {
    # Creation
    "arange(n)": (lambda e, p: op.arange(0, N, 1, "int64"), "[0, n - 1] distinct 0 ascending"),
    "arange(2, 11, 3)": (
        lambda e, p: op.arange(2, 11, 3, "int64"),
        "[2, 8] distinct 0 ascending",
    ),
    "arange(n) of int32": (lambda e, p: op.arange(0, N, 1, "int32"), "int32"),
    "zeros": (lambda e, p: op.zeros([N], "int64"), "[0, 0] ascending uniform"),
    "a constant": (lambda e, p: op.add(number([2, 0, 1]), number(0)), "[0, 2] distinct 0"),
    "a constant with a duplicate": (
        lambda e, p: op.add(number([0, 0, 3]), number(0)),
        "[0, 3] ascending",
    ),
    # Inputs
    "an input": (lambda e, p: p.x, "int64"),
    "an input of bytes": (lambda e, p: op.astype(p.byte, "int64"), "[0, 255]"),
    "a float": (lambda e, p: op.astype(p.real, "int64"), "int64"),
    "a mask": (lambda e, p: op.astype(p.mask, "int64"), "[0, 1]"),
    # Sorting
    "argsort": (lambda e, p: op.argsort(p.x, dtype="int64"), "[0, n - 1] distinct 0"),
    "argsort of int32, which may be too small": (lambda e, p: op.argsort(p.x), "int32"),
    "argsort of int32": (lambda e, p: op.argsort(p.ten), "[0, 9] distinct 0"),
    "argsort of what may be NaN": (lambda e, p: op.argsort(p.real), "[0, 9]"),
    "argsort of rows": (lambda e, p: op.argsort(p.matrix, 1), "[0, 3] distinct 1"),
    "sort": (lambda e, p: op.sort(op.astype(p.byte, "int64")), "[0, 255] ascending"),
    "sort of a permutation": (
        lambda e, p: op.sort(order(e, p.x)),
        "[0, n - 1] distinct 0 ascending",
    ),
    "the largest 3 of 4": (
        lambda e, p: op.topk(p.matrix, 3, 1, "indices", True, "int64"),
        "[0, 3] distinct 1",
    ),
    "the largest 3 of n": (lambda e, p: op.topk(p.x, 3, 0, "indices", True, "int64"), "int64"),
    "bucketize": (lambda e, p: op.bucketize(p.real, number([1.0, 2.0], "float32")), "[0, 2]"),
    "bucketize of what ascends": (
        lambda e, p: op.bucketize(op.arange(0, N, 1, "int64"), p.ten),
        "[0, 10] ascending",
    ),
    "true positions": (lambda e, p: true_positions(p.mask), "[0, n - 1] distinct 0 ascending"),
    "nonzero": (lambda e, p: op.nonzero(p.ten), "[0, 9] distinct 0, 1 ascending"),
    "nonzero of a matrix": (lambda e, p: op.nonzero(op.zeros([3, 7], "int64")), "[0, 6]"),
    # Arithmetic
    "x % 7": (lambda e, p: op.floor_mod(p.x, number(7)), "[0, 6]"),
    "x % -7": (lambda e, p: op.floor_mod(p.x, number(-7)), "int64"),
    "x % y": (lambda e, p: op.floor_mod(p.ten, p.ten), "int64"),
    "mod with the sign of x": (lambda e, p: op.mod(p.x, number(7)), "int64"),
    "mod of no sign": (lambda e, p: op.mod(op.astype(p.byte, "int64"), number(7)), "[0, 6]"),
    "a permutation % n": (
        lambda e, p: op.floor_mod(order(e, p.ten), number(10)),
        "[0, 9] distinct 0",
    ),
    "argsort // 2": (lambda e, p: op.floor_divide(order(e, p.ten), number(2)), "[0, 4]"),
    "x // 2": (lambda e, p: op.floor_divide(p.i, number(2, "int32")), "[-1073741824, 1073741823]"),
    "x / 2": (lambda e, p: op.divide(p.i, number(2, "int32")), "int32"),
    "x // 0": (lambda e, p: op.floor_divide(p.x, number(0)), "int64"),
    "x + 1": (lambda e, p: op.add(p.x, number(1)), "int64"),
    "argsort + 1": (lambda e, p: op.add(order(e, p.x), number(1)), "[1, n] distinct 0"),
    "argsort * 3": (
        lambda e, p: op.multiply(order(e, p.x), number(3)),
        "[0, n * 3 - 3] distinct 0",
    ),
    "argsort * 0": (lambda e, p: op.multiply(order(e, p.x), number(0)), "[0, 0]"),
    "argsort * 2**60": (lambda e, p: op.multiply(order(e, p.x), number(1 << 60)), "int64"),
    "argsort + argsort": (lambda e, p: op.add(order(e, p.ten), order(e, p.ten)), "[0, 18]"),
    "9 - argsort": (lambda e, p: op.subtract(number(9), order(e, p.ten)), "[0, 9] distinct 0"),
    "-argsort": (lambda e, p: op.negative(order(e, p.ten)), "[-9, 0] distinct 0"),
    "abs of int32": (lambda e, p: op.abs(p.i), "int32"),
    "abs of a few": (lambda e, p: op.abs(op.clip(p.x, -2, 1)), "[0, 2]"),
    "clip": (lambda e, p: op.clip(p.x, 0, 5), "[0, 5]"),
    "clip of a permutation": (lambda e, p: op.clip(order(e, p.ten), 0, 20), "[0, 9]"),
    "maximum": (lambda e, p: op.maximum(op.astype(p.i, "int64"), number(0)), "[0, 2147483647]"),
    "minimum of an arange": (
        lambda e, p: op.minimum(op.arange(0, N, 1, "int64"), number(3)),
        "[0, T.min(n - 1, 3)] ascending",
    ),
    "x & 7": (lambda e, p: op.bitwise_and(p.x, number(7)), "[0, 7]"),
    "where": (
        lambda e, p: op.where(op.less(p.ten, number(0)), number(2), order(e, p.ten)),
        "[0, 9]",
    ),
    "a cast that wraps": (lambda e, p: op.astype(p.x, "int32"), "int32"),
    "a cast that fits": (lambda e, p: op.astype(order(e, p.ten), "uint8"), "[0, 9] distinct 0"),
    "a cast that may not fit": (lambda e, p: op.astype(order(e, p.x), "int32"), "int32"),
    "cumsum of a mask": (
        lambda e, p: op.cumsum(op.astype(p.mask, "int64"), 0),
        "[0, n] ascending",
    ),
    "cumsum of ones": (
        lambda e, p: op.cumsum(op.ones([10], "int64"), 0),
        "[0, 10] distinct 0 ascending",
    ),
    "cumsum of an input": (lambda e, p: op.cumsum(p.x, 0), "int64"),
    # Views and parts
    "reshape": (
        lambda e, p: op.reshape(op.arange(0, 12, 1, "int64"), [3, 4]),
        "[0, 11] distinct 0, 1 ascending",
    ),
    "reshape of rows": (
        lambda e, p: op.reshape(op.argsort(p.matrix, 1, dtype="int64"), [N * 4]),
        "[0, 3]",
    ),
    "permute_dims": (
        lambda e, p: op.permute_dims(op.argsort(p.matrix, 1, dtype="int64")),
        "[0, 3] distinct 0",
    ),
    "broadcast_to": (
        lambda e, p: op.broadcast_to(op.expand_dims(order(e, p.x), 1), [N, 4]),
        "[0, n - 1] distinct 0",
    ),
    "a part": (
        lambda e, p: op.strided_slice(order(e, p.ten), [0], [2], [5]),
        "[0, 9] distinct 0",
    ),
    "a part of what may be shorter": (
        lambda e, p: op.strided_slice(order(e, p.x), [0], [2], [5]),
        "int64",
    ),
    "a part backwards": (
        lambda e, p: op.strided_slice(op.arange(0, 10, 1, "int64"), [0], [9], [0], [-1]),
        "[0, 9] distinct 0",
    ),
    "flip": (lambda e, p: op.flip(op.arange(0, N, 1, "int64"), 0), "[0, n - 1] distinct 0"),
    "repeat": (lambda e, p: op.repeat(op.arange(0, N, 1, "int64"), 2, 0), "[0, n - 1] ascending"),
    "concat apart": (
        lambda e, p: op.concat([order(e, p.ten), op.arange(10, 12, 1, "int64")], 0),
        "[0, 11] distinct 0",
    ),
    "concat of what meets": (
        lambda e, p: op.concat([order(e, p.ten), op.arange(9, 12, 1, "int64")], 0),
        "[0, 11]",
    ),
    # By index
    "a permutation of a permutation": (
        lambda e, p: op.take(order(e, p.x), order(e, p.x), 0),
        "[0, n - 1] distinct 0",
    ),
    "take by what may be out of bounds": (lambda e, p: op.take(order(e, p.ten), p.x, 0), "[0, 9]"),
    "the inverse of a permutation": (
        lambda e, p: ops.index_put(
            e(op.zeros([N], "int64")), [order(e, p.x)], e(op.arange(0, N, 1, "int64"))
        ),
        "[0, n - 1] distinct 0",
    ),
    "ranks of a part": (
        lambda e, p: ops.index_put(
            e(op.zeros([N], "int64")), [order(e, p.y)], e(op.arange(0, M, 1, "int64"))
        ),
        None,
    ),
}


def facts_of(build):
    builder = relax.BlockBuilder()
    parameters = SimpleNamespace(**{name: relax.Var(name, ty) for name, ty in TYPES.items()})
    with builder.function("main", list(vars(parameters).values())):
        with builder.dataflow():
            found = builder.emit(build(builder.emit, parameters))
            output = builder.emit_output(found)
        builder.emit_func_output(output)
    mod = builder.get()
    return IndexAnalysis(mod, mod["main"])(found)


def in_words(facts):
    words = [str(facts.range)]
    if facts.distinct:
        words.append(f"distinct {', '.join(map(str, sorted(facts.distinct)))}")
    words += ["ascending"] if facts.ascending else []
    return " ".join(words + ["uniform"] * facts.uniform)


@pytest.mark.parametrize("name", TABLE)
def test_by_eye(name):
    build, said = TABLE[name]
    facts = facts_of(build)
    if said in ("int32", "int64"):
        said = f"[{np.iinfo(said).min}, {np.iinfo(said).max}]"
    if said is None:
        assert facts is None or not (facts.distinct or facts.ascending)
    else:
        assert in_words(facts) == said


#: The same for functions of TIR, as importers write them for what no operator of Relax says.
FUNCTIONS = {
    "positions": (
        ["x"],
        lambda x: te.compute(x.shape, lambda i: i * 2 + 1),
        "[1, n * 2 - 1] distinct 0 ascending",
    ),
    "the first three": (
        ["sorted_ten"],
        lambda x: te.compute((3,), lambda i: x(i)),
        "[0, 9] distinct 0",
    ),
    "three behind the end": (
        ["sorted_ten"],
        lambda x: te.compute((3,), lambda i: x(i + 8)),
        "int64",
    ),
    "at a permutation": (
        ["sorted_ten", "sorted_ten"],
        lambda x, y: te.compute((10,), lambda i: x(y(i))),
        "[0, 9] distinct 0",
    ),
    "the diagonal of distinct columns": (
        ["sorted_rows"],
        lambda x: te.compute((4,), lambda i: x(i, i)),
        "[0, 3]",
    ),
    "distinct columns": (
        ["sorted_rows"],
        lambda x: te.compute((4, 4), lambda i, j: x(j, i)),
        "[0, 3] distinct 0",
    ),
    "one or the other": (
        ["sorted_ten"],
        lambda x: te.compute((10,), lambda i: tirx.Select(x(i) > 3, x(i), i.astype("int64"))),
        "[0, 9]",
    ),
    "a sum of two axes": (
        ["sorted_ten"],
        lambda x: te.compute((10, 4), lambda i, j: x(i) + j),
        "[0, 12]",
    ),
    "coordinates": (
        ["sorted_ten"],
        lambda x: te.compute((10,), lambda i: tirx.floormod(tirx.floordiv(x(i), 2), 3)),
        "[0, 2]",
    ),
    "what may wrap": (["x"], lambda x: te.compute(x.shape, lambda i: x(i) + 1), "int64"),
    "a running sum": (
        ["sorted_ten"],
        lambda x: topi.cumsum(x, 0),
        "int64",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_by_eye(name):
    operands, function, said = FUNCTIONS[name]
    builder = relax.BlockBuilder()
    parameters = {name: relax.Var(name, ty) for name, ty in TYPES.items()}
    with builder.function("main", list(parameters.values())):
        with builder.dataflow():
            parameters["sorted_ten"] = order(builder.emit, parameters["ten"])
            rows = builder.emit(op.zeros([4, 4], "int64"))
            parameters["sorted_rows"] = builder.emit(op.argsort(rows, 1, dtype="int64"))
            found = builder.emit_te(function, *(parameters[name] for name in operands))
            output = builder.emit_output(found)
        builder.emit_func_output(output)
    mod = builder.get()
    facts = IndexAnalysis(mod, mod["main"])(found)
    if said == "int64":
        assert facts.range.low == np.iinfo("int64").min and not facts.distinct
    else:
        assert in_words(facts) == said


def scattered(emit, index, extent=10, reduction="add", **attributes):
    """A scatter of rows by an index, which is to say of its own number."""
    rows = emit(op.ones([*index.ty.shape.values, 4], "float32"))
    data = emit(op.zeros([extent, 4], "float32"))
    return ops.index_put(data, [index], rows, [0], reduction, **attributes)


def module_of(build):
    """A module that returns what ``build`` makes of the parameters."""
    builder = relax.BlockBuilder()
    parameters = SimpleNamespace(**{name: relax.Var(name, ty) for name, ty in TYPES.items()})
    with builder.function("main", list(vars(parameters).values())):
        with builder.dataflow():
            output = builder.emit_output(build(builder.emit, parameters))
        builder.emit_func_output(output)
    return builder.get()


def problem_of(build, **options):
    """The problem of the only scatter of a program, and what is said of its index."""
    with tvm_scatter.options(**options):
        [found] = tvm_scatter.explain(module_of(build), "llvm")
    return found


def test_a_permutation_is_unique_and_in_range():
    def build(e, p):
        return scattered(e, order(e, p.ten))

    found = problem_of(build)
    assert found.problem.unique and found.problem.bounds == "trust"
    assert ("index", "in [0, 9], unique, by argsort") in found.lines()
    without = problem_of(build, index_facts=False)
    assert not without.problem.unique and without.problem.bounds == "raise" and not without.index


@pytest.mark.parametrize(
    ("index", "extent", "wrap", "in_range", "unique"),
    [
        (lambda e, p: order(e, p.ten), 10, True, True, True),
        (lambda e, p: order(e, p.ten), 9, True, False, True),
        (lambda e, p: e(op.floor_mod(p.ten, number(7))), 7, True, True, False),
        (lambda e, p: e(op.floor_mod(p.ten, number(8))), 7, True, False, False),
        # -10 to -1 are all in range if they count from the end, and may meet 0 to 9.
        (lambda e, p: e(op.subtract(order(e, p.ten), number(10))), 10, True, True, False),
        (lambda e, p: e(op.subtract(order(e, p.ten), number(10))), 10, False, False, True),
        (lambda e, p: e(op.subtract(order(e, p.ten), number(5))), 10, True, True, False),
        (lambda e, p: e(op.clip(p.ten, 0, 9)), 10, True, True, False),
        (lambda e, p: order(e, p.x), N, True, True, True),
        (lambda e, p: order(e, p.x), N + 1, True, True, True),
        (lambda e, p: order(e, p.x), M, True, False, True),
        (lambda e, p: e(op.arange(0, N, 1, "int64")), N - 1, True, False, True),
    ],
)
def test_what_a_scatter_need_not_check(index, extent, wrap, in_range, unique):
    found = problem_of(
        lambda e, p: scattered(e, index(e, p), extent, wrap_negative=wrap), bounds="drop"
    )
    assert (found.problem.bounds == "trust", found.problem.unique) == (in_range, unique)


def test_pairs_of_indices():
    """Rows are numbered, and columns differ within each row."""

    def build(columns, rows=lambda p: op.arange(0, N, 1, "int64")):
        def found(e, p):
            row = e(op.expand_dims(e(rows(p)), 1))
            index = e(columns(p))
            updates = e(op.ones([N, 4], "float32"))
            return ops.index_put(e(op.zeros([N, 4], "float32")), [row, index], updates, [0, 1])

        return problem_of(found, bounds="drop").problem

    def differ(p):
        return op.argsort(p.matrix, 1, dtype="int64")

    found = build(differ)
    assert found.unique and found.bounds == "trust"
    found = build(lambda p: op.floor_mod(p.matrix, number(4)))
    assert not found.unique and found.bounds == "trust"
    # Two rows may be one, and then two of their columns.
    assert not build(differ, lambda p: op.maximum(p.x, number(0))).unique


def compiled(mod, device, **options):
    with tvm_scatter.options(**options):
        executable = tvm.compile(mod, target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", few(range(2), range(2, 40)))
def test_programs_compute_the_same(device, seed):
    mod = index_programs.scattering(seed)
    with_facts, without = (
        compiled(mod, device, bounds="drop", index_facts=wanted, deterministic=True)
        for wanted in (True, False)
    )
    for size in index_programs.SIZES:
        arrays = index_programs.inputs(size, seed).values()
        arguments = [tvm.runtime.tensor(array, device=device_of(device)) for array in arrays]
        for one, other in zip(
            with_facts["main"](*arguments), without["main"](*arguments), strict=True
        ):
            np.testing.assert_array_equal(one.numpy(), other.numpy(), err_msg=str((seed, size)))


def passed(build, target="llvm", **options):
    """A module of what ``build`` makes of the parameters, after the passes."""
    mod = module_of(build)
    with tvm_scatter.options(**options) as wanted, target_of(target):
        return mod, tvm.transform.Sequential(tvm_scatter.passes.passes(wanted))(mod)


def ranks(e, p):
    return order(e, order(e, p.x))


def test_the_sort_of_a_permutation_is_a_scatter():
    _, mod = passed(ranks)
    assert mod.script().count("R.argsort(") == 1 and "in_range=True" in mod.script()
    _, mod = passed(ranks, index_facts=False)
    assert mod.script().count("R.argsort(") == 2
    # Of floats, a sort may be no permutation; a descending sort is left alone.
    for build in (
        lambda e, p: e(op.argsort(order(e, p.real))),
        lambda e, p: e(op.argsort(order(e, p.ten), 0, True)),
    ):
        _, mod = passed(build)
        assert mod.script().count("R.argsort(") == 2


def permutation(e, p):
    return order(e, p.ten)


def zeros(rows):
    return lambda e, p: e(op.zeros([rows, 4], "float32"))


def written(e, p, data=None, index=permutation):
    data = data or zeros(10)
    rows = e(op.multiply(e(op.ones([10, 4], "float32")), e(op.reshape(p.real, [10, 1]))))
    return e(ops.index_put(data(e, p), [index(e, p)], rows, [0]))


def test_what_is_written_everywhere_is_not_read():
    _, mod = passed(written)
    assert "R.zeros" not in mod.script() and "in_place=True" in mod.script()
    for without in ({"index_facts": False}, {"in_place": False}):
        assert "R.zeros" in passed(written, **without)[1].script()
    # A row may be left as it is.
    for data, index in (
        (zeros(10), lambda e, p: p.ten),
        (zeros(10), lambda e, p: e(op.floor_mod(p.ten, number(10)))),
        (zeros(11), permutation),
    ):
        _, mod = passed(lambda e, p, data=data, index=index: written(e, p, data, index))
        assert "R.zeros" in mod.script()


def test_permutations_compute_the_same(device):
    def both(e, p):
        return relax.Tuple([ranks(e, p), written(e, p), e(op.argsort(order(e, p.ten)))])

    mod, _ = passed(both)
    machines = [compiled(mod, device, index_facts=wanted) for wanted in (True, False)]
    generator = np.random.default_rng(0)
    for count in (0, 1, 300):
        sizes = {"n": count, "m": 3}
        arrays = []
        for type_ in TYPES.values():
            shape = [
                bound(s if isinstance(s, tvm.ir.Var) else int(s), sizes) for s in type_.shape.values
            ]
            arrays.append(generator.integers(0, 9, shape).astype(str(type_.dtype)))
        given = [tvm.runtime.tensor(each, device=device_of(device)) for each in arrays]
        for one, other in zip(*(machine["main"](*given) for machine in machines), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
        np.testing.assert_array_equal(
            machines[0]["main"](*given)[0].numpy(), np.argsort(np.argsort(arrays[0], kind="stable"))
        )


SUMS = {
    "indices of different sizes": lambda builder: ops.index_put(
        relax.const(np.zeros((2, 2), "int64")),
        [relax.const(np.zeros(1, "int64")), relax.const(np.zeros(50, "int64"))],
        relax.const(np.full(50, 2, "int64")),
        [0, 1],
        "add",
    ),
    "tuples of nothing": lambda builder: ops.scatter_nd(
        relax.const(np.zeros((2, 2), "int64")),
        relax.const(np.zeros((50, 0), "int64")),
        relax.const(np.full((50, 2, 2), 2, "int64")),
        "add",
    ),
}


@pytest.mark.parametrize("summed", SUMS.values(), ids=SUMS)
def test_each_place_may_get_every_update(summed):
    """The sum is 100, outside of what has 60 entries."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([60], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = builder.emit(summed(builder))
            index = builder.emit(relax.op.reshape(sums, [4]))
            output = builder.emit_output(relax.op.take(x, index, 0))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target_of("llvm")), tvm.cpu())
    with pytest.raises(IndexError, match="index 100 at"):
        machine["main"](tvm.runtime.tensor(np.zeros(60, "float32")))


@pytest.mark.parametrize("operator", [relax.op.cumsum, relax.op.sort, relax.op.argsort])
def test_nothing_is_known_of_scans_without_axes(operator):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([], "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(operator(x))
        builder.emit_func_output(output)
    with tvm_scatter.options() as current, target_of("llvm"):
        tvm.transform.Sequential(tvm_scatter.passes.passes(current))(builder.get())
