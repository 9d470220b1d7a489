"""What follows a scatter, computed where the scatter writes its result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tvm
from harness import at_its_address, device_of, target_of
from tvm import relax, tirx

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.passes import fuse_epilogues
from tvm_scatter.problem.reductions import numpy_dtype

op = relax.op
ROWS, COUNT, HEADS, WIDTH = 60, 500, 2, 8


@dataclass(frozen=True)
class Layer:
    """A scatter and what follows it.

    Attributes
    ----------
    follow : callable
        Takes a function that emits, the scatter's result, and the parameters by name.
    zeros : bool
        Whether it scatters into zeros; else into a parameter.
    """

    follow: Callable[[Any, Any, dict[str, Any]], Any]
    dtype: str = "float32"
    zeros: bool = True
    symbolic: bool = False
    reduction: str = "add"
    include_self: bool = True

    def module(self) -> tvm.IRModule:
        rows, count = (
            (tirx.Var(name, "int64") for name in ("rows", "count"))
            if self.symbolic
            else (ROWS, COUNT)
        )
        shapes = {
            "data": [rows, HEADS, WIDTH],
            "updates": [count, HEADS, WIDTH],
            "bias": [WIDTH],
            "heads": [HEADS, 1],
            "scale": [rows, 1, 1],
            "residual": [rows, HEADS, WIDTH],
            "flat": [HEADS * WIDTH],
        }
        given = {
            name: relax.Var(name, relax.TensorType(shape, self.dtype))
            for name, shape in shapes.items()
        }
        given["index"] = relax.Var("index", relax.TensorType([count], "int64"))
        given["mask"] = relax.Var("mask", relax.TensorType([rows, 1, 1], "bool"))
        builder = relax.BlockBuilder()
        with builder.function("main", list(given.values())):
            with builder.dataflow():
                data = given["data"]
                if self.zeros:
                    data = builder.emit(op.zeros(shapes["data"], self.dtype))
                found = index_put(
                    data,
                    [given["index"]],
                    given["updates"],
                    [0],
                    self.reduction,
                    include_self=self.include_self,
                )
                followed = self.follow(builder.emit, builder.emit(found), given)
                output = builder.emit_output(followed)
            builder.emit_func_output(output)
        return builder.get()

    def arrays(self, rows: int = ROWS, count: int = COUNT) -> list[Any]:
        """Small whole numbers; some rows have no update, and some many."""
        random = np.random.default_rng(rows + count)

        def whole(*shape: int) -> Any:
            return random.integers(-3, 4, shape).astype(numpy_dtype(self.dtype))

        index = random.integers(0, max(rows - 3, 1), count)
        index[: count // 2] = 0
        return [
            whole(rows, HEADS, WIDTH),
            whole(count, HEADS, WIDTH),
            whole(WIDTH),
            whole(HEADS, 1),
            whole(rows, 1, 1),
            whole(rows, HEADS, WIDTH),
            whole(HEADS * WIDTH),
            index,
            random.random((rows, 1, 1)) < 0.5,
        ]


def zero(dtype: str = "float32") -> Any:
    return relax.const(0, dtype)


def layer_of_a_graph(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    """Bias, and a rectifier as PyTorch's importer writes it."""
    total = emit(op.add(own, given["bias"]))
    return emit(op.where(emit(op.less_equal(total, zero())), zero(), total))


def everything(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    scaled = emit(op.multiply(own, given["scale"]))
    more = emit(op.add(emit(op.add(scaled, given["heads"])), given["residual"]))
    chosen = emit(op.where(given["mask"], more, own))
    return emit(op.maximum(emit(op.add(chosen, given["bias"])), zero()))


def scaled_residual(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    """As GIN adds a node itself; the operand is computed by two operators."""
    shifted = emit(op.add(given["residual"], given["bias"]))
    return emit(op.add(own, emit(op.multiply(shifted, given["scale"]))))


def heads_side_by_side(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    rows = own.ty.shape[0]
    flat = emit(op.reshape(emit(op.add(own, given["residual"])), [rows, HEADS * WIDTH]))
    return emit(op.add(flat, given["flat"]))


def cast(dtype: str) -> Callable[..., Any]:
    def follow(emit: Any, own: Any, given: dict[str, Any]) -> Any:
        return emit(op.astype(emit(op.add(own, given["bias"])), dtype))

    return follow


def compiled(mod: tvm.IRModule, device: str, **options: Any) -> relax.VirtualMachine:
    with tvm_scatter.options(**{"bounds": "drop", **options}):
        executable = tvm.compile(mod, target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


@functools.cache
def apart(layer: Layer) -> relax.VirtualMachine:
    """The program in which nothing is fused, on a CPU."""
    return compiled(layer.module(), "llvm", epilogue=False, fill=False)


def run(machine: relax.VirtualMachine, device: str, arrays: list[Any], name: str = "main") -> Any:
    on = device_of(device)
    result = machine[name](*[tvm.runtime.tensor(each, on) for each in arrays]).numpy()
    return result.astype("float32") if result.dtype.name == "bfloat16" else result


def notes(mod: tvm.IRModule, **options: Any) -> list[str]:
    with tvm_scatter.options(**options):
        found = tvm_scatter.explain(mod, target_of("cuda")).notes
    return [str(each).partition(" ")[2] for each in found if each.switch == "epilogue"]


def check(layer: Layer, device: str, sizes: Any = ((ROWS, COUNT),), **options: Any) -> None:
    """The result is that of the same program in which nothing is fused, on a CPU."""
    check_run(compiled(layer.module(), device, **options), layer, device, sizes)


def check_run(
    together: relax.VirtualMachine,
    layer: Layer,
    device: str,
    sizes: Any = ((ROWS, COUNT),),
    name: str = "main",
) -> None:
    for rows, count in sizes:
        arrays = layer.arrays(rows, count)
        # Twice, so that memory holds other results before.
        for _ in range(2):
            found = run(together, device, arrays, name)
            wanted = run(apart(layer), "llvm", arrays)
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_array_equal(found, wanted)


@pytest.fixture
def cuda(device: str) -> str:
    if device == "llvm":
        pytest.skip("CPUs compute what follows apart")
    return device


FOLLOWING = {
    "bias and rectifier": layer_of_a_graph,
    "everything": everything,
    "a scaled residual": scaled_residual,
    "another shape": heads_side_by_side,
    "another type": cast("float64"),
    "a narrower type": cast("float16"),
}


@pytest.mark.turns(8)
@pytest.mark.parametrize("which", range(len(FOLLOWING)), ids=FOLLOWING)
@pytest.mark.parametrize(
    ("chosen", "zeros"),
    [
        *(("bucketed", True), ("grouped", False), ("segmented", True), ("segmented", False)),
        *(("row_resident", False), ("column_resident", True)),
    ],
)
def test_each_that_writes_rows_once(chosen: str, which: int, zeros: bool, cuda: str) -> None:
    layer = Layer(list(FOLLOWING.values())[which], zeros=zeros)
    [said] = notes(layer.module(), implementation=chosen)
    assert "main.lv" in said and "computes what follows where it is written: " in said
    check(layer, cuda, implementation=chosen)


def scaled_and_rectified(dtype: str) -> Layer:
    def follow(emit: Any, own: Any, given: dict[str, Any]) -> Any:
        total = emit(op.add(emit(op.multiply(own, given["scale"])), given["bias"]))
        return emit(op.maximum(total, relax.const(0, dtype)))

    return Layer(follow, dtype=dtype, reduction="max")


OF_EACH_TYPE = tuple(
    scaled_and_rectified(dtype)
    for dtype in ("float16", "bfloat16", "float64", "int8", "int32", "int64")
)


@pytest.mark.turns(8)
@pytest.mark.parametrize("at", range(len(OF_EACH_TYPE)), ids=[each.dtype for each in OF_EACH_TYPE])
def test_data_types(at: int, cuda: str) -> None:
    for chosen in ("segmented", "row_resident"):
        assert notes(OF_EACH_TYPE[at].module(), implementation=chosen)
        check(OF_EACH_TYPE[at], cuda, implementation=chosen)


def rectified_residual(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    # The mean of small whole numbers is rounded alike in both.
    return emit(op.add(emit(op.maximum(own, zero())), given["residual"]))


REDUCTIONS = ("mul", "min", "mean")


@pytest.mark.turns(2)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("chosen", "include_self"), [("grouped", True), ("segmented", False)])
def test_reductions(chosen: str, reduction: str, include_self: bool, cuda: str) -> None:
    layer = Layer(rectified_residual, zeros=False, include_self=include_self, reduction=reduction)
    check(layer, cuda, implementation=chosen)


def test_an_order_that_is_given(cuda: str) -> None:
    layer = Layer(everything)
    mod = layer.module()
    options = {"share_order": True, "deterministic": True, "implementation": "segmented"}
    with tvm_scatter.options(**options):
        implementations = [
            each.implementation for each in tvm_scatter.explain(mod, target_of(cuda))
        ]
    check(layer, cuda, **options)
    assert implementations == ["segmented"]


@pytest.mark.turns(4)
@pytest.mark.parametrize("zeros", [True, False], ids=["zeros", "data"])
@pytest.mark.parametrize("follow", [everything, heads_side_by_side])
def test_sizes_that_are_known_at_run_time(follow: Any, zeros: bool, cuda: str) -> None:
    layer = Layer(follow, symbolic=True, zeros=zeros)
    assert notes(layer.module())
    check(layer, cuda, [(ROWS, COUNT), (1, 3), (40, 0), (7, 1)])


@pytest.mark.turns(4)
@pytest.mark.parametrize("follow", [everything, heads_side_by_side])
@pytest.mark.parametrize("chosen", ["parallel_injective", "sequential", "sort_based"])
def test_those_that_do_not_write_once_take_another_launch(
    chosen: str, follow: Any, cuda: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the sizes decide at run time between them and others."""
    layer = Layer(follow, zeros=False)
    assert "is written before what follows" in notes(layer.module(), implementation=chosen)[0]
    always = lambda _call, finished: fuse_epilogues._planned(finished)  # noqa: E731
    monkeypatch.setattr(fuse_epilogues, "_check_pays", always)
    assert "computes what follows" in notes(layer.module(), implementation=chosen)[0]
    check(layer, cuda, implementation=chosen)
    check(replace(layer, zeros=True), cuda, implementation=chosen)
    other = Layer(cast("float16"))
    assert "of type float16" in notes(other.module(), implementation=chosen)[0]


@pytest.mark.parametrize("bounds", ["raise", "trust"])
def test_policies(bounds: str, cuda: str) -> None:
    layer = Layer(everything)
    check(layer, cuda, implementation="grouped", bounds=bounds)
    if bounds == "raise":
        arrays = layer.arrays()
        arrays[-2][3] = ROWS
        machine = compiled(layer.module(), cuda, implementation="grouped", bounds=bounds)
        with pytest.raises(Exception, match=f"index_put: index {ROWS}"):
            run(machine, cuda, arrays)


@pytest.mark.parametrize("shift", [1, 2])
def test_tensors_at_odd_addresses(shift: int, cuda: str) -> None:
    layer = Layer(everything, zeros=False)
    machine = compiled(layer.module(), cuda, implementation="segmented")
    arrays, on = layer.arrays(), device_of(cuda)
    wanted = run(machine, cuda, arrays)
    given = []
    for array in arrays:
        if array.dtype != "float32":
            given.append(tvm.runtime.tensor(array, on))
            continue
        whole = np.concatenate([np.full(shift, np.nan, "float32"), array.reshape(-1)])
        view = tvm.runtime.tensor(whole, on)._create_view(array.shape, "float32", 4 * shift)
        given.append(at_its_address(view))
    np.testing.assert_array_equal(machine["main"](*given).numpy(), wanted)


def test_a_residual_that_is_the_data_is_not_overwritten(cuda: str) -> None:
    def follow(emit: Any, own: Any, given: dict[str, Any]) -> Any:
        return emit(op.subtract(own, given["data"]))

    layer = Layer(follow, zeros=False)
    check(layer, cuda, implementation="segmented", donate=["data"])


def softmaxed(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    return emit(op.nn.softmax(own))


def read_twice(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    return relax.Tuple([emit(op.add(own, given["bias"])), own])


def transposed(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    return emit(op.permute_dims(own))


def compared(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    return emit(op.greater(own, given["bias"]))


def broadcast(emit: Any, own: Any, given: dict[str, Any]) -> Any:
    one = emit(op.reshape(own, [ROWS, 1, HEADS, WIDTH]))
    other = emit(op.reshape(given["residual"], [1, ROWS, HEADS, WIDTH]))
    return emit(op.add(one, other))


@pytest.mark.parametrize("follow", [softmaxed, read_twice, transposed, compared, broadcast])
def test_what_stays_apart(follow: Any) -> None:
    said = notes(Layer(follow).module(), implementation="segmented")
    assert not any("add" in each or "permute" in each or "greater" in each for each in said)


def test_what_two_results_need_is_written_once() -> None:
    """The scatter computes what both are computed from."""

    def follow(emit: Any, own: Any, given: dict[str, Any]) -> Any:
        first = emit(op.add(own, given["bias"]))
        return relax.Tuple([emit(op.maximum(first, zero())), emit(op.minimum(first, zero()))])

    [said] = notes(Layer(follow).module(), implementation="segmented")
    assert said == "main.lv1 computes what follows where it is written: add"


def test_operands_are_computed_there_too() -> None:
    [said] = notes(Layer(scaled_residual).module(), implementation="segmented")
    assert said.endswith("it is written: add, multiply, add")


def test_operands_that_others_read_are_computed_once() -> None:
    def follow(emit: Any, own: Any, given: dict[str, Any]) -> Any:
        scaled = emit(op.multiply(given["residual"], given["scale"]))
        return relax.Tuple([emit(op.add(own, scaled)), scaled])

    [said] = notes(Layer(follow).module(), implementation="segmented")
    assert said.endswith("it is written: add")


def test_operators_that_nothing_reads_are_no_operands() -> None:
    def follow(emit: Any, own: Any, given: dict[str, Any]) -> Any:
        emit(op.exp(given["residual"]))
        return emit(op.add(own, given["residual"]))

    [said] = notes(Layer(follow).module(), implementation="segmented")
    assert said.endswith("it is written: add")


def test_what_follows_a_product_stays_there() -> None:
    def follow(emit: Any, own: Any, given: dict[str, Any]) -> Any:
        weights = relax.const(np.eye(WIDTH, dtype="float32"))
        product = emit(op.matmul(given["residual"], weights))
        return emit(op.add(own, emit(op.add(product, given["bias"]))))

    [said] = notes(Layer(follow).module(), implementation="segmented")
    assert said.endswith("it is written: add")


def test_two_scatters_compute_an_operand_once(cuda: str) -> None:
    """What follows one of them is an operand of what follows the other."""

    def follow(emit: Any, own: Any, given: dict[str, Any]) -> Any:
        first = emit(op.multiply(own, given["scale"]))
        second = emit(index_put(given["residual"], [given["index"]], given["updates"], [0], "add"))
        return emit(op.add(emit(op.multiply(second, given["scale"])), first))

    layer = Layer(follow)
    [said] = notes(layer.module(), implementation="segmented", epilogue=True)
    assert said.endswith("it is written: multiply, multiply, add")
    check(layer, cuda, implementation="segmented", epilogue=True)


def test_the_option() -> None:
    mod = Layer(layer_of_a_graph).module()
    assert notes(mod, implementation="grouped")
    assert not notes(mod, implementation="grouped", epilogue=False)
    assert not notes(mod, implementation="grouped", cuda_graph=True)
    assert not tvm_scatter.explain(mod, "llvm")[0].problem.epilogue


@pytest.mark.parametrize("chosen", ["sequential", "sort_based", "segmented"])
def test_a_result_of_one_element(chosen: str, cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no neighbours along any axis."""
    monkeypatch.setattr(
        fuse_epilogues, "_check_pays", lambda _call, finished: fuse_epilogues._planned(finished)
    )
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([5], "int64"))
    updates = relax.Var("updates", relax.TensorType([5], "float32"))
    with builder.function("main", [index, updates]):
        with builder.dataflow():
            zeros = builder.emit(op.zeros([1], "float32"))
            summed = builder.emit(index_put(zeros, [index], updates, [0], "add"))
            doubled = builder.emit(op.multiply(summed, relax.const(2.0, "float32")))
            output = builder.emit_output(doubled)
        builder.emit_func_output(output)
    assert "computes what follows" in notes(builder.get(), implementation=chosen)[0]
    machine = compiled(builder.get(), cuda, implementation=chosen)
    on = device_of(cuda)
    arrays = np.zeros(5, "int64"), np.arange(5, dtype="float32")
    result = machine["main"](*[tvm.runtime.tensor(each, on) for each in arrays])
    np.testing.assert_array_equal(result.numpy(), [20.0])
