"""A scatter overwrites no memory that something else may see: views, and what others keep."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from test_pass_properties import fusing_pipeline
from test_reuse_buffers import Function, arrays, in_place
from tvm import relax, tirx

import tvm_scatter
from tvm_scatter.ops import operators as ops
from tvm_scatter.passes import ReuseBuffers
from tvm_scatter.passes.analysis.sharing import _COMPUTING, _FRESH, _LOOKING, _VIEWS

_LLVM = tvm.target.Target("llvm")
_ROWS, _COLUMNS = 300, 4
_SHAPE = (_ROWS, _COLUMNS)
#: What functions of these tests keep between calls.
_KEPT: dict[str, list[tvm.runtime.Tensor]] = {"returned": [], "given": []}


@tvm.register_global_func("tvm_scatter.test.return_kept", override=True)
def _return_kept(like):
    kept = tvm.runtime.tensor(np.full(like.shape, 7, "float32"))
    _KEPT["returned"].append(kept)
    return kept


@tvm.register_global_func("tvm_scatter.test.keep", override=True)
def _keep(given):
    _KEPT["given"].append((given, given.numpy().copy()))
    return tvm.runtime.tensor(given.numpy() + 1)


@tvm.register_global_func("tvm_scatter.test.same", override=True)
def _same(given):
    return given


@tvm.register_global_func("tvm_scatter.test.fill", override=True)
def _fill(_given, result):
    tvm.runtime.tensor(np.full(result.shape, 3, "float32")).copyto(result)
    _KEPT["given"].append((result, result.numpy().copy()))


def _view(tensor, shape, dtype=None):
    offset = relax.prim_value(tirx.IntImm("int64", 0))
    return relax.op.memory.view(tensor, relax.ShapeExpr(shape), dtype, offset)


def _pure(name, *operands, like):
    return relax.op.call_pure_packed(f"tvm_scatter.test.{name}", *operands, ty_args=[like.ty])


def _sum(f):
    return f.add(f["x"], f["y"]), f.values["x"] + f.values["y"]


def view_of_first_rows(f):
    d, right = _sum(f)
    view = f.emit(_view(d, (10, _COLUMNS)))
    written = f.put(d)
    read = f.emit(relax.op.negative(view))
    return [written, read], [f.put_array(right), -right[:10]]


def view_as_another_type(f):
    d, right = _sum(f)
    view = f.emit(_view(d, _SHAPE, "int32"))
    written = f.put(d)
    read = f.emit(relax.op.bitwise_not(view))
    return [written, read], [f.put_array(right), ~right.view("int32")]


def view_of_first_rows_of_a_parameter(f):
    view = f.emit(_view(f["x"], (_ROWS - 1, _COLUMNS)))
    index = f.emit(relax.op.minimum(f["index"], relax.const(_ROWS - 2, "int64")))
    written = f.emit(ops.index_put(view, [index], f["rows"], [0]))
    right = f.values["x"][:-1].copy()
    right[np.minimum(f.values["index"], _ROWS - 2)] = f.values["rows"]
    return [written], [right]


def view_without_an_offset(f):
    d, right = _sum(f)
    view = f.emit(relax.op.memory.ensure_zero_offset(d))
    written = f.put(d)
    return [written, f.add(view, view)], [f.put_array(right), 2 * right]


def returned_by_somebody_who_keeps_it(f):
    d = f.emit(_pure("return_kept", f["x"], like=f["x"]))
    return [f.put(d)], [f.put_array(np.full(_SHAPE, 7, "float32"))]


def given_to_somebody_who_keeps_it(f):
    d, right = _sum(f)
    more = f.emit(_pure("keep", d, like=d))
    return [f.put(d), f.add(more, f["x"])], [f.put_array(right), right + 1 + f.values["x"]]


def returned_as_it_was_given(f):
    d, right = _sum(f)
    same = f.emit(_pure("same", d, like=d))
    return [f.put(same), f.add(d, d)], [f.put_array(right), 2 * right]


def parameter_returned_as_it_was_given(f):
    same = f.emit(_pure("same", f["x"], like=f["x"]))
    return [f.put(same)], [f.put_array(f.values["x"])]


def assigned_all_over(f):
    """On a GPU this is its source."""
    same = f.emit(ops.copy_ranges(f["x"], [f["y"]], [(0, 0, 0, _ROWS)], 0))
    return [f.put(same)], [f.put_array(f.values["y"])]


def filled_by_somebody_who_keeps_it(f):
    filled = relax.op.call_dps_packed("tvm_scatter.test.fill", relax.Tuple([f["x"]]), f["x"].ty)
    return [f.put(f.emit(filled))], [f.put_array(np.full(_SHAPE, 3, "float32"))]


FOREIGN = (
    view_of_first_rows,
    view_as_another_type,
    view_of_first_rows_of_a_parameter,
    view_without_an_offset,
    returned_by_somebody_who_keeps_it,
    given_to_somebody_who_keeps_it,
    returned_as_it_was_given,
    parameter_returned_as_it_was_given,
    filled_by_somebody_who_keeps_it,
    assigned_all_over,
)


def _zero(dtype="float32"):
    return relax.const(0, dtype)


#: What changes nothing, so that TVM makes a view of it.
NEUTRAL = {
    "x + 0": lambda f, x: relax.op.add(x, _zero()),
    "0 + x": lambda f, x: relax.op.add(_zero(), x),
    "x - 0": lambda f, x: relax.op.subtract(x, _zero()),
    "x * 1": lambda f, x: relax.op.multiply(x, relax.const(1, "float32")),
    "x / 1": lambda f, x: relax.op.divide(x, relax.const(1, "float32")),
    "x + 0, a number": lambda f, x: relax.op.add(x, tirx.FloatImm("float32", 0)),
    "x * 1, a number": lambda f, x: relax.op.multiply(x, tirx.FloatImm("float32", 1)),
    "x + 0, a variable": lambda f, x: relax.op.add(x, f.emit(_zero())),
    "x + zeros": lambda f, x: relax.op.add(x, relax.const(np.zeros(1, "float32"))),
    "maximum(x, x)": lambda f, x: relax.op.maximum(x, x),
    "maximum(x, -inf)": lambda f, x: relax.op.maximum(x, relax.const(-np.inf, "float32")),
    "minimum(x, inf)": lambda f, x: relax.op.minimum(x, relax.const(np.inf, "float32")),
    "x if true": lambda f, x: relax.op.where(relax.const(True, "bool"), x, f["y"]),
    "x ** 1": lambda f, x: relax.op.power(x, relax.const(1, "float32")),
    "astype": lambda f, x: relax.op.astype(x, "float32"),
    "permute_dims": lambda f, x: relax.op.permute_dims(x, [0, 1]),
    "concat": lambda f, x: relax.op.concat([x], 0),
    "broadcast_to": lambda f, x: relax.op.broadcast_to(x, _SHAPE),
    "tile": lambda f, x: relax.op.tile(x, [1, 1]),
    "repeat": lambda f, x: relax.op.repeat(x, 1, 0),
    "strided_slice": lambda f, x: relax.op.strided_slice(x, [0], [0], [_ROWS]),
    "sum": lambda f, x: relax.op.sum(f.emit(relax.op.expand_dims(x, 1)), 1),
    "pad": lambda f, x: relax.op.nn.pad(x, [0, 0, 0, 0]),
    "leakyrelu": lambda f, x: relax.op.nn.leakyrelu(x, 1.0),
    "einsum": lambda f, x: relax.op.einsum([x], "ij->ij"),
}
#: What certainly computes something new, so that its result may be overwritten.
NEW = {
    "x + x": lambda f, x: relax.op.add(x, x),
    "x + y": lambda f, x: relax.op.add(x, f["y"]),
    "x + 1": lambda f, x: relax.op.add(x, relax.const(1, "float32")),
    "x + 1, a number": lambda f, x: relax.op.add(x, tirx.FloatImm("float32", 1)),
    "x - 1": lambda f, x: relax.op.subtract(x, relax.const(1, "float32")),
    "x * 2": lambda f, x: relax.op.multiply(x, relax.const(2, "float32")),
    "x * 0": lambda f, x: relax.op.multiply(x, relax.const(0, "float32")),
    "-x": lambda f, x: relax.op.negative(x),
}


def _read_after(change):
    """The result of an operator is overwritten, then what it was made of is read."""

    def case(f):
        d = f.emit(relax.op.tanh(f["x"]))
        same = f.emit(change(f, d))
        return [f.put(same), f.add(d, f["y"])], None

    return case


def _module(cases, dataflow=True):
    builder, expected = relax.BlockBuilder(), {}
    for name, case in cases.items():
        f = Function(builder)
        with builder.function(name, list(f.parameters.values())):
            if dataflow:
                with builder.dataflow():
                    results, right = case(f)
                    output = builder.emit_output(relax.Tuple(results))
            else:
                results, right = case(f)
                output = builder.emit(relax.Tuple(results))
            builder.emit_func_output(output)
        expected[name] = right
    return builder.get(), expected


def _machine(mod, fusing, **switches):
    make = fusing_pipeline if fusing else lambda **options: tvm_scatter.pipeline(_LLVM, **options)
    executable = tvm.compile(mod, _LLVM, relax_pipeline=make(**switches))
    return relax.VirtualMachine(executable, tvm.cpu())


def kept_apart(machine, name):
    """The results as arrays; neither the arguments nor what anybody keeps has changed."""
    for kept in _KEPT.values():
        kept.clear()
    arguments = {each: tvm.runtime.tensor(array) for each, array in arrays().items()}
    results = [each.numpy() for each in machine[name](*arguments.values())]
    for each, argument in arguments.items():
        np.testing.assert_array_equal(argument.numpy(), arrays()[each], err_msg=f"{name}: {each}")
    for kept in _KEPT["returned"]:
        assert (kept.numpy() == 7).all(), name
    for kept, then in _KEPT["given"]:
        np.testing.assert_array_equal(kept.numpy(), then, err_msg=name)
    return results


@pytest.mark.parametrize("fusing", [False, True])
@pytest.mark.parametrize("dataflow", [False, True])
def test_what_others_may_see_is_kept(fusing, dataflow) -> None:
    mod, expected = _module({case.__name__: case for case in FOREIGN}, dataflow)
    machine = _machine(mod, fusing)
    for name, right in expected.items():
        for _ in range(2):
            for result, array in zip(kept_apart(machine, name), right, strict=True):
                np.testing.assert_array_equal(result, array, err_msg=name)


@pytest.mark.parametrize("fusing", [False, True])
@pytest.mark.turns(2)
def test_what_changes_nothing_may_be_a_view(fusing) -> None:
    """The result is what it is with the pass switched off."""
    names = {f"case{at}": change for at, change in enumerate([*NEUTRAL.values(), *NEW.values()])}
    mod, _ = _module({name: _read_after(change) for name, change in names.items()})
    machine, plain = _machine(mod, fusing), _machine(mod, fusing, in_place=False)
    for name, text in zip(names, [*NEUTRAL, *NEW], strict=True):
        for result, right in zip(kept_apart(machine, name), kept_apart(plain, name), strict=True):
            np.testing.assert_array_equal(result, right, err_msg=text)


#: What TVM's own pipeline does not compile: other passes take it away.
MARKS = {
    "stop_lift_params": lambda f, x: relax.op.builtin.stop_lift_params(x),
    "no_grad": lambda f, x: relax.op.grad.no_grad(x),
    "hint_on_device": lambda f, x: relax.op.hint_on_device(x, tvm.cpu()),
}


@pytest.mark.parametrize("text", [*NEUTRAL, *NEW, *MARKS])
def test_only_what_is_certainly_new_is_overwritten(text) -> None:
    mod, _ = _module({"main": _read_after({**NEUTRAL, **NEW, **MARKS}[text])})
    with _LLVM:
        assert in_place(ReuseBuffers()(mod)) == {"main": text in NEW}


def test_printing_keeps_nothing() -> None:
    def printed(f):
        d, right = _sum(f)
        f.emit(relax.op.print(d, format="{}"))
        return [f.put(d)], [f.put_array(right)]

    mod, _ = _module({"printed": printed}, dataflow=False)
    with _LLVM:
        assert in_place(ReuseBuffers()(mod)) == {"printed": True}


def test_operators_that_are_known_exist() -> None:
    """A name that is misspelt would let the operator be taken for a foreign one."""
    names = set(tvm.ir.Op.list_op_names())
    assert names >= _COMPUTING | _FRESH | _LOOKING | _VIEWS
    sorting = {f"relax.{name}" for name in ("argsort", "cumprod", "cumsum", "sort", "topk")}
    # These are no operators to legalize.
    calls = {"relax.call_tir", "relax.call_tir_with_grad", "relax.builtin.alloc_tensor"}
    for name in (_COMPUTING | _FRESH) - sorting - calls:
        assert tvm.ir.Op.get(name).get_attr("FLegalize") is not None, name
