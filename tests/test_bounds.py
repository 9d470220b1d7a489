"""Indices out of range: raised with a clear message, or dropped, and never written."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from bad_indices import violations
from cuda_on_cpu import status
from harness import (
    ProblemRunner,
    applicable,
    compile_all,
    device_of,
    in_order,
    orders,
    relax_function,
    run,
    target_of,
)
from tally import Tally
from tvm import relax

import tvm_scatter
from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.bounds import device_check
from tvm_scatter.bounds.device_check import CheckKind
from tvm_scatter.emit.mailbox import STATUS, Findings
from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd
from tvm_scatter.passes import ReuseBuffers
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.strategies.cuda.check import CHECK

DATA = np.arange(12, dtype="float32").reshape(4, 3)


def call(build: Any, device: str, *arrays: Any, **options: Any) -> Any:
    """A function of NumPy arrays, compiled once; results stay on the device."""
    machine = compile_all({"main": (build, arrays)}, device, **options)
    on = device_of(device)

    def function(*arrays: Any) -> tuple[Any, list[Any]]:
        tensors = [tvm.runtime.tensor(np.asarray(array), device=on) for array in arrays]
        return machine["main"](*tensors), tensors

    return function


def elements(data: Any, index: Any, updates: Any) -> Any:
    return scatter_elements(data, index, updates, axis=0, reduction="add")


@pytest.mark.usefixtures("kind")
@pytest.mark.each_device
def test_raise_names_everything_and_the_next_call_works(device: str) -> None:
    good = np.array([[0, 3, 1], [3, 2, 0]])
    bad = np.array([[0, 3, 1], [3, 4, -1]])
    updates = np.ones((2, 3), "float32")
    function = call(elements, device, DATA, good, updates, bounds="raise")
    expected = function(DATA, good, updates)[0].numpy()
    with pytest.raises(IndexError) as error:
        function(DATA, bad, updates)
    message = str(error.value)
    for part in ("scatter_elements", "index 4", "position (1, 1)", "extent 4", "[0, 3]"):
        assert part in message, message
    result, tensors = function(DATA, good, updates)
    np.testing.assert_array_equal(result.numpy(), expected)
    np.testing.assert_array_equal(tensors[0].numpy(), DATA)


@pytest.mark.parametrize("donate", [(), ("p0",)], ids=["new", "in_place"])
@pytest.mark.each_device
def test_nothing_is_written_when_it_raises(device: str, donate: tuple[str, ...]) -> None:
    """Neither operands nor, where the scatter overwrites its data, what precedes the bad index."""
    index, updates = np.zeros((2, 3), "int64"), np.ones((2, 3), "float32")
    calls = {"main": (elements, (DATA, index, updates))}
    machine = compile_all(calls, device, bounds="raise", donate=donate)
    arrays = DATA, index, updates
    tensors = [tvm.runtime.tensor(array, device=device_of(device)) for array in arrays]
    bad = tvm.runtime.tensor(np.array([[0, 1, 2], [3, 0, 9]]), device=device_of(device))
    for _ in range(2):
        with pytest.raises(IndexError, match=r"index 9 at position \(1, 2\)"):
            machine["main"](tensors[0], bad, tensors[2])
        for tensor, array in zip(tensors, arrays, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array)
    expected = DATA.copy()
    expected[0] += 2
    np.testing.assert_array_equal(machine["main"](*tensors).numpy(), expected)
    np.testing.assert_array_equal(tensors[0].numpy(), expected if donate else DATA)


def two(data: Any, left: Any, right: Any, updates: Any) -> Any:
    """Two scatters of one form, of which neither needs the other."""
    return relax.op.add(
        *(index_put(data, [index], updates, reduction="add") for index in (left, right))
    )


@pytest.mark.usefixtures("kind")
@pytest.mark.each_device
def test_each_of_two_checks_answers_for_itself(device: str) -> None:
    updates, good = np.ones((3, 3), "float32"), np.array([0, 1, 2])
    function = call(two, device, DATA, good, good, updates, bounds="raise")
    for order in orders(device):
        for left, right in ((5, 0), (0, 6), (7, 8), (0, 0)):
            indices = [np.array([0, first, 2]) for first in (left, right)]
            with in_order(order):
                if left or right:
                    with pytest.raises(IndexError, match=rf"index {left or right} at"):
                        function(DATA, *indices, updates)
                    continue
                result, _ = function(DATA, *indices, updates)
            expected = 2 * DATA
            expected[0] += 4
            expected[2] += 2
            np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize(
    ("symbolic", "kind"),
    [(False, "checked"), (False, "on_drop"), (True, "checked")],
    indirect=["kind"],
    ids=["checked", "on_drop", "symbolic"],
)
@pytest.mark.usefixtures("kind")
@pytest.mark.each_device
def test_good_and_bad_calls_in_turn(device: str, symbolic: bool) -> None:
    """Answers of an earlier call, good or bad, are none of a later one. Many parts have a say."""
    generator = np.random.default_rng(3)
    count = 9_000 if symbolic else 40_000
    updates, data = np.ones((count, 1), "float32"), np.zeros((4, 1), "float32")
    good = generator.integers(0, 4, count)
    build = lambda d, i, u: index_put(d, [i], u, reduction="add")  # noqa: E731
    # Of unknown sizes, many implementations are compiled; the check is the same for all.
    forced = "parallel_injective" if symbolic else None
    machine = compile_all(
        {"main": (build, (data, good, updates))},
        device,
        symbolic=symbolic,
        bounds="raise",
        implementation=forced,
    )
    on = device_of(device)
    expected = np.bincount(good, minlength=4)[:, None]
    tensors = [tvm.runtime.tensor(array, device=on) for array in (data, good, updates)]
    for _ in range(1 if symbolic else 12):
        index = good.copy()
        places = np.sort(generator.integers(0, count, generator.integers(1, 4)))
        index[places] = 4 + np.arange(len(places))
        with pytest.raises(IndexError, match=rf"index 4 at .*\b{places[0]}\b"):
            machine["main"](tensors[0], tvm.runtime.tensor(index, device=on), tensors[2])
        np.testing.assert_array_equal(machine["main"](*tensors).numpy(), expected)
    if symbolic:
        none = [tvm.runtime.tensor(array[:0], device=on) for array in (good, updates)]
        np.testing.assert_array_equal(machine["main"](tensors[0], *none).numpy(), data)


@pytest.mark.parametrize(
    "every", [6, pytest.param(2, marks=pytest.mark.exhaustive)], ids=["some", "more"]
)
def test_every_implementation_signals_a_bad_index(
    device: str, implementation: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stands and whatever the scatter, with good calls in between."""
    monkeypatch.setattr(device_check, "_ON_DROP_BYTES", 0)

    def add(data: Any, index: Any, updates: Any) -> Any:
        return index_put(data, [index], updates, reduction="add")

    generator = np.random.default_rng(5)
    data = generator.integers(-9, 9, (6, 40)).astype("float32")
    rows, elements = np.ones((30, 40), "float32"), np.ones((6, 30), "float32")
    index, line = generator.integers(0, 6, 30), generator.integers(0, 40, 30)
    box, pairs = generator.integers(0, 40, (6, 30)), generator.integers(0, 6, (30, 2))
    calls = {
        "add_rows": (add, (data, index, rows)),
        "put_rows": (lambda d, i, u: index_put(d, [i], u), (data, index, rows)),
        "add": (add, (data[0], line, elements[0])),
        "lines": (lambda d, i, u: index_put(d, [i], u, [1], "add"), (data, line, elements)),
        "max": (lambda d, i, u: scatter_elements(d, i, u, 1, "max"), (data, box, elements)),
        "pairs": (lambda d, i, u: scatter_nd(d, i, u, "add"), (data, pairs, elements[0])),
        "halves": (add, (data[0].astype("float16"), line, elements[0].astype("float16"))),
    }
    names = applicable(calls, implementation, device, bounds="raise")
    assert names
    # Some of the calls that it takes; the implementations take turns.
    strategy = strategy_for(device)
    assert strategy is not None
    names = (
        names[list(strategy.implementations).index(implementation) % every :: every] or names[:1]
    )
    machine = compile_all(
        {name: calls[name] for name in names},
        device,
        bounds="raise",
        implementation=implementation,
    )
    on = device_of(device)
    for name in names:
        tensors = [tvm.runtime.tensor(array, device=on) for array in calls[name][1]]
        expected = machine[name](*tensors).numpy()
        good = calls[name][1][1]
        for place in {0, good.size // 2, good.size - 1}:
            bad = good.copy()
            bad.flat[place] = 77
            with pytest.raises(IndexError, match="index 77 at"):
                machine[name](tensors[0], tvm.runtime.tensor(bad, device=on), tensors[2])
            if name != "put_rows":
                np.testing.assert_allclose(machine[name](*tensors).numpy(), expected, rtol=1e-5)


def test_reading_many_indices_twice_costs_more_than_waiting() -> None:
    """The kind of check is chosen by where the result is and by the bytes of the indices."""
    rows = ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(1000),),
        slice=SymbolicSize(128),
        count=SymbolicSize(1 << 20),
        data_dtype="float32",
        index_dtype="int64",
        bounds="raise",
    )
    many = replace(rows, index_slice=True)
    some = replace(rows, count=SymbolicSize.product(["n"]), index_slice=True)
    assert CheckKind.of(rows) is CheckKind.BESIDE
    assert CheckKind.of(some) is CheckKind.BESIDE
    assert CheckKind.of(many) is CheckKind.ON_DROP
    assert CheckKind.of(replace(many, in_place=True)) is CheckKind.BEFORE


@pytest.mark.each_device
def test_threads_that_call_at_once(device: str) -> None:
    """Each virtual machine has answers of its own."""
    updates, good = np.ones((3, 3), "float32"), np.array([0, 1, 2])
    builder = relax.BlockBuilder()
    relax_function(builder, "main", two, (DATA, good, good, updates))
    with tvm_scatter.options(bounds="raise"):
        executable = tvm.compile(builder.get(), target_of(device))
    on = device_of(device)

    def calls(worker: int) -> int:
        machine = relax.VirtualMachine(executable, on)
        seen = 0
        for turn in range(20):
            wrong = 4 + 20 * worker + turn if turn % 2 else 0
            arrays = DATA, np.array([0, wrong, 2]), good, updates
            try:
                machine["main"](*[tvm.runtime.tensor(array, device=on) for array in arrays])
            except IndexError as error:
                assert f"index {wrong} at position (1)" in str(error)
                seen += 1
        return seen

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(calls, range(4))) == [10] * 4


@pytest.fixture(scope="module")
def waiting() -> Any:
    """The host's part of a check on a GPU, and how many findings it waits for."""
    if not status():
        pytest.skip(status().reason)
    builder = relax.BlockBuilder()
    arrays = DATA, np.zeros(40_000, "int64"), np.ones((40_000, 3), "float32")
    relax_function(builder, "main", lambda d, i, u: index_put(d, [i], u), arrays)
    with tvm_scatter.options(bounds="raise"), target_of("cuda"):
        mod = relax.transform.LegalizeOps()(builder.get())
    host = tvm.target.Target("llvm")
    name = "raise_if_bad_index"
    func = mod[name].with_attrs({"global_symbol": name, "target": host.with_host(host)})
    return tvm.compile(tvm.IRModule({name: func}), host)[name], CHECK.parts(40_000)


def aligned_zeros(count: int) -> Any:
    """Memory as TVM takes it: at a multiple of 64 bytes."""
    memory = np.zeros(count + 8, "int64")
    begin = -memory.ctypes.data % 64 // memory.itemsize
    return memory[begin : begin + count]


@pytest.mark.parametrize("bad", [False, True])
def test_the_host_waits_for_every_answer(waiting: Any, bad: bool) -> None:
    """The simulated device has always answered before; here answers come late, one by one."""
    wait, parts = waiting
    assert parts > 2
    findings = Findings(parts)
    memory = aligned_zeros(findings.size)
    call = memory[0] = 5
    memory[2] = parts
    memory[findings.first_flag : findings.first_entry] = -4, 4, *([0] * (parts - 2))
    done = []

    def answer() -> None:
        for part in range(parts):
            time.sleep(0.02)
            assert not done
            if bad and part == 1:
                entry = findings.first_entry + part * len(STATUS)
                memory[entry : entry + len(STATUS)] = 9_000, 0, 77, 4
            memory[findings.first_flag + part] = -call if bad and part == 1 else call

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer)
        tensor = tvm.runtime.tensor(DATA)
        with pytest.raises(IndexError, match=r"77 at position \(9000\)") if bad else nullcontext():
            wait(tensor, tvm.runtime.from_dlpack(memory))
        done.append(True)
        answering.result()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_what_runs_beside_its_check_drops(in_place: bool, own: bool) -> None:
    """A kernel that writes what a caller may see meets no bad index; any other does."""
    index, updates = np.zeros(3, "int64"), np.ones((3, 3), "float32")

    def build(data: Any, index: Any, updates: Any) -> Any:
        data = builder.emit(relax.op.negative(data)) if own else data
        return index_put(data, [index], updates, reduction="add")

    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, (DATA, index, updates))
    donate = ["p0"] if in_place and not own else []
    with tvm_scatter.options(bounds="raise", in_place=in_place), target_of("cuda"):
        mod = ReuseBuffers(donate)(builder.get()) if in_place else builder.get()
        mod = relax.transform.LegalizeOps()(mod)
    (scatter,) = [func for name, func in mod.functions.items() if "scatter" in name.name_hint]
    checks = re.findall(r"bool check = (\w+);", scatter.script(show_meta=True))
    assert checks and set(checks) == {"false" if donate else "true"}


@pytest.mark.parametrize(
    ("build", "index", "updates", "parts"),
    [
        (
            lambda d, i, u: scatter_elements(d, i, u, 1, wrap_negative=True),
            [[0, -4, 1]],
            [[1, 2, 3]],
            ("scatter_elements", "index -4", "position (0, 1)", "extent 3", "[-3, 2]"),
        ),
        (
            lambda d, i, u: scatter_nd(d, i, u),
            [[0, 0], [1, 2], [3, 3]],
            [1, 2, 3],
            ("scatter_nd", "index 3", "position (2)", "extent 3", "component 1"),
        ),
        (
            lambda d, i, u: index_put(d, [i], u),
            [0, 1, 2, 2**40],
            [[1, 2, 3]] * 4,
            ("index_put", f"index {2**40}", "position (3)", "extent 4", "[-4, 3]"),
        ),
        (
            lambda d, i, u: index_put(d, [i], u),
            [-(2**63), 2**63 - 1],
            [[1, 2, 3]] * 2,
            ("index_put", f"index {-(2**63)}", "position (0)"),
        ),
    ],
)
@pytest.mark.each_device
def test_messages(device: str, build: Any, index: Any, updates: Any, parts: Any) -> None:
    arrays = [DATA, np.array(index, "int64"), np.array(updates, "float32")]
    with pytest.raises(IndexError) as error:
        run(build, arrays, device, bounds="raise")
    for part in parts:
        assert part in str(error.value), str(error.value)


@pytest.mark.parametrize("symbolic", [False, True])
def test_the_first_of_many_is_named(symbolic: bool) -> None:
    index = np.random.default_rng(0).integers(0, 4, 100_000)
    index[[70_000, 30_001, 99_999]] = 7
    arrays = [DATA, index, np.ones((100_000, 3), "float32")]
    with pytest.raises(IndexError) as error:
        run(lambda d, i, u: index_put(d, [i], u), arrays, symbolic=symbolic, bounds="raise")
    assert "30001" in str(error.value)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("bounds", ["raise", "drop", "trust"])
@pytest.mark.parametrize(
    ("build", "index"),
    [
        (scatter_elements, [[4, 4, 4], [1, 1, 1], [-1, -1, -1]]),
        (scatter_nd, [[4], [1], [-5]]),
        (
            lambda data, index, *updates, **more: index_put(data, [index], *updates, **more),
            [4, 1, -5],
        ),
    ],
)
@pytest.mark.each_device
def test_left_out_by_request(
    device: str, build: Any, index: Any, bounds: str, in_place: bool
) -> None:
    """The second of three rows has a place. Nothing is said of the others under any policy."""
    arrays = [DATA, np.array(index), np.full((3, 3), 100, "float32")]
    donate = ["p0"] if in_place else []
    found = run(
        lambda *tensors: build(*tensors, leaves_out=True),
        arrays,
        device,
        bounds=bounds,
        donate=donate,
    )
    wanted = [[0, 1, 2], [100, 100, 100], [6, 7, 8], [9, 10, 11]]
    assert found.tolist() == wanted


@pytest.mark.each_device
def test_default_policy(device: str) -> None:
    arrays = [DATA, np.array([[4, 0, 0]]), np.ones((1, 3), "float32")]
    if device == "llvm":
        with pytest.raises(IndexError):
            run(elements, arrays, device)
        return
    expected = DATA.copy()
    expected[0, 1:] += 1
    np.testing.assert_array_equal(run(elements, arrays, device), expected)


def test_drop_never_writes_outside(device: str, implementation: str, tally: Tally) -> None:
    """Guard bytes around the output, the adversarial indices among random ones."""
    generator = np.random.default_rng(7)
    base = ScatterProblem(
        batch=SymbolicSize(2),
        extents=(SymbolicSize(5),),
        slice=SymbolicSize(3),
        count=SymbolicSize(40),
        data_dtype="float32",
        index_dtype="int64",
        reduction="add",
        bounds="drop",
    )
    pair = replace(
        base, batch=SymbolicSize(), extents=(SymbolicSize(4), SymbolicSize(6)), interleaved=True
    )
    problems = {
        "rows": base,
        "no_wrap": replace(base, wrap_negative=False),
        "elements": replace(base, index_batch=True, index_slice=True),
        "max": replace(base, reduction="max", include_self=False),
        "mean": replace(base, reduction="mean"),
        "pairs": pair,
        "in_place": replace(base, in_place=True),
        "narrow": replace(base, index_dtype="int8"),
    }
    strategy = strategy_for(device)
    assert strategy is not None
    runner = ProblemRunner(device)
    chosen = strategy.implementations[implementation]
    problems = {
        name: problem
        for name, problem in problems.items()
        if strategy.refusal(chosen, problem, runner.target) is None
    }
    signals = device == "cuda"
    for name, problem in problems.items():
        runner.add(name, problem, implementation, signals_drops=signals)
    for name, problem in problems.items():
        info = np.iinfo(problem.index_dtype)
        edges = [5, -6, 6, -7, 2**31, -(2**31), 2**31 - 1, 2**40, -(2**40), info.min, info.max]
        edges = [edge for edge in edges if info.min <= edge <= info.max]
        items = 40 * (6 if problem.index_slice else 1)
        shape = (items, 2) if problem.interleaved else (items,)
        index = generator.integers(-5, 5, shape).astype(problem.index_dtype)
        where = generator.random(shape) < 0.5
        index[where] = generator.choice(edges, where.sum())
        bad = violations(problem, [index])
        assert bad
        tally("bad indices that wrote nothing outside", len(bad))
        data = generator.integers(-9, 9, problem.data_size.constant).astype("float32")
        updates = generator.integers(-9, 9, problem.update_size.constant).astype("float32")
        result = runner.run(name, data, [index], updates, in_place=problem.in_place)
        expected = scatter_reference(problem, data, [index], updates)
        np.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=name)
        if signals:
            assert runner.dropped(name), name
            good = [np.zeros_like(index)]
            runner.run(name, data, good, updates, in_place=problem.in_place)
            assert not runner.dropped(name), name


@pytest.mark.each_device
def test_sizes_that_turn_out_to_be_zero(device: str) -> None:
    """No implementation writes anything where a symbolic size is zero at run time."""
    strategy = strategy_for(device)
    assert strategy is not None
    runner = ProblemRunner(device)
    full = {"b": 2, "n": 5, "s": 4, "k": 7}
    runs: dict[str, tuple[ScatterProblem, str]] = {}
    for symbolic in ("bnsk", "bk"):  # the second is for those that must know an output's size
        b, n, s, k = (
            SymbolicSize.product([name if name in symbolic else full[name]]) for name in full
        )
        problem = ScatterProblem(
            batch=b,
            extents=(n,),
            slice=s,
            count=k,
            data_dtype="float32",
            index_dtype="int32",
            reduction="add",
            index_batch=True,
            bounds="drop",
        )
        for name in strategy.applicable(problem, runner.target):
            runs.setdefault(name, (problem, symbolic))
    for name, (problem, symbolic) in runs.items():
        runner.add(name, problem, name, sizes={symbol: full[symbol] for symbol in symbolic})
    for name, (problem, symbolic) in runs.items():
        for zero in symbolic:
            sizes = {symbol: 0 if symbol == zero else full[symbol] for symbol in symbolic}
            runner.set_sizes(name, sizes)
            static = problem.with_sizes(sizes)
            data = np.ones(static.data_size.constant, "float32")
            index = np.zeros(static.items.constant, "int32")
            updates = np.ones(static.update_size.constant, "float32")
            result = runner.run(name, data, [index], updates)
            np.testing.assert_array_equal(result, data, err_msg=f"{name} {sizes}")


def test_violations_are_listed_in_order() -> None:
    problem = ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(2), SymbolicSize(3)),
        slice=SymbolicSize(),
        count=SymbolicSize(3),
        data_dtype="float32",
        index_dtype="int64",
        interleaved=True,
    )
    index = np.array([[0, 3], [1, 2], [-3, -4]])
    assert violations(problem, [index]) == [(0, 1, 3, 3), (2, 0, -3, 2), (2, 1, -4, 3)]


def test_guard_bytes_notice_a_stray_write() -> None:
    problem = ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(4),),
        slice=SymbolicSize(),
        count=SymbolicSize(1),
        data_dtype="float32",
        index_dtype="int64",
        wrap_negative=False,
        bounds="trust",
    )
    runner = ProblemRunner("llvm")
    runner.add("stray", problem, "sequential")
    data, updates = np.zeros(4, "float32"), np.ones(1, "float32")
    for index in (-1, 4):
        with pytest.raises(AssertionError, match="written outside"):
            runner.run("stray", data, [np.array([index])], updates)
        runner._guards.clear()
