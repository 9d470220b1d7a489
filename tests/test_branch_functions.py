"""Scatters and reads of several steps in the branches of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from harness import device_of, target_of
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_scatter
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd
from tvm_scatter.passes import BranchFunctions
from tvm_scatter.problem.scatter_problem import BOUNDS

Emit = Callable[[Any], Any]
Compute = Callable[..., Any]

GENERATOR = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return GENERATOR.integers(-9, 9, shape).astype("float32")


DATA = numbers(4, 5, 3)
ROWS, COLUMNS = np.array([1, 3, 0, 2, 1, 1]), np.array([0, 2, 1, 1, 0, 0])


def put(**options: Any) -> Compute:
    """A write at one index for each of some axes."""

    def compute(data: Any, updates: Any, *indices: Any) -> Any:
        return index_put(data, list(indices), updates, reduction="add", **options)

    return compute


def elements(reduction: str) -> Compute:
    return lambda data, updates, index: scatter_elements(data, index, updates, 1, reduction)


#: What takes more than one step, its data and its other operands. The result is like the data.
FORMS: dict[str, tuple[Compute, list[Any]]] = {
    "mixed": (put(), [DATA, numbers(6, 3), ROWS.astype("int32"), COLUMNS]),
    "indices_that_broadcast": (put(), [DATA, numbers(6, 6, 3), ROWS[:, None], COLUMNS[None]]),
    "values_that_broadcast": (put(axes=[0]), [DATA, numbers(5, 1), ROWS]),
    "axes_apart": (put(axes=[0, 2]), [DATA, numbers(6, 5), ROWS, COLUMNS]),
    "unsigned": (put(axes=[0]), [DATA, numbers(6, 5, 3), ROWS.astype("uint64")]),
    "smaller": (elements("add"), [DATA, numbers(3, 4, 2), np.zeros((2, 3, 2), "int64")]),
    "mean": (elements("mean"), [DATA, numbers(4, 6, 3), np.ones((4, 6, 3), "int64")]),
    "tuples": (
        lambda data, updates, index: scatter_nd(data, index, updates, "max"),
        [DATA, numbers(6, 3), np.stack([ROWS, COLUMNS], 1)],
    ),
    "read": (
        lambda data, *indices: read_ops.index(data, indices, [0, 1]),
        [DATA, np.array([[3], [0], [0], [1]], "int32"), np.arange(5)[::-1].copy()],
    ),
    "take": (lambda data, index: relax.op.take(data, index, 1), [DATA, np.array([4, 4, 0, 1, 2])]),
}


def sequence(builder: relax.BlockBuilder, compute: Callable[[Emit], Any]) -> relax.SeqExpr:
    """What is emitted, as a branch."""
    bindings: list[Any] = []

    def emit(value: Any) -> Any:
        value = builder.normalize(value)
        bindings.append(relax.VarBinding(relax.Var(f"v{len(bindings)}", value.ty), value))
        return bindings[-1].var

    result = compute(emit)
    return relax.SeqExpr([relax.BindingBlock(bindings)], result)


class Choice:
    """Branches of a program, or one of them where it is known which is taken."""

    def __init__(self, builder: relax.BlockBuilder, condition: Any) -> None:
        self.builder, self.condition = builder, condition

    def __call__(
        self, emit: Emit, taken: Callable[[Emit], Any], other: Callable[[Emit], Any]
    ) -> Any:
        if isinstance(self.condition, bool):
            return (taken if self.condition else other)(emit)
        branches = [sequence(self.builder, compute) for compute in (taken, other)]
        return emit(relax.If(self.condition, *branches))


def in_both(emit: Emit, choose: Choice, form: Compute, *operands: Any) -> Any:
    def other(emit: Emit) -> Any:
        result = emit(form(*operands))
        return emit(relax.op.add(result, result))

    return choose(emit, lambda emit: emit(relax.op.negative(emit(form(*operands)))), other)


def in_one_and_behind(emit: Emit, choose: Choice, form: Compute, data: Any, *rest: Any) -> Any:
    once = choose(
        emit, lambda emit: emit(form(data, *rest)), lambda emit: emit(relax.op.negative(data))
    )
    return emit(form(once, *rest))


def behind_others(emit: Emit, choose: Choice, form: Compute, data: Any, *rest: Any) -> Any:
    """Behind branches which compute what TVM computes."""

    def twice(operator: Any) -> Any:
        return lambda emit: emit(operator(emit(operator(data, data)), data))

    once = choose(emit, twice(relax.op.add), twice(relax.op.multiply))
    return emit(form(once, *rest))


def nested(emit: Emit, choose: Choice, form: Compute, data: Any, *rest: Any) -> Any:
    """In a branch, in both branches inside of it, and in the other."""

    def inner(emit: Emit) -> Any:
        first = emit(form(data, *rest))

        def taken(emit: Emit) -> Any:
            return emit(form(emit(relax.op.add(first, first)), *rest))

        return choose(emit, taken, lambda emit: emit(form(first, *rest)))

    return choose(emit, inner, lambda emit: emit(form(emit(relax.op.negative(data)), *rest)))


def with_tuples(emit: Emit, choose: Choice, form: Compute, data: Any, *rest: Any) -> Any:
    """What the branches take, and what they give, are tuples."""
    given = emit(relax.Tuple([data, relax.Tuple(rest)]))

    def branch(second: Compute) -> Callable[[Emit], Any]:
        def compute(emit: Emit) -> Any:
            fields = emit(relax.TupleGetItem(given, 1))
            operands = [emit(relax.TupleGetItem(fields, i)) for i in range(len(rest))]
            return emit(relax.Tuple([emit(form(data, *operands)), emit(second(data))]))

        return compute

    found = choose(emit, branch(relax.op.abs), branch(relax.op.negative))
    first, second = (emit(relax.TupleGetItem(found, i)) for i in range(2))
    return emit(relax.op.add(first, second))


def beside_others(emit: Emit, choose: Choice, form: Compute, data: Any, *rest: Any) -> Any:
    """What is computed in front of branches, in a branch around them too, is read behind them."""
    before = emit(relax.op.negative(data))

    def outer(emit: Emit) -> Any:
        early = emit(relax.op.abs(data))
        chosen = in_both(emit, choose, form, data, *rest)
        return emit(relax.op.subtract(chosen, early))

    chosen = choose(emit, outer, lambda _: data)
    return emit(relax.op.multiply(emit(relax.op.add(chosen, before)), chosen))


ARRANGEMENTS = (
    in_both,
    in_one_and_behind,
    behind_others,
    nested,
    with_tuples,
    beside_others,
)


def module(
    arrangement: Compute,
    conditions: Sequence[Any],
    symbolic: bool = False,
    forms: Sequence[str] = (),
) -> tvm.IRModule:
    """A function for each form and condition, which is a parameter where it is ``None``."""
    builder = relax.BlockBuilder()
    for name in forms:
        form, arrays = FORMS[name]
        for condition in conditions:
            sizes: dict[int, Any] = {}
            types = [_type(array, sizes if symbolic else None) for array in arrays]
            parameters = [relax.Var(f"p{at}", each) for at, each in enumerate(types)]
            given = parameters
            if condition is None:
                known = relax.Var("condition", relax.TensorType((), "bool"))
                given = [*parameters, known]
            with builder.function(f"{name}_{condition}", given):
                choose = Choice(builder, known if condition is None else condition)
                result = arrangement(builder.emit, choose, form, *parameters)
                builder.emit_func_output(result)
    return builder.get()


def _type(array: Any, sizes: dict[int, Any] | None) -> relax.TensorType:
    """The type of an array; sizes of more than 2 are symbolic, equal ones have one name."""

    def dim(size: int) -> Any:
        if sizes is None or size <= 2:
            return size
        return sizes.setdefault(size, tvm.tirx.Var(f"d{size}", "int64"))

    return relax.TensorType([dim(size) for size in array.shape], str(array.dtype))


@cache
def expected(arrangement: Compute, name: str, condition: bool) -> Any:
    """What an arrangement of a form gives where no branches are left."""
    arguments = map(tvm.runtime.tensor, FORMS[name][1])
    return without_branches(arrangement, name)[f"{name}_{condition}"](*arguments).numpy()


@cache
def without_branches(arrangement: Compute, name: str) -> relax.VirtualMachine:
    """A form where each of the two conditions is known."""
    mod = module(arrangement, [True, False], forms=[name])
    return relax.VirtualMachine(tvm.compile(mod, target_of("llvm")), tvm.cpu())


def compare(executable: Any, device: str, arrangement: Compute, forms: Sequence[str]) -> None:
    """Both ways through each of the functions, one after the other."""
    on = device_of(device)
    machine = relax.VirtualMachine(executable, on)
    for name in forms:
        tensors = [tvm.runtime.tensor(array, on) for array in FORMS[name][1]]
        for condition in (True, False, True):
            # Conditions are read on the host.
            found = machine[f"{name}_None"](*tensors, tvm.runtime.tensor(np.array(condition)))
            right = expected(arrangement, name, condition)
            if name == "mean":
                # A mean rounds, and of a mean in the order in which a GPU adds.
                np.testing.assert_allclose(found.numpy(), right, 1e-5, 1e-5)
            else:
                np.testing.assert_array_equal(found.numpy(), right, name)


def check(device: str, arrangement: Compute, forms: Sequence[str], symbolic: bool = False) -> None:
    mod = module(arrangement, [None], symbolic, forms)
    compare(tvm.compile(mod, target_of(device)), device, arrangement, forms)


@pytest.mark.turns(4)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_arrangements(device: str, arrangement: Compute) -> None:
    check(device, arrangement, ["mixed"])


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.turns(4)
def test_symbolic_sizes(arrangement: Compute) -> None:
    check("llvm", arrangement, ["read"], symbolic=True)


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", FORMS)
def test_forms(device: str, name: str) -> None:
    check(device, in_both, [name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_all(device: str, arrangement: Compute, symbolic: bool) -> None:
    check(device, arrangement, list(FORMS), symbolic)


@pytest.mark.turns(2)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_policies(device: str, bounds: str) -> None:
    forms = ["mixed", "read"]
    with tvm_scatter.options(bounds=bounds):
        executable = tvm.compile(module(in_both, [None], forms=forms), target_of(device))
    compare(executable, device, in_both, forms)


@pytest.mark.parametrize("arrangement", [beside_others, nested])
@pytest.mark.each_device
def test_memory_that_is_kept_for_cuda_graphs(device: str, arrangement: Compute) -> None:
    """TVM keeps the same for all functions of a module, so nothing is captured here."""
    if device == "llvm":
        pytest.skip("has no CUDA graphs")
    with tvm_scatter.options(cuda_graph=True):
        check(device, arrangement, ["mixed"])


def test_a_module_without_branches_is_left_alone() -> None:
    mod = module(in_both, [True], forms=["mixed"])
    assert BranchFunctions()(mod).same_as(mod)


def test_what_computes_as_tvm_does_is_left_alone() -> None:
    @I.ir_module
    class Stock:
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            if c:
                twice = R.add(x, x)
                y = R.add(twice, x)
            else:
                y = R.negative(x)
            return y

    assert BranchFunctions()(Stock).same_as(Stock)


def test_a_branch_is_moved_once() -> None:
    once = BranchFunctions()(module(nested, [None], True, ["mixed"]))
    assert relax.analysis.check_well_formed(once)
    twice = BranchFunctions()(once)
    assert tvm_ffi.structural_equal(once, twice)


@pytest.mark.parametrize("flow", ["LegalizeOps", "zero"])
def test_after_another_pipeline(device: str, flow: str) -> None:
    first = relax.transform.LegalizeOps() if flow == "LegalizeOps" else relax.get_pipeline(flow)
    with target_of(device):
        mod = first(module(in_both, [None], forms=["mixed"]))
    compare(tvm.compile(mod, target_of(device)), device, in_both, ["mixed"])


def test_as_machine_code() -> None:
    mod = module(nested, [None], True, ["mixed"])
    compare(relax.build(mod, target_of("llvm"), exec_mode="compiled"), "llvm", nested, ["mixed"])


@I.ir_module
class Sizes:
    """Sizes that a shape, a number, a product or a tensor which is not captured tells."""

    @R.function
    def main(
        x: R.Tensor(("n",), "float32"),
        i: R.Tensor(("m",), "int64"),
        y: R.Tensor(("m * 2",), "float32"),
        shape: R.Shape(["k"]),
        count: T.int64,
        c: R.Tensor((), "bool"),
    ):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        if c:
            zeros = R.zeros(R.shape([n, count]), "float32")
            ones = R.ones(R.shape([m, count]), "float32")
            wide = R.broadcast_to(R.reshape(i, R.shape([m, 1])), R.shape([m, count]))
            r = R.scatter_elements(zeros, wide, ones, axis=0, reduction="add")
        else:
            doubled = R.concat([i, i])
            zeros = R.zeros(R.shape([k]), "float32")
            r = R.reshape(R.add(R.take(zeros, doubled, axis=0), y), R.shape([m, 2]))
        return r


def test_sizes_that_no_captured_tensor_tells() -> None:
    machine = relax.VirtualMachine(tvm.compile(Sizes, target_of("llvm")), tvm.cpu())
    x, i, y = np.zeros(5, "float32"), np.array([1, 3, 3]), np.arange(6, dtype="float32")
    rest = tvm.runtime.ShapeTuple([4]), 2
    for taken, right in (
        (True, [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]]),
        (False, y.reshape(3, 2)),
    ):
        condition = tvm.runtime.tensor(np.array(taken))
        found = machine["main"](*map(tvm.runtime.tensor, (x, i, y)), *rest, condition)
        np.testing.assert_array_equal(found.numpy(), right)


@I.ir_module
class Recursive:
    """A function that doubles and writes until the sum is large enough."""

    @R.function
    def main(
        x: R.Tensor((4,), "float32"), i: R.Tensor((2,), "int64"), u: R.Tensor((2,), "float32")
    ) -> R.Tensor((4,), "float32"):
        cls = Recursive
        enough = R.greater(R.sum(x), R.const(20, "float32"))
        if enough:
            y = R.scatter_elements(R.negative(x), i, u, axis=0, reduction="mean")
        else:
            more = R.scatter_elements(R.add(x, x), i, u, axis=0, reduction="mean")
            y = cls.main(more, i, u)
        return y


def test_a_function_that_calls_itself() -> None:
    machine = relax.VirtualMachine(tvm.compile(Recursive, target_of("llvm")), tvm.cpu())
    x, i, u = np.ones(4, "float32"), np.array([1, 1]), np.array([3, 4], "float32")
    found = machine["main"](*map(tvm.runtime.tensor, (x, i, u))).numpy()
    # Twice (2 * value + 3 + 4) / 3 are 3.667 and 4.778, and the sum is above 20 after 3 turns.
    right, value = -8.0, 1.0
    for _ in range(3):
        value = (2 * value + 7) / 3
    np.testing.assert_allclose(found, [right, (7 - value) / 3, right, right], rtol=1e-6)


@I.ir_module
class Printed:
    """A branch that prints, in a function which therefore is not pure."""

    @R.function(pure=False)
    def main(
        x: R.Tensor((4,), "float32"),
        i: R.Tensor((2,), "int64"),
        u: R.Tensor((2,), "float32"),
        c: R.Tensor((), "bool"),
    ):
        if c:
            _ = R.print(x, format="branch {}")
            y = R.scatter_elements(x, i, u, axis=0, reduction="mean")
        else:
            y = R.scatter_elements(R.abs(x), i, u, axis=0, reduction="mean")
        return y


def test_a_branch_that_has_effects(capfd: pytest.CaptureFixture[str]) -> None:
    assert relax.analysis.check_well_formed(BranchFunctions()(Printed))
    machine = relax.VirtualMachine(tvm.compile(Printed, target_of("llvm")), tvm.cpu())
    arrays = [np.ones(4, "float32"), np.array([1, 2]), np.array([3, 5], "float32")]
    for condition in (True, False):
        arguments = map(tvm.runtime.tensor, (*arrays, np.array(condition)))
        np.testing.assert_array_equal(machine["main"](*arguments).numpy(), [1, 2, 3, 1])
        assert ("branch" in capfd.readouterr().out) == condition
