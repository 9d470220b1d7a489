"""A scatter overwrites its data only where nothing else can need it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from test_pass_properties import fusing_pipeline
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_scatter
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops import operators as ops
from tvm_scatter.passes import ReuseBuffers

pytestmark = pytest.mark.optimised

_LLVM = tvm.target.Target("llvm")
#: More than the 1024 elements up to which TVM evaluates a tensor at compile time.
_SHAPE = (300, 4)
_SIZES = {"x": _SHAPE, "y": _SHAPE, "rows": (5, 4), "index": (5,)}


def arrays():
    generator = np.random.default_rng(0)
    made = {
        name: generator.integers(-9, 9, shape).astype("float32") for name, shape in _SIZES.items()
    }
    return made | {"index": np.array([3, 1, 299, 7, 0])}


class Function:
    """A function under construction, with NumPy beside it."""

    def __init__(self, builder):
        self.builder = builder
        self.values = arrays()
        self.parameters = {
            name: relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
            for name, array in self.values.items()
        }

    def __getitem__(self, name):
        return self.parameters[name]

    def emit(self, expression):
        return self.builder.emit(expression)

    def add(self, left, right):
        return self.emit(relax.op.add(left, right))

    def put(self, data, updates=None, name="put"):
        updates = self["rows"] if updates is None else updates
        return self.emit(ops.index_put(data, [self["index"]], updates, [0], operator=name))

    def put_array(self, array, updates=None):
        out = array.copy()
        out[self.values["index"]] = self.values["rows"] if updates is None else updates
        return out


def intermediate(f):
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    return [f.put(d)], [f.put_array(right)]


def chain_of_reads_and_writes(f):
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    first, right_first = f.put(d), f.put_array(right)
    moved, right_moved = f.add(first, f["x"]), right_first + f.values["x"]
    return [f.put(moved)], [f.put_array(right_moved)]


def read_before_that_fusion_would_move_behind(f):
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    before = f.emit(relax.op.negative(d))
    written = f.put(d)
    # It cannot be computed before the write, and fusion would take the reader along.
    after = f.add(before, written)
    return [written, after], [f.put_array(right), f.put_array(right) - right]


def parameter(f):
    return [f.put(f["x"])], [f.put_array(f.values["x"])]


def read_after(f):
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    written = f.put(d)
    return [written, f.add(d, f["x"])], [f.put_array(right), right + f.values["x"]]


def returned(f):
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    return [f.put(d), d], [f.put_array(right), right]


def parameter_returned(f):
    return [f.put(f["x"]), f["x"]], [f.put_array(f.values["x"]), f.values["x"]]


def twice_in_one_call(f):
    """The data is the update as well: written while it is read, rows would be read as written."""
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    index = relax.const(np.tile(np.arange(_SHAPE[0])[::-1, None], (1, _SHAPE[1])), "int64")
    return [f.emit(ops.scatter_elements(d, index, d))], [right[::-1]]


def view_is_read_after(f):
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    view = f.emit(relax.op.reshape(d, [1200]))
    written = f.put(d)
    return [written, f.add(view, view)], [f.put_array(right), 2 * right.reshape(-1)]


def written_through_a_view(f):
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    view = f.emit(relax.op.reshape(d, [1200]))
    index = relax.const([7], "int64")
    value = f.emit(relax.op.strided_slice(f.emit(relax.op.reshape(f["rows"], [20])), [0], [2], [3]))
    out = right.reshape(-1).copy()
    out[7] = f.values["rows"].reshape(-1)[2]
    written = f.emit(ops.index_put(view, [index], value, [0]))
    return [f.emit(relax.op.reshape(written, _SHAPE))], [out.reshape(_SHAPE)]


def hidden_copy(f):
    """What only moves elements TVM may turn into a view: a permutation of axes of one element."""
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    wide = f.emit(relax.op.expand_dims(d, 0))
    moved = f.emit(relax.op.permute_dims(wide, [1, 0, 2]))
    written = f.put(d)
    return [written, f.add(moved, moved)], [f.put_array(right), 2 * right[:, None]]


def in_a_tuple(f):
    d, right = f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]
    both = f.emit(relax.Tuple([d, f["y"]]))
    written = f.put(d)
    read = f.emit(relax.TupleGetItem(both, 0))
    return [written, f.add(read, read)], [f.put_array(right), 2 * right]


def constant(f):
    data = np.arange(1200, dtype="float32").reshape(_SHAPE)
    return [f.put(relax.const(data))], [f.put_array(data)]


def evaluated_to_a_constant(f):
    """TVM may evaluate it at compile time and keep it: overwritten, the next run would see it."""
    zeros = f.emit(relax.op.broadcast_to(relax.const(0.0, "float32"), _SHAPE))
    return [f.put(zeros)], [f.put_array(np.zeros(_SHAPE, "float32"))]


def new_zeros(f):
    zeros = f.emit(relax.op.zeros(_SHAPE, "float32"))
    return [f.put(zeros)], [f.put_array(np.zeros(_SHAPE, "float32"))]


def nothing_to_write(f):
    """An empty scatter is its data; what follows must not overwrite the caller's tensor."""
    none = relax.const(np.zeros(0), "int64")
    updates = f.emit(relax.op.zeros((0, 4), "float32"))
    same = f.emit(ops.index_put(f["x"], [none], updates, [0]))
    return [f.put(same)], [f.put_array(f.values["x"])]


#: The function, and whether its last scatter is in place: without and with ``x`` donated.
CASES = {
    intermediate: (True, True),
    chain_of_reads_and_writes: (True, True),
    read_before_that_fusion_would_move_behind: (True, True),
    parameter: (False, True),
    read_after: (False, False),
    returned: (False, False),
    parameter_returned: (False, False),
    twice_in_one_call: (False, False),
    view_is_read_after: (False, False),
    written_through_a_view: (True, True),
    hidden_copy: (False, False),
    in_a_tuple: (False, False),
    constant: (False, False),
    evaluated_to_a_constant: (False, False),
    new_zeros: (True, True),
    nothing_to_write: (False, True),
}


def module(cases=tuple(CASES), dataflow=True):
    builder, expected = relax.BlockBuilder(), {}
    for case in cases:
        function = Function(builder)
        with builder.function(case.__name__, list(function.parameters.values())):
            if dataflow:
                with builder.dataflow():
                    results, right = case(function)
                    output = builder.emit_output(relax.Tuple(results))
            else:
                results, right = case(function)
                output = builder.emit(relax.Tuple(results))
            builder.emit_func_output(output)
        expected[case.__name__] = right
    return builder.get(), expected


def in_place(mod):
    """Whether the last scatter of each function is in place."""
    found = {}
    for name, function in mod.functions.items():
        if not isinstance(function, relax.Function):
            continue
        for block in function.body.blocks:
            for binding in block.bindings:
                call = binding.value
                if isinstance(call, relax.Call) and getattr(call.op, "name", "") in ops.NAMES:
                    found[name.name_hint] = bool(call.attrs["in_place"])
    return found


def compiled(mod, device="llvm", **switches):
    target = target_of(device)
    pipeline = tvm_scatter.pipeline(target, **switches)
    executable = tvm.compile(mod, target, relax_pipeline=pipeline)
    return relax.VirtualMachine(executable, device_of(device))


def check(machine, expected, donated=(), device="llvm"):
    # Twice: a constant that is overwritten is seen by the next run only.
    for _ in range(2):
        for name, right in expected.items():
            arguments = {
                each: tvm.runtime.tensor(array, device_of(device))
                for each, array in arrays().items()
            }
            results = machine[name](*arguments.values())
            for result, array in zip(results, right, strict=True):
                np.testing.assert_array_equal(result.numpy(), array, err_msg=name)
            for each, argument in arguments.items():
                if each not in donated:
                    np.testing.assert_array_equal(argument.numpy(), arrays()[each], err_msg=name)


@pytest.mark.parametrize("donate", [(), ("x",)])
def test_which_are_in_place(donate) -> None:
    mod, _ = module()
    with _LLVM:
        found = in_place(ReuseBuffers(donate)(mod))
    assert found == {case.__name__: on[bool(donate)] for case, on in CASES.items()}


@pytest.mark.parametrize(("donate", "dataflow"), [((), True), (("x",), False)])
def test_results(donate, dataflow) -> None:
    mod, expected = module(dataflow=dataflow)
    check(compiled(mod, donate=donate), expected, donate)


@pytest.mark.parametrize("donate", [(), ("x",)])
def test_results_where_tvm_fuses_and_folds(donate) -> None:
    mod, expected = module()
    executable = tvm.compile(mod, _LLVM, relax_pipeline=fusing_pipeline(donate=donate))
    check(relax.VirtualMachine(executable, tvm.cpu()), expected, donate)


def test_results_on_cuda(device) -> None:
    if device == "llvm":
        pytest.skip("done above")
    cases = [
        read_before_that_fusion_would_move_behind,
        parameter,
        evaluated_to_a_constant,
        new_zeros,
        hidden_copy,
    ]
    mod, expected = module(cases)
    check(compiled(mod, device, donate=["x"]), expected, ["x"], device)


def test_a_result_that_is_read_before_the_write() -> None:
    """Fusion takes the write along to the first operand of the sum that reads it."""
    builder = relax.BlockBuilder()
    f = Function(builder)
    with builder.function("main", list(f.parameters.values())):
        with builder.dataflow():
            d = f.add(f["x"], f["y"])
            square = f.emit(relax.op.multiply(f["x"], f["x"]))
            negated = f.emit(relax.op.negative(d))
            before = builder.emit_output(relax.op.sum(negated))
            written = f.put(d)
            after = builder.emit_output(relax.op.add(square, written))
        builder.emit_func_output(relax.Tuple([before, after]))
    values = f.values
    right = values["x"] + values["y"]
    expected = {"main": [-right.sum(), values["x"] ** 2 + f.put_array(right)]}
    executable = tvm.compile(builder.get(), _LLVM, relax_pipeline=fusing_pipeline())
    check(relax.VirtualMachine(executable, tvm.cpu()), expected)
    with _LLVM:
        assert in_place(ReuseBuffers()(builder.get())) == {"main": True}


def test_a_donated_tensor_is_the_result() -> None:
    mod, expected = module([parameter])
    machine = compiled(mod, donate=["x"])
    x, *others = (tvm.runtime.tensor(array) for array in arrays().values())
    machine["parameter"](x, *others)
    np.testing.assert_array_equal(x.numpy(), expected["parameter"][0])


@pytest.mark.parametrize("overlap", ["same tensor", "view", "part"])
def test_a_donated_tensor_that_is_passed_twice(overlap) -> None:
    """The compiler cannot see it; the call refuses before anything is overwritten."""
    torch = pytest.importorskip("torch")
    mod, _ = module([parameter])
    machine = compiled(mod, donate=["x"])
    memory = torch.zeros(700, 4)
    x = memory[:300]
    y = {"same tensor": x, "view": x.view(300, 4), "part": memory[200:500]}[overlap]
    others = [tvm.runtime.tensor(arrays()[name]) for name in ("rows", "index")]
    with pytest.raises(ValueError, match="x: it is donated and shares memory with the argument y"):
        machine["parameter"](tvm.runtime.from_dlpack(x), tvm.runtime.from_dlpack(y), *others)
    assert not memory.any()
    machine["parameter"](
        tvm.runtime.from_dlpack(x), tvm.runtime.from_dlpack(memory[300:600]), *others
    )
    assert x.any() and not memory[300:].any()


def test_symbolic_sizes() -> None:
    builder = relax.BlockBuilder()
    rows, count = tvm.tirx.Var("rows", "int64"), tvm.tirx.Var("count", "int64")
    x = relax.Var("x", relax.TensorType((rows, 4), "float32"))
    other = relax.Var("other", relax.TensorType((rows, 4), "float32"))
    index = relax.Var("index", relax.TensorType((count,), "int64"))
    updates = relax.Var("updates", relax.TensorType((count, 4), "float32"))
    with builder.function("main", [x, other, index, updates]):
        with builder.dataflow():
            kept = builder.emit(relax.op.add(x, other))
            first = builder.emit(ops.index_put(kept, [index], updates, [0]))
            moved = builder.emit(relax.op.add(first, other))
            second = builder.emit(ops.index_put(x, [index], updates, [0]))
            output = builder.emit_output(relax.Tuple([moved, second]))
        builder.emit_func_output(output)
    mod = builder.get()
    with _LLVM:
        assert str(ReuseBuffers(["x"])(mod)).count("in_place=True") == 2
    machine = compiled(mod, donate=["x"])
    values = arrays()
    arguments = [tvm.runtime.tensor(values[name]) for name in ("x", "y", "index", "rows")]
    moved, second = machine["main"](*arguments)
    summed, written = values["x"] + values["y"], values["x"].copy()
    summed[values["index"]] = written[values["index"]] = values["rows"]
    np.testing.assert_array_equal(moved.numpy(), summed + values["y"])
    np.testing.assert_array_equal(second.numpy(), written)
    np.testing.assert_array_equal(arguments[0].numpy(), written)


@I.ir_module
class Branches:
    @R.function
    def inside(
        condition: R.Tensor((), "bool"),
        x: R.Tensor((300, 4), "float32"),
        y: R.Tensor((300, 4), "float32"),
        rows: R.Tensor((5, 4), "float32"),
        index: R.Tensor((5, 1), "int64"),
    ):
        d = R.add(x, y)
        if condition:
            made = R.add(d, x)
            result = R.scatter_nd(made, index, rows, "update")
        else:
            made = R.add(d, y)
            result = R.scatter_nd(made, index, rows, "update")
        both = (result, d)
        return both

    @R.function
    def outside(
        condition: R.Tensor((), "bool"),
        x: R.Tensor((300, 4), "float32"),
        y: R.Tensor((300, 4), "float32"),
        rows: R.Tensor((5, 4), "float32"),
        index: R.Tensor((5, 1), "int64"),
    ):
        d = R.add(x, y)
        if condition:
            result = R.scatter_nd(d, index, rows, "update")
        else:
            result = R.scatter_nd(d, index, rows, "add")
        both = (result, x)
        return both


def test_branches() -> None:
    """What is made inside of a branch may be overwritten there; what comes from outside is not."""
    with _LLVM:
        found = ReuseBuffers()(Branches)
    assert str(found["inside"]).count("in_place=True") == 2
    assert str(found["outside"]).count("in_place=True") == 0
    machine = compiled(Branches, bounds="drop")
    values = arrays()
    values["index"] = values["index"][:, None]
    rows = values["index"][:, 0]
    d = values["x"] + values["y"]
    arguments = [tvm.runtime.tensor(each) for each in values.values()]
    # Only one branch: TVM 0.27 plans a buffer for both and allocates it in the first.
    result, kept = machine["inside"](tvm.runtime.tensor(np.array(True)), *arguments)
    right = d + values["x"]
    right[rows] = values["rows"]
    np.testing.assert_array_equal(result.numpy(), right)
    np.testing.assert_array_equal(kept.numpy(), d)
    for taken in (True, False):
        result, _ = machine["outside"](tvm.runtime.tensor(np.array(taken)), *arguments)
        right = d.copy()
        right[rows] = values["rows"] if taken else d[rows] + values["rows"]
        np.testing.assert_array_equal(result.numpy(), right)


def test_a_function_that_is_called_from_the_module_keeps_its_copy() -> None:
    builder = relax.BlockBuilder()
    inner = Function(builder)
    with builder.function("inner", list(inner.parameters.values()), private=True):
        with builder.dataflow():
            output = builder.emit_output(inner.put(inner["x"]))
        builder.emit_func_output(output)
    called = builder.get().get_global_var("inner")
    outer = Function(builder)
    with builder.function("main", list(outer.parameters.values())):
        written = outer.emit(relax.Call(called, list(outer.parameters.values())))
        builder.emit_func_output(outer.emit(relax.Tuple([written, outer["x"]])))
    with _LLVM:
        assert "in_place=True" not in str(ReuseBuffers(["x"])(builder.get()))


def test_stock_operators_are_rewritten() -> None:
    def stock(f):
        d = f.add(f["x"], f["y"])
        right = f.values["x"] + f.values["y"]
        index = f.emit(relax.op.reshape(f["index"], [5, 1]))
        written = f.emit(relax.op.scatter_nd(d, index, f["rows"], "update"))
        indices = f.emit(relax.op.broadcast_to(index, [5, 4]))
        again = f.emit(relax.op.scatter_elements(written, indices, f["rows"], 0, "add"))
        out = f.put_array(right)
        out[f.values["index"]] += f.values["rows"]
        return [again], [out]

    mod, expected = module([stock])
    with _LLVM:
        assert str(ReuseBuffers()(mod)).count("in_place=True") == 2
    check(compiled(mod), expected)


def test_unknown_parameter() -> None:
    mod, _ = module([parameter])
    with pytest.raises(ScatterError, match="there is no parameter 'cache'; parameter takes x, y"):
        compiled(mod, donate=["cache"])


def test_explain_says_what_is_in_place_and_what_not() -> None:
    mod, _ = module([intermediate, read_after])
    with tvm_scatter.options(donate=["x"]):
        notes = tvm_scatter.explain(mod, _LLVM).notes
    said = {note.where.split(".")[0]: note.text for note in notes}
    assert said["intermediate"].startswith("overwrites lv")
    assert "afterwards" in said["read_after"]


def test_switched_off() -> None:
    mod, expected = module([parameter])
    check(compiled(mod, in_place=False, donate=["x"]), expected)


def test_a_scatter_that_nothing_reads_leaves_its_data_alone() -> None:
    builder = relax.BlockBuilder()
    f = Function(builder)
    with builder.function("main", list(f.parameters.values())):
        d = f.add(f["x"], f["y"])
        f.put(d)
        builder.emit_func_output(d)
    machine = compiled(builder.get(), bulk=False)
    result = machine["main"](*(tvm.runtime.tensor(array) for array in arrays().values()))
    np.testing.assert_array_equal(result.numpy(), f.values["x"] + f.values["y"])
