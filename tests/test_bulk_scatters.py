"""Chains of scatters into one tensor become one, and compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import tvm
from harness import device_of, target_of
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.scatter_call import is_scatter
from tvm_scatter.passes import MergeScatterChains

_ROWS, _COLUMNS = 40, 6
_LLVM = tvm.target.Target("llvm")


class Chain:
    """A function under construction: each step gets the tensor so far, NumPy's and Relax's."""

    def __init__(self, builder, parameters, arrays):
        self.builder, self.parameters, self.arrays = builder, parameters, arrays
        self.tensor, self.array = parameters["x"], arrays["x"].copy()
        self.more = []

    def emit(self, expression):
        return self.builder.emit(expression)

    def put(self, place, index, updates, reduction="update", axes=(0,), **attributes):
        """``index_put`` by ``index``, as ``array[place]`` says it in NumPy."""
        vectors = [self.index(each) for each in (index if isinstance(index, tuple) else (index,))]
        values = self.parameters[updates]
        call = ops.index_put(self.tensor, vectors, values, axes, reduction, **attributes)
        self.tensor = self.emit(call)
        self.combine(place, self.arrays[updates], reduction)

    def index(self, index):
        if isinstance(index, str):
            return self.parameters[index]
        return relax.const(np.asarray(index), "int64")

    def combine(self, place, values, reduction):
        self.array = self.array.copy()
        if reduction == "update":
            self.array[place] = values
        elif reduction == "add":
            np.add.at(self.array, place, values)
        elif reduction == "max":
            np.maximum.at(self.array, place, values)

    def keep(self):
        """Return the tensor so far as well."""
        self.more.append((self.tensor, self.array))


def arrays():
    generator = np.random.default_rng(0)

    def whole(*shape):
        return generator.integers(-9, 9, shape).astype("float32")

    return {
        "x": whole(_ROWS, _COLUMNS),
        "row": whole(1, _COLUMNS),
        "other": whole(1, _COLUMNS),
        "rows": whole(5, _COLUMNS),
        "more_rows": whole(5, _COLUMNS),
        "column": whole(_ROWS, 1),
        "two_columns": whole(_ROWS, 2),
        "scalar": whole(),
        "points": whole(3),
        "index": np.array([3, 1, 30, 7, 8]),
        "overlapping": np.array([8, 2, 3, 39, 5]),
        "narrow": np.array([3, 2, 1, 0, 9], "int32"),
        "negative": np.array([-1, 4, -40, 5, 6]),
        "column_index": np.array([4, 1]),
        "other_column_index": np.array([0, 4]),
    }


def constant_rows(chain):
    for at, name in enumerate(("row", "other", "row", "other")):
        chain.put([3 * at], [3 * at], name)


def overlapping_constants(chain):
    chain.put(np.arange(5), np.arange(5), "rows")
    chain.put(np.arange(3, 8), np.arange(3, 8), "more_rows")
    chain.put([4], [4], "row")


def one_row_again_and_again(chain):
    for name in ("row", "other", "row"):
        chain.put([7], [7], name)


def strided(chain):
    chain.put(np.arange(0, 10, 2), np.arange(0, 10, 2), "rows")
    chain.put(np.arange(9, 4, -1), np.arange(9, 4, -1), "more_rows")


def columns(chain):
    chain.put((slice(None), [1]), [1], "column", axes=(1,))
    chain.put((slice(None), [4]), [4], "column", axes=(1,))


def everything(chain):
    for start in range(0, _ROWS, 5):
        chain.put(np.arange(start, start + 5), np.arange(start, start + 5), "rows")


def broadcast_number(chain):
    chain.put([1], [1], "scalar")
    chain.put([2, 5], [2, 5], "scalar")


def known_when_run(chain):
    chain.put(chain.arrays["index"], "index", "rows")
    chain.put(chain.arrays["overlapping"], "overlapping", "more_rows")


def known_and_not(chain):
    chain.put([3], [3], "row")
    chain.put(chain.arrays["index"], "index", "rows")
    chain.put([30], [30], "other")


def index_types(chain):
    chain.put(chain.arrays["index"], "index", "rows")
    chain.put(chain.arrays["narrow"], "narrow", "more_rows")


def columns_known_when_run(chain):
    for name in ("column_index", "other_column_index"):
        place = (slice(None), chain.arrays[name])
        chain.put(place, name, "two_columns", axes=(1,))


def negative(chain):
    chain.put(chain.arrays["negative"], "negative", "rows")
    chain.put(chain.arrays["index"], "index", "more_rows")


def sums(chain):
    chain.put(chain.arrays["index"], "index", "rows", "add")
    chain.put(chain.arrays["overlapping"], "overlapping", "more_rows", "add")
    chain.put([3], [3], "row", "add")


def maxima(chain):
    chain.put([3], [3], "row", "max")
    chain.put([3], [3], "other", "max")


def pairs(chain):
    chain.put(([0, 1, 2], [3, 3, 4]), ([0, 1, 2], [3, 3, 4]), "points", axes=(0, 1))
    chain.put(([2, 1, 9], [4, 0, 5]), ([2, 1, 9], [4, 0, 5]), "points", axes=(0, 1))


def stock_operators(chain):
    for name in ("rows", "more_rows"):
        index = np.tile(np.arange(5)[:, None], (1, _COLUMNS))
        call = relax.op.scatter_elements(
            chain.tensor, relax.const(index, "int64"), chain.parameters[name]
        )
        chain.tensor = chain.emit(call)
        chain.combine(np.arange(5), chain.arrays[name], "update")


def tuples(chain):
    for name, reduction in (("rows", "add"), ("more_rows", "add")):
        index = chain.emit(relax.op.expand_dims(chain.parameters["index"], 1))
        chain.tensor = chain.emit(
            ops.scatter_nd(chain.tensor, index, chain.parameters[name], reduction)
        )
        chain.combine(chain.arrays["index"], chain.arrays[name], reduction)


def tuples_in_order(chain):
    for index, name in (("index", "rows"), ("overlapping", "more_rows")):
        places = chain.emit(relax.op.reshape(chain.parameters[index], [5, 1]))
        chain.tensor = chain.emit(ops.scatter_nd(chain.tensor, places, chain.parameters[name]))
        chain.combine(chain.arrays[index], chain.arrays[name], "update")


def reductions_differ(chain):
    chain.put([3], [3], "row", "add")
    chain.put([3], [3], "other")


def all_kinds(chain):
    """Each overlaps those before."""
    chain.put(([1, 2], [4, 4]), ([1, 2], [4, 4]), "scalar", axes=(0, 1))
    chain.put([2], [2], "row")
    chain.put((slice(None), [3]), [3], "column", axes=(1,))
    chain.put(([2, 5], [3, 0]), ([2, 5], [3, 0]), "scalar", axes=(0, 1))


def axes_differ_and_are_not_known(chain):
    chain.put(chain.arrays["index"], "index", "rows")
    chain.put((slice(None), [1]), [1], "column", axes=(1,))


def elements_of_a_slice(chain):
    """As PyTorch's ``x[2:7, 3] = v`` arrives, and a row after it."""
    part = chain.emit(relax.op.strided_slice(chain.tensor, [0], [2], [7]))
    column = chain.emit(relax.op.strided_slice(chain.parameters["rows"], [1], [0], [1]))
    part = chain.emit(ops.index_put(part, [relax.const([3], "int64")], column, [1]))
    chain.tensor = chain.emit(
        ops.index_put(chain.tensor, [relax.const(np.arange(2, 7), "int64")], part, [0])
    )
    chain.array = chain.array.copy()
    chain.array[2:7, 3] = chain.arrays["rows"][:, 0]
    chain.put([5], [5], "row")


def axes_differ(chain):
    chain.put([3], [3], "row")
    chain.put((slice(None), [1]), [1], "column", axes=(1,))


def intermediate_is_returned(chain):
    chain.put([3], [3], "row")
    chain.keep()
    chain.put([3], [3], "other")


def intermediate_is_read_after_a_later_write(chain):
    chain.put([3], [3], "row")
    first, expected = chain.tensor, chain.array
    chain.put([3], [3], "other")
    chain.more.append((chain.emit(relax.op.add(first, first)), expected + expected))


def intermediate_is_the_next_update(chain):
    chain.put([3], [3], "row")
    read = chain.emit(relax.op.strided_slice(chain.tensor, [0], [3], [4]))
    chain.tensor = chain.emit(ops.index_put(chain.tensor, [relax.const([8], "int64")], read, [0]))
    chain.combine([8], chain.array[3:4], "update")


def overlapping_chains(chain):
    """Two chains that begin with one scatter; only what follows it may be merged."""
    chain.put([3], [3], "row")
    tensor, array = chain.tensor, chain.array
    chain.put([4], [4], "other")
    chain.put([5], [5], "other")
    chain.keep()
    chain.tensor, chain.array = tensor, array
    chain.put([4], [4], "row")
    chain.put([6], [6], "row")


def changed_copy_of_another_row(chain):
    """``x[2] = x[1]`` but for one element is no write to an element of row 2."""
    row = chain.emit(relax.op.take(chain.tensor, relax.const(1, "int64"), 0))
    one = chain.emit(relax.op.reshape(chain.parameters["scalar"], [1]))
    row = chain.emit(ops.index_put(row, [relax.const([4], "int64")], one, [0]))
    row = chain.emit(relax.op.reshape(row, [1, _COLUMNS]))
    chain.tensor = chain.emit(ops.index_put(chain.tensor, [relax.const([2], "int64")], row, [0]))
    values = chain.array[1].copy()
    values[4] = chain.arrays["scalar"]
    chain.combine([2], values, "update")


def unread_reads(chain):
    """What ``x[i] = v`` leaves behind: a read of the row that nothing uses."""
    chain.put([3], [3], "row")
    chain.emit(relax.op.take(chain.tensor, relax.const(4, "int64"), 0))
    chain.put([4], [4], "other")


#: The function, and how many scatters are left of it.
CASES = {
    constant_rows: 1,
    overlapping_constants: 1,
    one_row_again_and_again: 1,
    strided: 1,
    columns: 1,
    everything: 1,
    broadcast_number: 1,
    known_when_run: 1,
    known_and_not: 1,
    index_types: 1,
    columns_known_when_run: 1,
    negative: 1,
    sums: 1,
    maxima: 1,
    pairs: 1,
    stock_operators: 1,
    tuples: 1,
    tuples_in_order: 1,
    reductions_differ: 2,
    axes_differ: 1,
    all_kinds: 1,
    axes_differ_and_are_not_known: 2,
    elements_of_a_slice: 1,
    intermediate_is_returned: 2,
    intermediate_is_read_after_a_later_write: 2,
    intermediate_is_the_next_update: 2,
    overlapping_chains: 3,
    changed_copy_of_another_row: 2,
    unread_reads: 1,
}


def module(symbolic=False, dataflow=True):
    """All cases as functions of one module, and what they must compute."""
    builder, expected = relax.BlockBuilder(), {}
    for case in CASES:
        values = arrays()
        count = tvm.tirx.Var("n", "int64")
        parameters = {
            name: relax.Var(
                name,
                relax.TensorType(
                    [count if symbolic and size == 5 else size for size in array.shape],
                    str(array.dtype),
                ),
            )
            for name, array in values.items()
        }
        with builder.function(case.__name__, list(parameters.values())):
            chain = Chain(builder, parameters, values)
            if dataflow:
                with builder.dataflow():
                    case(chain)
                    results = [chain.tensor, *(tensor for tensor, _ in chain.more)]
                    output = builder.emit_output(relax.Tuple(results))
            else:
                case(chain)
                output = builder.emit(
                    relax.Tuple([chain.tensor, *(tensor for tensor, _ in chain.more)])
                )
            builder.emit_func_output(output)
        expected[case.__name__] = [chain.array, *(array for _, array in chain.more)]
    return builder.get(), expected


def scatters(mod):
    """How many scatters each function calls."""
    counts = {}
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            found = []
            relax.analysis.post_order_visit(
                function,
                lambda each, found=found: found.append(each) if is_scatter(each) else None,
            )
            counts[name.name_hint] = len(found)
    return counts


def check(mod, expected, device, names=None, **switches):
    target, on = target_of(device), device_of(device)
    executable = tvm.compile(mod, target, relax_pipeline=tvm_scatter.pipeline(target, **switches))
    machine = relax.VirtualMachine(executable, on)
    arguments = [tvm.runtime.tensor(array, on) for array in arrays().values()]
    for name in names or expected:
        for result, right in zip(machine[name](*arguments), expected[name], strict=True):
            np.testing.assert_array_equal(result.numpy(), right, err_msg=name)


def test_number_of_scatters() -> None:
    mod, _ = module()
    with _LLVM:
        left = scatters(MergeScatterChains()(mod))
    assert left == {case.__name__: count for case, count in CASES.items()}


def test_results() -> None:
    mod, expected = module()
    check(mod, expected, "llvm")


def test_results_outside_of_dataflow_blocks() -> None:
    cases = [overlapping_constants, known_and_not, intermediate_is_the_next_update]
    mod, expected = module(dataflow=False)
    kept = tvm.IRModule({name: mod[name] for name in (case.__name__ for case in cases)})
    check(kept, {case.__name__: expected[case.__name__] for case in cases}, "llvm")


def test_results_with_symbolic_sizes() -> None:
    cases = [known_when_run, sums, tuples, negative]
    mod, expected = module(symbolic=True)
    kept = tvm.IRModule({name: mod[name] for name in (case.__name__ for case in cases)})
    with _LLVM:
        assert set(scatters(MergeScatterChains()(kept)).values()) == {1}
    check(kept, {case.__name__: expected[case.__name__] for case in cases}, "llvm")


@pytest.mark.parametrize("tuples", [False, True])
def test_scatters_whose_sizes_may_differ_stay_apart(tuples) -> None:
    """Each is checked by itself: together they may fit where neither does."""
    m, n = tvm.tirx.Var("m", "int64"), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([7, 3], "float32"))
    i = relax.Var("i", relax.TensorType([m, 1] if tuples else [m], "int64"))
    v = relax.Var("v", relax.TensorType([n, 3], "float32"))

    def write(data):
        return ops.scatter_nd(data, i, v) if tuples else ops.index_put(data, [i], v, [0])

    builder = relax.BlockBuilder()
    with builder.function("main", [x, i, v]):
        with builder.dataflow():
            output = builder.emit_output(write(builder.emit(write(x))))
        builder.emit_func_output(output)
    with _LLVM:
        assert scatters(MergeScatterChains()(builder.get())) == {"main": 2}


def test_results_on_cuda(device) -> None:
    if device == "llvm":
        pytest.skip("done above")
    mod, expected = module()
    cases = [
        overlapping_constants,
        columns,
        everything,
        known_when_run,
        known_and_not,
        index_types,
        negative,
        columns_known_when_run,
        tuples_in_order,
        sums,
        pairs,
        all_kinds,
        elements_of_a_slice,
    ]
    kept = tvm.IRModule({name: mod[name] for name in (case.__name__ for case in cases)})
    check(kept, {case.__name__: expected[case.__name__] for case in cases}, device)


def test_a_chain_is_one_kernel() -> None:
    """64 assignments, each a copy and a scatter by itself, are one launch on a GPU."""
    values = {"x": np.zeros((256, 8), "float32"), **{f"r{i}": np.zeros((1, 8)) for i in range(64)}}
    builder = relax.BlockBuilder()
    parameters = [
        relax.Var(name, relax.TensorType(array.shape, "float32")) for name, array in values.items()
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            tensor = parameters[0]
            for at, row in enumerate(parameters[1:]):
                tensor = builder.emit(
                    ops.index_put(tensor, [relax.const([3 * at], "int64")], row, [0])
                )
            output = builder.emit_output(tensor)
        builder.emit_func_output(output)
    target = tvm.target.Target("nvidia/nvidia-h100")
    with target:
        mod = tvm.transform.Sequential(
            [MergeScatterChains(), *relax.backend.cuda.pipeline.legalize_passes(target)]
        )(builder.get())
    calls = [
        binding.value
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]
    assert [call.op.name for call in calls] == ["relax.call_tir"]
    assert str(mod[calls[0].args[0]]).count('T.launch_thread("blockIdx.x"') <= 1


def test_a_forced_implementation_gets_each_scatter() -> None:
    """One that keeps no order cannot take what became one scatter, but could take the scatters."""
    mod, _ = module()
    kept = tvm.IRModule({"known_when_run": mod["known_when_run"]})
    with tvm_scatter.options(implementation="parallel_injective"), _LLVM:
        assert scatters(MergeScatterChains()(kept)) == {"known_when_run": 2}


def test_the_last_write_is_asked_for() -> None:
    """Only where writes may meet: an implementation that keeps no order is faster."""
    mod, _ = module()
    explanations = tvm_scatter.explain(mod, tvm.target.Target("nvidia/nvidia-h100"))
    asked = {
        each.where.split(".")[0]: each.problem.deterministic
        for each in explanations
        if each.problem
    }
    assert asked["tuples_in_order"]
    assert not asked["tuples"] and not asked["sums"]


def levels_into(make, dtype, shape=(1000, 3000), parts=4):
    """Rows of several tensors put where indices say, into a tensor that ``make`` begins with."""
    builder = relax.BlockBuilder()
    part = (shape[0] // parts, *shape[1:])
    levels = [relax.Var(f"level{at}", relax.TensorType(part, dtype)) for at in range(parts)]
    indices = [relax.Var(f"index{at}", relax.TensorType(part[:1], "int64")) for at in range(parts)]
    with builder.function("main", [*levels, *indices]):
        with builder.dataflow():
            tensor = builder.emit(make(shape, dtype))
            for level, index in zip(levels, indices, strict=True):
                tensor = builder.emit(ops.index_put(tensor, [index], level, [0]))
            output = builder.emit_output(tensor)
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize("in_place", [True, False])
def test_levels_on_a_gpu(in_place: bool) -> None:
    """Rows put where indices say, from several tensors, are one scatter and one choice."""
    target = tvm.target.Target("nvidia/nvidia-h100")
    with target:
        mod = MergeScatterChains(in_place=in_place)(levels_into(relax.op.zeros, "float32"))
        assert scatters(mod) == {"main": 1}
        mod = tvm.transform.Sequential(relax.backend.cuda.pipeline.legalize_passes(target))(mod)
    written = [
        binding.value.args[0].name_hint
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
        and np.prod([int(dim) for dim in binding.var.ty.shape]) == 3_000_000
    ]
    # No update and no zero is written before it is chosen.
    assert [name for name in written if "reshape" not in name] == ["select_rows"]


def fives(shape, dtype):
    return relax.op.full(shape, relax.const(5, dtype), dtype)


def counted(shape, dtype):
    numbers = relax.op.arange(int(np.prod(shape)), dtype="int32")
    return relax.op.astype(relax.op.reshape(numbers, shape), dtype)


@pytest.mark.parametrize(
    ("dtype", "row", "make"),
    [
        ("float32", (6,), relax.op.zeros),
        ("float64", (3,), relax.op.ones),
        ("int64", (4,), fives),
        ("int32", (2, 2, 2), counted),
        ("float16", (16,), relax.op.zeros),
        ("bfloat16", (8,), fives),
        ("int8", (16,), fives),
        ("uint8", (3,), counted),
        ("bool", (8,), relax.op.zeros),
        ("float32", (), fives),
    ],
)
@pytest.mark.turns(2)
def test_a_choice_of_rows(device, dtype: str, row: tuple[int, ...], make) -> None:
    """Rows of any type and width, some of which nobody writes."""
    if device == "llvm":
        pytest.skip("only a GPU selects")
    shape, target, on = (12, *row), target_of(device), device_of(device)
    mod = levels_into(make, dtype, shape, parts=2)
    generator = np.random.default_rng(0)
    levels = [generator.integers(0, 2, (6, *row)) for _ in range(2)]
    # Position 7 is written twice, 0 and 9 never.
    indices = np.array([[1, 3, -1, 7, 4, 2], [10, 7, 6, 5, 8, 11]])
    expected = np.arange(np.prod(shape)).reshape(shape) if make is counted else np.zeros(shape)
    expected = expected + {relax.op.ones: 1, fives: 5}.get(make, 0)
    expected[indices.ravel()] = np.concatenate(levels)
    with target:
        assert scatters(MergeScatterChains()(mod)) == {"main": 1}
    executable = tvm.compile(mod, target, relax_pipeline=tvm_scatter.pipeline(target))
    typed = [tvm.runtime.tensor(level.astype(dtype), on) for level in levels]
    typed += [tvm.runtime.tensor(index, on) for index in indices]
    result = relax.VirtualMachine(executable, on)["main"](*typed).numpy()
    np.testing.assert_array_equal(result.astype("float64"), expected)


def test_a_cache_is_not_copied_to_save_a_launch() -> None:
    """Two writes to a large donated tensor stay two writes in place."""
    builder = relax.BlockBuilder()
    cache = relax.Var("cache", relax.TensorType((1 << 20, 128), "float32"))
    rows = [relax.Var(f"row{at}", relax.TensorType((1, 128), "float32")) for at in range(2)]
    indices = [relax.Var(f"index{at}", relax.TensorType((1,), "int64")) for at in range(2)]
    with builder.function("main", [cache, *rows, *indices]):
        with builder.dataflow():
            once = builder.emit(ops.index_put(cache, [indices[0]], rows[0], [0]))
            twice = builder.emit_output(ops.index_put(once, [indices[1]], rows[1], [0]))
        builder.emit_func_output(twice)
    with tvm.target.Target("nvidia/nvidia-h100"):
        assert scatters(MergeScatterChains(True, ["cache"])(builder.get())) == {"main": 2}


def test_long_chains_become_several() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((300, 4), "float32"))
    row = relax.Var("row", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [x, row]):
        with builder.dataflow():
            tensor = x
            for at in range(300):
                tensor = builder.emit(ops.index_put(tensor, [relax.const([at], "int64")], row, [0]))
            output = builder.emit_output(tensor)
        builder.emit_func_output(output)
    with _LLVM:
        assert scatters(MergeScatterChains()(builder.get())) == {"main": 3}


def test_copying_large_updates_does_not_pay() -> None:
    """Millions of sums into a few bins: putting the updates end to end costs more than it saves."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((256,), "float32"))
    index = relax.Var("index", relax.TensorType((1 << 24,), "int64"))
    updates = relax.Var("updates", relax.TensorType((1 << 24,), "float32"))
    with builder.function("main", [x, index, updates]):
        with builder.dataflow():
            once = builder.emit(ops.index_put(x, [index], updates, [0], "add"))
            twice = builder.emit_output(ops.index_put(once, [index], updates, [0], "add"))
        builder.emit_func_output(twice)
    with _LLVM:
        assert scatters(MergeScatterChains()(builder.get())) == {"main": 2}


def test_a_write_in_between_keeps_scatters_apart() -> None:
    """What is merged moves down; not past a call that may write to what it reads."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 4), "float32"))
    row = relax.Var("row", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [x, row], pure=False):
        once = builder.emit(ops.index_put(x, [relax.const([0], "int64")], row, [0]))
        builder.emit(relax.Call(relax.ExternFunc("a.write"), [row], ty_args=[row.ty]))
        twice = builder.emit(ops.index_put(once, [relax.const([1], "int64")], row, [0]))
        builder.emit_func_output(twice)
    with _LLVM:
        assert scatters(MergeScatterChains()(builder.get())) == {"main": 2}


class Elements(torch.nn.Module):
    """Assignments to single elements, rows, columns and the last row."""

    def forward(self, x, v):
        x = x.clone()
        x[2, 1] = v[0]
        x[2, 3] = v[1]
        x[-1, 0] = v[2]
        x[5, 1:3] = v[:2]
        x[5, 2] = x[2, 1] + 1
        return x


class Cube(torch.nn.Module):
    def forward(self, x, v):
        x = x.clone()
        x[1, 2, 0] = v[0]
        x[1, :, 1] = v[0]
        x[:, 2, 1] = v[1]
        return x


class Ranges(torch.nn.Module):
    def forward(self, x, v):
        x = x.clone()
        x[0:2, 1] = v[:2]
        x[3, 0] = v[2]
        x[6] = v
        x[5:7, 2:4] = v[:2]
        return x


@pytest.mark.parametrize(
    ("model", "shape", "left"),
    [(Elements(), (8, 4), 2), (Cube(), (3, 4, 2), 3), (Ranges(), (8, 4), 1)],
)
@pytest.mark.turns(3)
def test_assignment_to_elements(model, shape, left) -> None:
    """What PyTorch writes as a read of a row, a write into it and a write of the row, is one write.

    Not where the axes that are written stand apart, as in ``x[1, :, 1]``.
    """
    example = torch.randn(*shape), torch.randn(4)
    mod = from_exported_program(torch.export.export(model.eval(), example))
    assert scatters(mod)["main"] > left
    with _LLVM:
        merged = MergeScatterChains(in_place=True)(mod)
    assert scatters(merged)["main"] == left
    machine = relax.VirtualMachine(tvm.compile(mod, _LLVM), tvm.cpu())
    (result,) = machine["main"](*(tvm.runtime.tensor(each.numpy()) for each in example))
    np.testing.assert_array_equal(result.numpy(), model(*example).numpy())


def test_explain_says_what_was_merged() -> None:
    mod, _ = module()
    explanations = tvm_scatter.explain(mod, _LLVM)
    notes = {
        note.where.split(".")[0]: note.text for note in explanations.notes if note.switch == "bulk"
    }
    assert notes["constant_rows"] == "is 4 x index_put in one"
    assert "reductions_differ" not in notes


def test_switched_off() -> None:
    mod, _ = module()
    with tvm_scatter.options(bulk=False):
        notes = tvm_scatter.explain(mod, _LLVM).notes
    assert not [note for note in notes if note.switch == "bulk"]
