"""OpStrategy: order, refusals, and the three sources of a choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from tvm_scatter import (
    Implementation,
    OpStrategy,
    ScatterError,
    ScatterProblem,
    strategy_for,
)
from tvm_scatter.options import Options
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.calibrated import machine_for
from tvm_scatter.selection.records import IMPLEMENTATION, KNOBS, tuned_records, workload
from tvm_scatter.selection.targets import parse_target
from tvm_scatter.selection.work import Work

LLVM = tvm.target.Target("llvm")
PROBLEM = ScatterProblem(
    batch=SymbolicSize(),
    extents=(SymbolicSize(100),),
    slice=SymbolicSize(8),
    count=SymbolicSize(50),
    data_dtype="float32",
    index_dtype="int64",
    reduction="add",
)


class Plain(Implementation):
    """Takes everything."""

    name = "plain"
    deterministic = True

    def emit(self, operands: Any, config: Any) -> None:
        raise NotImplementedError


class Fast(Plain):
    """Takes sums, in any order."""

    name = "fast"
    deterministic = False

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        return None if problem.reduction == "add" else "it only adds"

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"threads": (128, 256), "vector": (4, 1)}


@pytest.fixture
def strategy() -> OpStrategy:
    table = OpStrategy("llvm")
    table.add_implementation(Plain(), plevel=1)
    table.add_implementation(Fast(), plevel=20)
    return table


def database(*records: tuple[ScatterProblem, dict[str, Any], float]) -> ms.database.MemoryDatabase:
    """A database of (problem, annotations, seconds)."""
    result = ms.database.MemoryDatabase()
    for problem, marks, seconds in records:
        module = workload(problem, LLVM)
        schedule = Schedule(module)
        block = schedule.get_sblock("scatter")
        for name, value in marks.items():
            schedule.annotate(block, name, value)
        result.commit_tuning_record(
            ms.database.TuningRecord(
                schedule.trace, result.commit_workload(module), [seconds], LLVM
            )
        )
    return result


class Wide(Plain):
    """Rounds sums of 16 bits once."""

    name = "wide"
    accumulates_wide = True


def test_order_is_by_level(strategy: OpStrategy) -> None:
    assert list(strategy.implementations) == ["fast", "plain"]
    assert list(strategy.applicable(PROBLEM, LLVM)) == ["fast", "plain"]
    assert list(strategy.applicable(replace(PROBLEM, reduction="max"), LLVM)) == ["plain"]


def test_a_name_is_there_once(strategy: OpStrategy) -> None:
    with pytest.raises(ScatterError, match="'plain' is there already"):
        strategy.add_implementation(Plain())


def test_forced(strategy: OpStrategy) -> None:
    selection = strategy.select(PROBLEM, LLVM, Options("fast", (("threads", 256),)))
    assert selection.source == "forced"
    assert selection.implementation.name == "fast"
    assert selection.config == {"threads": 256, "vector": 4}
    assert selection.alternatives == {"plain": None}


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        (Options("slow"), {}, "unknown implementation 'slow'.*fast, plain"),
        (Options("fast"), {"reduction": "max"}, "cannot be forced.*it only adds"),
        (Options("fast"), {"deterministic": True}, "cannot be forced.*not deterministic"),
        (Options("fast", (("threads", 3),)), {}, "no knob threads=3"),
        (Options("plain", (("speed", 1),)), {}, "no knob speed=1"),
    ],
)
def test_what_cannot_be_forced(
    strategy: OpStrategy, options: Options, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScatterError, match=message):
        strategy.select(replace(PROBLEM, **change), LLVM, options)


def test_without_costs_the_highest_level_is_the_default(strategy: OpStrategy) -> None:
    selection = strategy.select(PROBLEM, LLVM)
    assert (selection.source, selection.implementation.name) == ("default", "fast")
    only_plain = strategy.select(replace(PROBLEM, reduction="max"), LLVM)
    assert only_plain.implementation.name == "plain"


class Costly(Plain):
    """Says what it costs: a microsecond for each update."""

    name = "costly"

    def cost(self, work: Work, config: Any) -> dict[str, Any]:
        return {"updates": work.items}


class Flat(Plain):
    """Takes ten microseconds, whatever is asked for."""

    name = "flat"

    def cost(self, work: Work, config: Any) -> dict[str, Any]:
        return {"launches": 10.0}


@pytest.mark.parametrize(("count", "chosen"), [(3, "costly"), (50, "flat")])
def test_the_least_cost_is_the_default(count: int, chosen: str) -> None:
    table = OpStrategy("a kind that nobody measured")
    table.add_implementation(Costly(), plevel=1)
    table.add_implementation(Flat(), plevel=5)
    selection = table.default(replace(PROBLEM, count=SymbolicSize(count)), LLVM)
    assert selection.implementation.name == chosen
    assert list(selection.predictions) == sorted(
        selection.predictions, key=lambda name: selection.predictions[name].microseconds
    )
    assert selection.predictions["flat"].terms == {"launches": 10.0}


def test_what_says_no_cost_wins_only_by_its_level(strategy: OpStrategy) -> None:
    strategy.add_implementation(Costly(), plevel=10)
    assert strategy.default(PROBLEM, LLVM).implementation.name == "fast"
    strategy.add_implementation(Flat(), plevel=30)
    assert strategy.default(PROBLEM, LLVM).implementation.name == "flat"


def test_coefficients_count() -> None:
    table = OpStrategy("llvm")
    table.add_implementation(Costly(), plevel=1)
    table.add_implementation(Flat(), plevel=5)
    fitted = {"costly": {"updates": 0.1}}
    assert table.default(PROBLEM, LLVM).implementation.name == "flat"
    assert table.default(PROBLEM, LLVM, fitted=fitted).implementation.name == "costly"


def test_symbolic_sizes_keep_what_some_of_them_need() -> None:
    table = OpStrategy("llvm")
    table.add_implementation(Costly(), plevel=1)
    table.add_implementation(Flat(), plevel=5)
    table.add_implementation(Dear(), plevel=9)
    selection = table.default(replace(PROBLEM, count=SymbolicSize(1, ("n",))), LLVM)
    assert {branch.implementation.name for branch in selection.branches} == {"costly", "flat"}


class Dear(Plain):
    """Takes more than any other."""

    name = "dear"

    def cost(self, work: Work, config: Any) -> dict[str, Any]:
        return {"updates": 2 * work.items, "launches": 20.0}


def test_a_tuned_record_is_found(strategy: OpStrategy) -> None:
    fast = {IMPLEMENTATION: "fast", f"{KNOBS}.threads": 256}
    with database((PROBLEM, {IMPLEMENTATION: "plain"}, 3e-6), (PROBLEM, fast, 2e-6)):
        record, *_ = tuned_records(PROBLEM, LLVM)
        assert (record.implementation, record.config) == ("fast", {"threads": 256})
        assert record.microseconds == pytest.approx(2)
        selection = strategy.select(PROBLEM, LLVM)
        assert (selection.source, selection.implementation.name) == ("tuned", "fast")
        assert selection.config == {"threads": 256, "vector": 4}
        assert "2.0 us" in selection.reason
        # The policy for bad indices does not matter, another problem does.
        assert strategy.select(replace(PROBLEM, bounds="raise"), LLVM).source == "tuned"
        assert strategy.select(replace(PROBLEM, count=SymbolicSize(51)), LLVM).source == "default"
        # The caller goes before the record.
        assert strategy.select(PROBLEM, LLVM, Options("plain")).source == "forced"
    assert not tuned_records(PROBLEM, LLVM)


def test_a_record_of_what_rounds_each_addition_is_not_for_sums_of_many(
    strategy: OpStrategy,
) -> None:
    strategy.add_implementation(Wide(), plevel=5)
    half, times = replace(PROBLEM, data_dtype="bfloat16"), {"plain": 1e-6, "wide": 2e-6}
    records = [(p, {IMPLEMENTATION: n}, times[n]) for p in (PROBLEM, half) for n in times]
    with database(*records):
        assert strategy.select(half, LLVM).implementation.name == "wide"
        assert strategy.select(PROBLEM, LLVM).implementation.name == "plain"


@pytest.mark.parametrize(
    "annotations",
    [
        {IMPLEMENTATION: "retired"},
        {"another.tool": 3},
        {},
        {IMPLEMENTATION: "fast", f"{KNOBS}.threads": 7},
        {IMPLEMENTATION: "fast", f"{KNOBS}.retired": 1},
    ],
)
def test_a_record_that_no_longer_fits_does_no_harm(
    strategy: OpStrategy, annotations: dict[str, Any]
) -> None:
    with database((PROBLEM, annotations, 1e-6)):
        assert strategy.select(PROBLEM, LLVM).source == "default"


def test_the_next_best_record_counts_where_the_best_does_not_fit(strategy: OpStrategy) -> None:
    strict = replace(PROBLEM, deterministic=True)
    records = [(strict, {IMPLEMENTATION: "fast"}, 1e-6), (strict, {IMPLEMENTATION: "plain"}, 2e-6)]
    with database(*records):
        selection = strategy.select(strict, LLVM)
    assert (selection.source, selection.implementation.name) == ("tuned", "plain")


@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_the_last_entry_takes_every_problem(kind: str) -> None:
    table = strategy_for(kind)
    assert table is not None
    last = list(table.implementations.values())[-1]
    assert last.deterministic
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}) if kind == "cuda" else LLVM
    for change in ({}, {"reduction": "mean", "data_dtype": "bool"}, {"deterministic": True}):
        assert table.refusal(last, replace(PROBLEM, **change), target) is None


def single(extent: int, count: int, **more: Any) -> ScatterProblem:
    """Single elements into one line."""
    return rows(extent, 1, count, **more)


def rows(extent: int, width: int, count: int, **more: Any) -> ScatterProblem:
    """Rows of ``width`` elements into ``extent`` rows."""
    sizes = {
        "extents": (SymbolicSize(extent),),
        "slice": SymbolicSize(width),
        "count": SymbolicSize(count),
    }
    return replace(PROBLEM, **sizes, **more)


#: For each target kind and each of its implementations a problem for which it is the default.
DEFAULTS = {
    "cuda": {
        "lane_bins": single(256, 1_000_000, deterministic=True),
        "shared_bins": single(256, 1_000_000),
        "row_resident": single(2048, 4096, batch=SymbolicSize(256), index_batch=True),
        "gather_form": rows(1000, 12544, 250, reduction="update"),
        "tiled": single(1 << 24, 1 << 24),
        "partitioned": single(1 << 26, 1 << 24),
        "split_bins": single(1 << 16, 1 << 23, data_dtype="int32"),
        "common_index": single(1 << 19, 1 << 19, batch=SymbolicSize(64)),
        "column_resident": rows(
            512, 96, 2000, batch=SymbolicSize(64), index_batch=True, index_slice=True
        ),
        "patched": rows(4096, 128, 1, batch=SymbolicSize(256), reduction="update"),
        "owned_rows": rows(1000, 256, 500, reduction="mean"),
        "owned_softmax": rows(2708, 128, 10556, softmax=True, fused=True, include_self=False),
        "bucketed": rows(100_000, 128, 1 << 20),
        "grouped": rows(1 << 20, 32, 1 << 18),
        "ordered": rows(100_000, 128, 1 << 20, ordered=True),
        "segmented": rows(100_000, 128, 1 << 20, deterministic=True),
        "parallel_injective": rows(50257, 768, 8192),
        "sort_based": rows(16, 128, 1 << 18, reduction="update"),
        "sequential": rows(16, 1024, 1),
    },
    "llvm": {
        "private_bins": single(256, 1_000_000),
        "parallel_injective": single(1 << 20, 1 << 20, unique=True),
        "partitioned": single(1 << 24, 1 << 24),
        "ordered": rows(4096, 128, 1 << 16, ordered=True),
        "sort_based": rows(4096, 128, 1 << 16, reduction="update"),
        "sequential": rows(16, 1024, 1),
        "widened": single(100_000, 1 << 20, data_dtype="bfloat16"),
    },
}


@pytest.mark.parametrize(
    ("posed", "chosen"),
    [
        # Messages: rows from anywhere, ten and three for each destination.
        (rows(10_000, 128, 100_000, fused=True, fill="0.0"), "sort_based"),
        (rows(10_000, 128, 30_000, fused=True, fill="0.0", reduction="max"), "sort_based"),
        # Updates that lie in memory are read in their order.
        (rows(10_000, 128, 100_000), "sequential"),
        # Few, long rows: blocks of their columns would be found again and again.
        (rows(409, 4096, 818, fused=True, fill="0.0"), "partitioned"),
    ],
)
def test_messages_on_a_cpu(posed: ScatterProblem, chosen: str) -> None:
    table = strategy_for("llvm")
    assert table is not None
    assert table.default(posed, LLVM).implementation.name == chosen


@pytest.mark.usefixtures("on_an_h200")
@pytest.mark.parametrize("kind", DEFAULTS)
def test_every_implementation_is_the_default_for_some_problem(kind: str) -> None:
    """What is never chosen should be dropped, or its cost be mended."""
    table = strategy_for(kind)
    assert table is not None
    assert set(DEFAULTS[kind]) == set(table.implementations)
    target = parse_target("sm_90") if kind == "cuda" else LLVM
    for name, problem in DEFAULTS[kind].items():
        assert table.default(problem, target).implementation.name == name


@pytest.mark.parametrize(("arch", "fits"), [("sm_75", False), ("sm_90", True)])
def test_a_kernels_own_shared_memory_counts(arch: str, fits: bool) -> None:
    """To order doubles takes all the 64 KB of a block on Turing, and leaves none for the scan."""
    strategy = strategy_for("cuda")
    assert strategy is not None
    many = replace(
        PROBLEM, extents=(SymbolicSize(1 << 23),), slice=SymbolicSize(), data_dtype="float64"
    )
    refusal = strategy.refusal(strategy.implementations["partitioned"], many, parse_target(arch))
    assert refusal is None if fits else "too little shared memory" in str(refusal)


@pytest.mark.parametrize("name", ["shared_bins", "lane_bins"])
def test_blocks_are_counted_by_the_multiprocessors_of_the_target(name: str) -> None:
    """A record or a knob of one GPU means the same on another: so many blocks for each."""
    strategy = strategy_for("cuda")
    assert strategy is not None
    posed, implementation = single(100, 1_000_000), strategy.implementations[name]
    taken = {}
    # An H200 has 132 multiprocessors, a T4 has 40.
    for arch, units in (("sm_90", 132), ("sm_75", 40)):
        target = parse_target(arch)
        config = {**implementation.config(posed, target)}
        if name == "shared_bins":
            config["blocks_per_multiprocessor"] = 2
        taken[arch] = implementation.workspace(posed, Sizes.of(posed), config, target) / units
    assert taken["sm_90"] == taken["sm_75"] > 0
    knobs = [implementation.knobs(posed, parse_target(arch)) for arch in taken]
    assert knobs[0].get("blocks_per_multiprocessor") == knobs[1].get("blocks_per_multiprocessor")


def hot_updates(name: str, posed: ScatterProblem) -> Any:
    """What updates of hot places take with skewed indices."""
    strategy, target = strategy_for("cuda"), parse_target("sm_90")
    assert strategy is not None
    implementation = strategy.implementations[name]
    work = Work.of(posed, machine_for(strategy.backend, target), "skewed")
    terms = implementation.cost(work, implementation.config(posed, target))
    assert terms is not None
    return terms["hot updates"]


def test_lines_that_are_not_under_way_together_wait_in_turn() -> None:
    """Each has a hot place of its own, but one line is work for all the machine."""
    predicted = {}
    for lines in (1, 4):
        posed = single(200_000, 600_000, batch=SymbolicSize(lines), index_batch=True, in_place=True)
        predicted[lines] = hot_updates("parallel_injective", posed)
    assert predicted[4] == pytest.approx(4 * predicted[1])


def test_a_hot_place_holds_up_no_more_than_a_unit_of_partitioned() -> None:
    terms = [hot_updates("partitioned", single(1 << 24, count)) for count in (1 << 20, 1 << 22)]
    assert terms[0] == pytest.approx(terms[1])
