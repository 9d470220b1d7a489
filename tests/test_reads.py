"""What reads by index: NumPy's answers, and the scatters' policy for bad indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm
from cuda_on_cpu import record, status
from harness import (
    GUARD_BYTES,
    at_its_address,
    compile_all,
    device_of,
    relax_function,
    run,
    run_all,
    target_of,
)
from tvm import relax

import tvm_scatter
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.operators import index_put

Array = np.ndarray[Any, Any]
CUBE = np.arange(60, dtype="float32").reshape(3, 4, 5) + 1


class Case(NamedTuple):
    """A read, its operands, and what it is in NumPy. ``refuses`` says that it wraps nothing."""

    build: Callable[..., Any]
    arrays: tuple[Array, ...]
    reference: Callable[..., Any]
    refuses: bool = False


def rows(*places: Any, dtype: str = "int64") -> Array:
    return np.array(places, dtype)


def elements(data: Array, index: Array, axis: int) -> Any:
    return np.take_along_axis(data[: index.shape[0]], index, axis)


CASES = {
    "take": Case(lambda x, i: relax.op.take(x, i, 0), (CUBE, rows(2, 0, -1)), lambda x, i: x[i]),
    "take_middle": Case(
        lambda x, i: relax.op.take(x, i, 1),
        (CUBE, rows([3, -4], [0, 1], dtype="int32")),
        lambda x, i: x[:, i],
    ),
    "take_last": Case(
        lambda x, i: relax.op.take(x, i, -1), (CUBE, np.array(-5)), lambda x, i: x[..., i]
    ),
    "take_flat": Case(lambda x, i: relax.op.take(x, i), (CUBE[0, 0], rows(4, -1)), np.take),
    "take_nothing": Case(
        lambda x, i: relax.op.take(x, i, 0), (CUBE, np.zeros((0, 2), "int64")), lambda x, i: x[i]
    ),
    "take_bytes": Case(
        lambda x, i: relax.op.take(x, i, 0),
        (CUBE[:, :, 0] > 5, rows(2, 0, dtype="uint8")),
        lambda x, i: x[i],
        refuses=True,
    ),
    "embedding": Case(
        lambda x, i: relax.op.take(x, i, 0, mode="embedding"),
        (CUBE[0].astype("float16"), rows(3, 0)),
        lambda x, i: x[i],
        refuses=True,
    ),
    "gather_elements": Case(
        lambda x, i: relax.op.gather_elements(x, i, 2),
        (CUBE, np.array([[[0, -5, 4]] * 4] * 2)),
        lambda x, i: elements(x, i, 2),
    ),
    "gather": Case(
        lambda x, i: read_ops.gather_elements(x, i, 0, operator="gather"),
        (CUBE[0].astype("int8"), rows([3, 0, 1, 2, 0], dtype="int32")),
        lambda x, i: np.take_along_axis(x, i, 0),
        refuses=True,
    ),
    "gather_nd": Case(
        lambda x, i: relax.op.gather_nd(x, i),
        (CUBE, rows([0, 3], [-1, 1])),
        lambda x, i: x[tuple(i.T)],
    ),
    "gather_nd_batch": Case(
        lambda x, i: read_ops.gather_nd(x, i, 1),
        (CUBE, rows([[0, 4]], [[1, -5]], [[3, 3]])),
        lambda x, i: x[np.arange(3)[:, None], i[..., 0], i[..., 1]],
    ),
    "index_tensor": Case(
        lambda x, i, j: relax.op.index_tensor(x, [i, j]),
        (CUBE, rows([0], [-1]), rows(3, -4, 1, dtype="int32")),
        lambda x, i, j: x[i, j],
    ),
    "index_apart": Case(
        lambda x, i, j: read_ops.index(x, [i, j], [0, 2]),
        (CUBE, rows([2], [0]), rows(-5, 4, 1)),
        lambda x, i, j: x[i, :, j],
    ),
    "index_adjacent": Case(
        lambda x, i, j: read_ops.index(x, [i, j], [1, 2]),
        (CUBE, np.array(-1), rows(-5, 4, 1)),
        lambda x, i, j: x[:, i, j],
    ),
}
CALLS = {name: (case.build, case.arrays) for name, case in CASES.items()}


def index_range(name: str) -> tuple[Array, list[int]]:
    """The first index tensor of a case, and the extents of its components."""
    case = CASES[name]
    data, index = case.arrays[:2]
    extents = {
        "take_middle": [4],
        "take_last": [5],
        "gather_elements": [5],
        "gather_nd": [3, 4],
        "gather_nd_batch": [4, 5],
        "index_adjacent": [4],
    }
    return index, extents.get(name, [data.shape[0]])


def with_bad(name: str, index: Array, extent: int, beyond: bool) -> tuple[int, Array]:
    """A bad index just outside the range, in the place of the first one."""
    info = np.iinfo(index.dtype)
    bad = extent if beyond else (-1 if CASES[name].refuses else -extent - 1)
    bad = bad if bad >= info.min else info.max
    index = index.copy()
    index.reshape(-1)[0] = bad
    return int(bad), index


@pytest.mark.turns(2)
@pytest.mark.parametrize("bounds", ["raise", "drop", "trust"])
def test_good_indices(device: str, bounds: str) -> None:
    results = run_all(CALLS, device, bounds=bounds)
    for name, case in CASES.items():
        expected = np.asarray(case.reference(*case.arrays))
        assert results[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(results[name], expected, err_msg=name)


def test_symbolic_sizes(device: str) -> None:
    names = [name for name in CASES if name.startswith(("take", "embedding", "gather"))]
    names = [name for name in names if not name.startswith(("gather_nd", "take_nothing"))]
    calls = {name: CALLS[name] for name in names}
    results = run_all(calls, device, symbolic=True, bounds="raise")
    for name in names:
        expected = CASES[name].reference(*CASES[name].arrays)
        np.testing.assert_array_equal(results[name], expected, err_msg=name)


#: Reads of nothing, as (build, operands): the result is the function's own output.
EMPTY_READS: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "take": (lambda x, i: relax.op.take(x, i, 0), (CUBE[:, :0, 0], rows(1))),
    "take_no_rows": (lambda x, i: relax.op.take(x, i, 0), (CUBE, rows())),
    "embedding": (lambda x, i: relax.op.take(x, i, 0, "embedding"), (CUBE[:, :0, 0], rows(2, 0))),
    "gather_elements": (
        lambda x, i: relax.op.gather_elements(x, i, 1),
        (CUBE[0], np.zeros((3, 0), int)),
    ),
    "gather_nd": (lambda x, i: relax.op.gather_nd(x, i), (CUBE[:, :, :0], rows([0, 1]))),
    "index": (lambda x, i, j: read_ops.index(x, [i, j], [0, 1]), (CUBE[..., :0], rows(0), rows(3))),
}  # fmt: skip
EMPTY_SHAPES = {
    "take": (1, 0),
    "take_no_rows": (0, 4, 5),
    "embedding": (2, 0),
    "gather_elements": (3, 0),
    "gather_nd": (1, 0),
    "index": (1, 0),
}


@pytest.mark.parametrize("bounds", ["raise", "trust"])
@pytest.mark.each_device
def test_reads_of_nothing(device: str, bounds: str) -> None:
    results = run_all(EMPTY_READS, device, bounds=bounds)
    assert {name: result.shape for name, result in results.items()} == EMPTY_SHAPES


@pytest.mark.each_device
def test_symbolic_reads_of_nothing(device: str) -> None:
    """Nothing is written where some sizes are known at run time only, and one is zero."""
    builder, n, m = relax.BlockBuilder(), tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
    data = relax.Var("data", relax.TensorType([n, 0], "float32"))
    index = relax.Var("index", relax.TensorType([m], "int64"))
    with builder.function("main", [data, index]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.take(data, index, 0))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target_of(device)), device_of(device))
    x, i = (tvm.runtime.tensor(a, device_of(device)) for a in (CUBE[:, :0, 0], rows(2, 0)))
    assert machine["main"](x, i).numpy().shape == (2, 0)


def test_sizes_that_may_differ() -> None:
    case = CASES["index_apart"]
    with pytest.raises(tvm_scatter.ScatterError, match=r"index: shapes .* do not broadcast"):
        run(case.build, case.arrays, symbolic=True)


def test_an_index_that_is_larger_than_the_data(device: str) -> None:
    """Off the axis that it addresses: an error when it is compiled, or when it is run."""
    build = lambda x, i: read_ops.gather_elements(x, i, 1, operator="gather")  # noqa: E731
    data, small, large = np.ones((3, 4), "float32"), np.zeros((2, 5), int), np.zeros((6, 5), int)
    with pytest.raises(
        tvm_scatter.ScatterError, match=r"gather: index of shape \(6, 5\) is larger"
    ):
        run(build, (data, large))
    for bounds in ("raise", "drop", "trust"):
        machine = compile_all({"main": (build, (data, small))}, device, True, bounds=bounds)
        x, good, bad = (tvm.runtime.tensor(a, device_of(device)) for a in (data, small, large))
        np.testing.assert_array_equal(machine["main"](x, good).numpy(), np.ones((2, 5)))
        with pytest.raises(ValueError, match="gather: index of size 6 in dimension 0 is larger"):
            machine["main"](x, bad)


@pytest.fixture(scope="module")
def machines() -> dict[tuple[str, str], Any]:
    """The cases compiled, by device and policy."""
    return {}


def compiled(machines: dict[tuple[str, str], Any], device: str, bounds: str) -> Any:
    if (device, bounds) not in machines:
        machines[device, bounds] = compile_all(CALLS, device, bounds=bounds)
    return machines[device, bounds]


@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name != "take_nothing"])
@pytest.mark.each_device
def test_a_bad_index_is_an_error(
    device: str, machines: dict[tuple[str, str], Any], name: str, beyond: bool
) -> None:
    machine = compiled(machines, device, "raise")
    data, _, *rest = CASES[name].arrays
    good, (extent, *_) = index_range(name)
    bad, index = with_bad(name, good, extent, beyond)
    on = device_of(device)
    lowest = "0" if CASES[name].refuses and good.dtype != np.uint8 else f"(-{extent}|0)"
    operator = {"take_bytes": "take", "gather_nd_batch": "gather_nd"}.get(name, name)
    operator = operator.removesuffix("_middle").removesuffix("_last").removesuffix("_flat")
    operator = operator.removesuffix("_apart").removesuffix("_adjacent")
    expected = (
        rf"{operator}: index {bad} at .*position.* is out of bounds for an axis of extent "
        rf"{extent}; it must be in \[{lowest}, {extent - 1}\]"
    )
    with pytest.raises(IndexError, match=expected):
        machine[name](*[tvm.runtime.tensor(a, device=on) for a in (data, index, *rest)])
    again = machine[name](*[tvm.runtime.tensor(a, device=on) for a in (data, good, *rest)])
    reference = CASES[name].reference(*CASES[name].arrays)
    np.testing.assert_array_equal(again.numpy(), reference)


@pytest.mark.parametrize("name", [name for name in CASES if name != "take_nothing"])
@pytest.mark.each_device
def test_a_bad_index_reads_a_zero(
    device: str, machines: dict[tuple[str, str], Any], name: str
) -> None:
    """And nothing beside the data, which lies between bytes that would show."""
    machine, on = compiled(machines, device, "drop"), device_of(device)
    data, _, *rest = CASES[name].arrays
    good, (extent, *_) = index_range(name)
    reference = np.asarray(CASES[name].reference(*CASES[name].arrays))
    guard = np.full(GUARD_BYTES, 0xA5, np.uint8)
    content = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    buffer = tvm.runtime.tensor(np.concatenate([guard, content, guard]), device=on)
    view = at_its_address(buffer._create_view(data.shape, str(data.dtype), GUARD_BYTES))
    for beyond in (False, True):
        _, index = with_bad(name, good, extent, beyond)
        others = [tvm.runtime.tensor(a, device=on) for a in (index, *rest)]
        result = machine[name](view, *others).numpy()
        zero = result != reference
        assert zero.any()
        assert not result[zero].any()


def test_far_away(device: str) -> None:
    """No arithmetic with an index overflows into the data."""
    far = np.array([2**63 - 1, -(2**63), 2**32 + 1, -(2**40)])
    build = lambda x, i: relax.op.take(x, i, 0)  # noqa: E731
    machine = compile_all({"main": (build, (CUBE, far))}, device, bounds="drop")
    tensors = [tvm.runtime.tensor(a, device=device_of(device)) for a in (CUBE, far)]
    assert not machine["main"](*tensors).numpy().any()
    with pytest.raises(IndexError, match=f"index {2**63 - 1} at position"):
        run(build, (CUBE, far), device, bounds="raise")
    unsigned = np.array([2**64 - 1, 1], "uint64")
    expected = np.stack([np.zeros_like(CUBE[0]), CUBE[1]])
    np.testing.assert_array_equal(run(build, (CUBE, unsigned), device, bounds="drop"), expected)
    with pytest.raises(IndexError, match=rf"index {2**64 - 1} at position \(0\) .* \[0, "):
        run(build, (CUBE, unsigned), device, bounds="raise")


def messages(x: Any, source: Any, target: Any) -> Any:
    """What a graph network does: read rows by one index and add them up by another."""
    emit = relax.BlockBuilder.current().emit
    rows = emit(relax.op.multiply(emit(relax.op.take(x, source, 0)), relax.const(2.0)))
    return index_put(x, [target], rows, reduction="add")


def test_a_read_beside_a_scatter(device: str) -> None:
    x, good, on = CUBE[0], rows(0, 3, 1), device_of(device)
    bad = rows(0, 4, 1)
    calls = {"main": (messages, (x, good, good))}
    machine = compile_all(calls, device, bounds="raise")
    for source, target in ((bad, good), (good, bad)):
        arrays = [tvm.runtime.tensor(a, device=on) for a in (x, source, target)]
        with pytest.raises(IndexError, match=r"index 4 at position \(1\)"):
            machine["main"](*arrays)
    arrays = [tvm.runtime.tensor(a, device=on) for a in (x, good, good)]
    expected = x.copy()
    np.add.at(expected, good, x[good] * 2)
    np.testing.assert_array_equal(machine["main"](*arrays).numpy(), expected)
    machine = compile_all(calls, device, bounds="drop")
    arrays = [tvm.runtime.tensor(a, device=on) for a in (x, bad, good)]
    expected = x.copy()
    np.add.at(expected, good[[0, 2]], x[bad[[0, 2]]] * 2)
    np.testing.assert_array_equal(machine["main"](*arrays).numpy(), expected)


def legalized(build: Any, arrays: Any, kind: str, **options: Any) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, arrays)
    with tvm_scatter.options(**options), target_of(kind):
        return relax.transform.LegalizeOps()(builder.get())


@pytest.mark.parametrize("places", [[0, 2], [-1, 1], []])
def test_known_indices_are_not_checked(places: list[int]) -> None:
    index = relax.const(np.array(places, "int64"))
    build = lambda x: relax.op.take(x, index, 0)  # noqa: E731
    for kind in ("llvm", "cuda"):
        mod = legalized(build, (CUBE,), kind, bounds="raise")
        assert [name.name_hint for name in mod.functions if "check" in name.name_hint] == []
        assert "if_then_else" not in mod.script()
    expected = CUBE[np.array(places, int)]
    np.testing.assert_array_equal(run(build, (CUBE,), bounds="raise"), expected)


@pytest.mark.each_device
def test_a_known_bad_index_is_an_error_when_it_is_read(device: str) -> None:
    index = relax.const(np.array([0, 3], "int64"))
    with pytest.raises(IndexError, match=r"take: index 3 at position \(1\)"):
        run(lambda x: relax.op.take(x, index, 0), (CUBE,), device, bounds="raise")


@pytest.mark.parametrize("mode", ["clip", "wrap", "nan"])
@pytest.mark.each_device
def test_what_says_itself_what_a_bad_index_means(device: str, mode: str) -> None:
    index = rows(-1, 3, 0)
    result = run(lambda x, i: relax.op.take(x, i, 0, mode), (CUBE, index), device, bounds="raise")
    expected = {
        "clip": CUBE[[0, 2, 0]],
        "wrap": CUBE[[2, 0, 0]],
        "nan": np.stack([np.full_like(CUBE[0], np.nan)] * 2 + [CUBE[0]]),
    }
    np.testing.assert_array_equal(result, expected[mode])


@pytest.mark.parametrize("bounds", ["raise", "drop", "trust"])
def test_nobody_is_warned_of_a_read_that_is_guarded(
    bounds: str, capfd: pytest.CaptureFixture[str]
) -> None:
    legalized(lambda x, i: relax.op.take(x, i, 0), (CUBE, rows(0)), "llvm", bounds=bounds)
    output = capfd.readouterr()
    assert "segfault" not in output.out + output.err


def fused(x: Any, i: Any) -> Any:
    """A read with a producer and a consumer that TVM fuses it with."""
    emit = relax.BlockBuilder.current().emit
    read = emit(relax.op.take(emit(relax.op.exp(x)), emit(relax.op.add(i, i)), 0))
    return relax.op.negative(emit(relax.op.add(read, relax.const(1.0))))


def test_a_guarded_read_is_fused_with_what_is_around_it() -> None:
    if not status():
        pytest.skip("launches are counted on the simulated device")
    arrays = CUBE, rows(0, 1)
    counts = {}
    for name, options in {
        "stock": {"enabled": False},
        "apart": {"gather": False, "bounds": "drop"},
        "drop": {"bounds": "drop"},
        "trust": {"bounds": "trust"},
        "raise": {"bounds": "raise"},
    }.items():
        machine = compile_all({"main": (fused, arrays)}, "cuda", **options)
        tensors = [tvm.runtime.tensor(a, device=tvm.cuda()) for a in arrays]
        machine["main"](*tensors)
        with record() as log:
            machine["main"](*tensors)
        counts[name] = len(log.launches)
    assert counts["drop"] == counts["trust"] == 1
    assert counts["apart"] == counts["stock"]
    # The check needs the indices, which the read would have computed on its way, and is a launch.
    assert counts["raise"] <= counts["stock"] + 2


def test_the_host_waits_once_for_reads_and_scatters() -> None:
    if not status():
        pytest.skip("launches are counted on the simulated device")
    x, good = CUBE[0], rows(0, 3, 1)
    machine = compile_all({"main": (messages, (x, good, good))}, "cuda", bounds="raise")
    bad = [tvm.runtime.tensor(a, device=tvm.cuda()) for a in (x, rows(0, 9, 0), good)]
    with record() as log, pytest.raises(IndexError, match="take: index 9"):
        machine["main"](*bad)
    names = [event.name for event in log.launches]
    assert sum("check_indices" in name for name in names) == 2
    assert any("scatter" in name for name in names)


def test_tuples_of_index_tensors_may_be_variables() -> None:
    def build(x: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return relax.op.index_tensor(x, emit(relax.Tuple([i, i])))

    index = rows(0, -1)
    np.testing.assert_array_equal(run(build, (CUBE, index)), CUBE[index, index])


def test_without_the_package_reads_are_TVMs(capfd: pytest.CaptureFixture[str]) -> None:
    build = lambda x, i: relax.op.take(x, i, 0)  # noqa: E731
    legalized(build, (CUBE, rows(0)), "llvm", enabled=False)
    assert "segfault" in "".join(capfd.readouterr())
    tvm_scatter.uninstall()
    try:
        legalized(build, (CUBE, rows(0)), "llvm")
        assert "segfault" in "".join(capfd.readouterr())
        # What the importer wrote stays usable.
        ours = CASES["index_apart"]
        result = run(ours.build, ours.arrays)
        np.testing.assert_array_equal(result, ours.reference(*ours.arrays))
    finally:
        tvm_scatter.install()


def test_is_read() -> None:
    x, i = (
        relax.Var(name, relax.TensorType([3], kind))
        for name, kind in (("x", "float32"), ("i", "int64"))
    )
    assert is_read(relax.op.take(x, i, 0))
    assert not is_read(relax.op.negative(x)) and not is_read(x)
