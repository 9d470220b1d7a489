"""What an implementation must say, and need not say, for the host to hear of bad indices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import record, status
from harness import ProblemRunner, signature_of, target_of
from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter import Implementation, OpStrategy, ScatterError, ScatterProblem, strategy_for
from tvm_scatter.bounds.device_check import drop_signal_in
from tvm_scatter.emit.operands import Operands
from tvm_scatter.lowering.emission import build_prim_func
from tvm_scatter.options import Options
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.strategy import register_strategy
from tvm_scatter.strategies.cuda.check import CHECK
from tvm_scatter.strategies.cuda.codegen.launch import launch, run_routine
from tvm_scatter.strategies.cuda.codegen.source import routine
from tvm_scatter.strategies.cuda.steps import stages

EXTENT, COUNT = 5, 300
PROBLEM = ScatterProblem(
    batch=SymbolicSize(),
    extents=(SymbolicSize(EXTENT),),
    slice=SymbolicSize(),
    count=SymbolicSize(COUNT),
    data_dtype="int32",
    index_dtype="int64",
    reduction="add",
    bounds="drop",
)
Emit = Callable[[Operands], None]


class Toy(Implementation):
    """An implementation of launches that a test gives."""

    name = "toy"

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def emit(self, operands: Operands, config: Any) -> None:
        self._emit(operands)


@pytest.fixture
def use() -> Iterator[Callable[[Emit], None]]:
    """Makes launches an implementation, the only one for cuda, while the test runs."""
    if not status():
        pytest.skip(status().reason)
    before = strategy_for("cuda")
    assert before is not None

    def use(emit: Emit) -> None:
        strategy = register_strategy(OpStrategy(before.backend))
        strategy.add_implementation(Toy(emit), plevel=1)

    yield use
    register_strategy(before)


def add_updates(operands: Operands, begin: str = "0", end: str = "count", **said: Any) -> None:
    """A launch that adds the updates from one to another."""
    body = (
        f"  const Offset from = {begin}, to = {end};\n"
        "  for (Offset at = from + threadIdx.x; at < to; at += blockDim.x) {\n"
        "    Offset destination;\n"
        "    if (find_destination(sizes, indices, at, destination))\n"
        "      atomic_combine<P::Reduction, Data>(out + destination, updates[at]);\n"
        "  }"
    )
    launch(operands, ("atomic",), body, 1, 64, **said)


def text_of(problem: ScatterProblem = PROBLEM) -> str:
    """The function that the implementation makes of a problem, if it signals drops."""
    strategy, target = strategy_for("cuda"), target_of("cuda")
    assert strategy is not None
    function = build_prim_func(
        problem,
        signature_of(problem),
        strategy.select(problem, target, Options("toy")),
        target,
        tokens=2,
        make_signal=partial(drop_signal_in, CHECK),
    )
    return str(function.script())


def assert_signals(problem: ScatterProblem, sizes: dict[str, int], name: str = "toy") -> None:
    """A bad index is dropped and the host hears of it, wherever it stands, and of no good one."""
    runner = ProblemRunner("cuda")
    runner.add("run", problem, name, sizes=sizes, signals_drops=True)
    exact = problem.with_sizes(sizes)
    count = exact.count.constant
    updates, data = np.arange(count, dtype="int32"), np.zeros(EXTENT, "int32")
    good = np.arange(count) % EXTENT
    for place in (None, 0, count // 2, count - 1):
        index = good.copy()
        if place is not None:
            index[place] = EXTENT
        found = runner.run("run", data, [index], updates)
        kept = index < EXTENT
        expected = np.bincount(index[kept], updates[kept], EXTENT)
        np.testing.assert_array_equal(found, expected, err_msg=str(place))
        assert runner.dropped("run") == (place is not None), place


def test_who_says_nothing_of_indices_misses_none(use: Callable[[Emit], None]) -> None:
    def emit(operands: Operands) -> None:
        stages.copy_data(operands)
        add_updates(operands, end="count / 2")
        add_updates(operands, begin="count / 2")

    use(emit)
    assert_signals(PROBLEM, {})
    assert "signals_drops = false" not in text_of()


def test_what_follows_the_last_look_at_indices_signals_nothing(
    use: Callable[[Emit], None],
) -> None:
    def emit(operands: Operands) -> None:
        stages.copy_data(operands)
        add_updates(operands, resolves_every_index=True)
        stages.stride_launch(operands, "  fill(out + sizes.data_size(), Data(0), 0);", 1)

    use(emit)
    assert_signals(PROBLEM, {})
    signals = re.findall(r"bool signals_drops = (\w+)", text_of())
    assert signals[-1] == "false" and "true" in signals


@pytest.mark.parametrize("count", [COUNT, 40])
def test_a_launch_in_a_branch_is_not_the_last_look(use: Callable[[Emit], None], count: int) -> None:
    """One of two branches runs: what one of them has seen, the other has not."""

    def emit(operands: Operands) -> None:
        stages.copy_data(operands)
        with T.If(operands.sizes.count > tirx.IntImm("int64", 100)):
            with T.Then():
                add_updates(operands, resolves_every_index=True)
            with T.Else():
                add_updates(operands, resolves_every_index=True)

    use(emit)
    assert_signals(replace(PROBLEM, count=SymbolicSize.product(["n"])), {"n": count})


def test_a_launch_in_a_loop_is_not_the_last_look(use: Callable[[Emit], None]) -> None:
    def emit(operands: Operands) -> None:
        stages.copy_data(operands)
        with T.serial(tirx.IntImm("int64", 2)) as turn:
            half = {"turn": ("long long", turn)}
            begin, end = "turn * (count / 2)", "turn ? count : count / 2"
            add_updates(operands, begin, end, arguments=half, resolves_every_index=True)

    use(emit)
    with record() as log:
        assert_signals(PROBLEM, {})
    calls = 4
    assert len(log.launches) == calls * len(("copy", "one half", "the other", "tell the host"))


@pytest.mark.parametrize("count", [3, 70_000])
@pytest.mark.parametrize("name", ["sequential", "row_resident", "grouped", "segmented"])
@pytest.mark.turns(2)
def test_symbolic_sizes(device: str, name: str, count: int) -> None:
    """Whatever branch is taken, and whoever tells the host."""
    if device == "llvm":
        pytest.skip("there is nobody to tell")
    assert_signals(replace(PROBLEM, count=SymbolicSize.product(["n"])), {"n": count}, name)


def test_who_reads_indices_behind_its_back_is_refused(use: Callable[[Emit], None]) -> None:
    """Its kernel is no launch of ours, so nobody has told it how to signal a drop."""

    def emit(operands: Operands) -> None:
        stages.copy_data(operands)
        name, source = routine((), (), ["void* index"], "  (void)index;")
        run_routine(name, source, [operands.indices[0].data], 1, 1)

    use(emit)
    with pytest.raises(ScatterError, match=r"'toy' has no launch that reads the indices"):
        text_of()


def test_a_launch_resolves_what_it_reads(use: Callable[[Emit], None]) -> None:
    def emit(operands: Operands) -> None:
        launch(operands, (), "  (void)sizes;", 1, 1, resolves_every_index=True)

    use(emit)
    with pytest.raises(ScatterError, match=r"resolves_every_index.*names no `indices`"):
        text_of()


@pytest.mark.parametrize(
    "name", ["bucketed", "gather_form", "grouped", "partitioned", "segmented", "sort_based"]
)
def test_the_host_need_not_wait_for_what_follows_the_lists(name: str) -> None:
    """Launches that work on lists of updates signal nothing: the host is told before them."""
    strategy, target = strategy_for("cuda"), target_of("cuda")
    assert strategy is not None
    many = replace(PROBLEM, extents=(SymbolicSize(1 << 22),), count=SymbolicSize(1 << 22))
    problem = replace(many, reduction="update" if name == "gather_form" else "add")
    selection = strategy.select(problem, target, Options(name))
    function = build_prim_func(
        problem,
        signature_of(problem),
        selection,
        target,
        tokens=2,
        make_signal=partial(drop_signal_in, CHECK),
    )
    signals = re.findall(r"bool signals_drops = (\w+)", function.script())
    assert signals[0] == "true" and signals[-1] == "false"
