"""What costs predict, beside what an H200 took: problems that one term alone once got wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cuda_cases import cuda_target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.calibrated import machine_for
from tvm_scatter.selection.cost import Costs, coefficients
from tvm_scatter.selection.work import SPREADS, Work
from tvm_scatter.tuning.space.candidates import need_strategy

TARGET = cuda_target("sm_90")
STRATEGY = need_strategy(TARGET)
MACHINE = machine_for(STRATEGY.backend, TARGET)
IN_PLACE = {"in_place": True}


def problem(
    reduction: str, dtype: str, sizes: tuple[int, int, int, int], more: Mapping[str, Any]
) -> ScatterProblem:
    """The problem with one index per row, of batch, extent, updates of a batch, and width."""
    batch, extent, count, width = map(SymbolicSize, sizes)
    return ScatterProblem(
        **{"batch": batch, "extents": (extent,), "slice": width, "count": count},
        **{"data_dtype": dtype, "index_dtype": "int64", "reduction": reduction, **more},
    )


@pytest.mark.parametrize(
    ("name", "reduction", "dtype", "sizes", "more", "even", "skewed"),
    [
        pytest.param(
            "sequential", "max", "bool", (345519, 2, 93, 1), {**IN_PLACE, "index_dtype": "int32"},
            83.3, 84.9, id="short lines of neighbouring batches share sectors",
        ),
        pytest.param(
            "sequential", "add", "bool", (187726, 1, 1, 694), {**IN_PLACE, "index_dtype": "int32"},
            586.6, 586.9, id="a thread has to be started for every line",
        ),
        pytest.param(
            "parallel_injective", "add", "bool", (187726, 1, 1, 694),
            {**IN_PLACE, "index_dtype": "int32"},
            285.6, 285.2, id="truth values are stored, without compare-and-swap",
        ),
        pytest.param(
            "parallel_injective", "update", "int64", (1, 4734, 619328, 1), {},
            40.4, 38.4, id="stores to some hundred lines are not gathered",
        ),
        pytest.param(
            "parallel_injective", "update", "float32", (12, 870540, 47424, 6), IN_PLACE,
            49.7, None, id="sectors that are stored in part are read first",
        ),
        pytest.param(
            "parallel_injective", "mul", "float32", (1, 33582, 442754, 1), IN_PLACE,
            18.2, 140.7, id="compare-and-swap that seldom fails does so at the beginning",
        ),
        pytest.param(
            "parallel_injective", "mean", "float32", (1, 953163, 30, 34), IN_PLACE,
            51.7, 51.6, id="a mean looks at every element",
        ),
        pytest.param(
            "row_resident", "add", "float16", (313, 53351, 899, 3), {},
            212.0, 218.8, id="threads of a block wait for their accesses",
        ),
        pytest.param(
            "split_bins", "mul", "float32", (1, 590, 537328, 6), IN_PLACE,
            115.0, None, id="loops of compare-and-swap in shared memory",
        ),
        pytest.param(
            "patched", "update", "float16", (1, 157, 1, 64386), {},
            31.7, 31.9, id="a wide row is written by few blocks",
        ),
        pytest.param(
            "owned_rows", "max", "int32", (1, 210, 4933, 1), {"include_self": False},
            10.3, 16.0, id="a block waits for its hottest row",
        ),
        pytest.param(
            "owned_rows", "mean", "int32", (1, 3, 1, 110592), {"include_self": False},
            9.4, 9.4, id="a mean takes one launch",
        ),
        pytest.param(
            "owned_rows", "min", "bool", (1, 131, 21, 848952), {},
            282.4, 302.0, id="elements of a byte take a thread longer than memory",
        ),
        pytest.param(
            "owned_rows", "update", "int64", (1, 5, 3129, 5352), {},
            10.1, 12.3, id="of stored updates only the last is read",
        ),
        pytest.param(
            "gather_form", "update", "int64", (1, 5, 3129, 5352), {},
            22.7, 24.0, id="few rows are in few blocks",
        ),
        pytest.param(
            "lane_bins", "add", "int64", (16, 10, 491181, 1), {"index_batch": True},
            143.8, 143.6, id="blocks that do not fit a multiprocessor take a turn more",
        ),
        pytest.param(
            "common_index", "mean", "float32", (567, 1, 1815, 10), {},
            31.2, 30.2, id="many lines run beside each other",
        ),
        pytest.param(
            "parallel_injective", "add", "float16", (1, 24752, 1961647, 1), {},
            359.6, None, id="loops of compare-and-swap hold up others of their line",
        ),
        pytest.param(
            "parallel_injective", "max", "int8", (1, 9424, 1, 4096), IN_PLACE,
            20.3, 18.7, id="a thread swaps its elements one after the other",
        ),
        pytest.param(
            "parallel_injective", "max", "int32", (1, 19601956, 2794761, 1), IN_PLACE,
            95.3, 74.9, id="what is only looked at is not written back",
        ),
        pytest.param(
            "shared_bins", "max", "float32", (1, 7224, 7331527, 1),
            {"include_self": False, "index_dtype": "int32"},
            492.4, 401.1, id="what is reset is stored, by all updates of a place",
        ),
        pytest.param(
            "sequential", "update", "float32", (1024, 32000, 50, 1), {"index_batch": True},
            149.4, 151.5, id="an index for each line is in a sector of its own",
        ),
        pytest.param(
            "tiled", "update", "float16", (1, 566, 5494, 179), {"index_slice": True},
            None, 65.0, id="where rows are hot, a bucket has those of many columns",
        ),
        pytest.param(
            "row_resident", "mul", "float64", (1805, 1, 87, 69), {"index_dtype": "int32"},
            190.0, 190.0, id="all rows of a batch go to one place of shared memory",
        ),
        pytest.param(
            "row_resident", "mul", "int32", (36, 23, 813, 18), IN_PLACE,
            44.4, 70.5, id="a loop runs again where others of its block change its place",
        ),
        pytest.param(
            "column_resident", "add", "bfloat16", (1, 4979, 81, 856), {"include_self": False},
            33.8, 34.1, id="threads wait for each element of the columns that they hold",
        ),
        pytest.param(
            "split_bins", "max", "float64", (1, 15424, 2312769, 1), {},
            46.7, 44.5, id="extremes of 64 bits take longer than sums",
        ),
        pytest.param(
            "tiled", "mul", "float32", (1, 2820, 4171908, 1), {},
            1027.7, 3551.7, id="few places in a bucket make its loops run again",
        ),
        pytest.param(
            "gather_form", "update", "uint64", (2264, 1, 508, 1), {"deterministic": True},
            130.1, 126.6, id="integers of 64 bits hold a line up for twice as long",
        ),
        pytest.param(
            "bucketed", "mean", "int32", (1, 45, 195023, 1), IN_PLACE,
            51.8, 56.0, id="buckets with too many updates are cut",
        ),
        pytest.param(
            "owned_rows", "mean", "float32", (2345, 4, 1, 4096),
            {**IN_PLACE, "deterministic": True, "index_dtype": "int32"},
            177.8, 176.6, id="batches that share an index leave most blocks without updates",
        ),
        pytest.param(
            "owned_rows", "mul", "int32", (1, 208896, 4612, 1), {"index_dtype": "int32"},
            21.8, 21.7, id="a block writes its rows in many turns",
        ),
        pytest.param(
            "owned_rows", "mean", "uint64", (1, 16, 9379, 142), {"deterministic": True},
            16.5, 39.5, id="the hottest row of few is a block's",
        ),
        pytest.param(
            "owned_rows", "add", "float32", (1, 2708, 10556, 128),
            {**IN_PLACE, "fused": True, "fill": "0.0"},
            10.6, 30.1, id="where a computed row is, is read before it",
        ),
        pytest.param(
            "split_bins", "add", "float32", (1, 100_000, 1_000_000, 2),
            {**IN_PLACE, "fused": True, "fill": "0.0"},
            81.2, 164.5, id="each part computes all updates",
        ),
        pytest.param(
            "grouped", "add", "float32", (1, 132_534, 39_561_252, 8),
            {**IN_PLACE, "fused": True, "fill": "0.0"},
            2891.8, 2021.8, id="no cache holds the lists",
        ),
    ],
)  # fmt: skip
def test_predicted_within_two_thirds_of_what_was_measured(
    name, reduction, dtype, sizes, more, even, skewed
):
    posed = problem(reduction, dtype, sizes, more)
    implementation = STRATEGY.implementations[name]
    config = implementation.config(posed, TARGET)
    factors = coefficients("cuda")[name]
    for spread, measured in zip(SPREADS, (even, skewed), strict=True):
        terms = implementation.cost(Work.of(posed, MACHINE, spread), config)
        predicted = sum(factors[term] * each for term, each in terms.items())
        if measured:
            assert 1 / 1.67 < predicted / measured < 1.67, (spread, predicted, measured)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "more",
    [{**IN_PLACE, "fill": "0.0"}, IN_PLACE, {}, {"epilogue": "float32"}],
    ids=["first", "in place", "copied", "last"],
)
def test_many_lines_with_one_index_order_it_once(dtype, more):
    """The scatters of the row "image splat" in the benchmark of models."""
    more = {"epilogue": dtype} if "epilogue" in more else more
    posed = problem("add", dtype, (64, 446464, 446464, 1), {"fused": True, **more})
    assert STRATEGY.default(posed, TARGET).implementation.name == "common_index"


@pytest.mark.parametrize(
    ("dtype", "sizes", "fastest"),
    [
        # 32 and 64 us, even and skewed, where split_bins took 45 and 112.
        ("float32", (1, 100_000, 1_000_000, 1), "tiled"),
        # 37 and 63, split_bins 131 and 248.
        ("bfloat16", (1, 100_000, 1_000_000, 3), "bucketed"),
        # 1023 and 1490, grouped 2892 and 2022, parallel_injective 727 and 13 808.
        ("float32", (1, 132_534, 39_561_252, 8), "bucketed"),
    ],
)
def test_messages_of_few_features(dtype, sizes, fastest):
    posed = problem("add", dtype, sizes, {**IN_PLACE, "fused": True, "fill": "0.0"})
    assert STRATEGY.default(posed, TARGET).implementation.name == fastest


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_messages_that_must_be_reproducible(dtype):
    """All edges of ogbn-proteins: `sort_based` took 3833 us and 5810."""
    posed = problem(
        "add",
        dtype,
        (1, 132_534, 39_561_252, 8),
        {**IN_PLACE, "fused": True, "fill": "0.0", "deterministic": True},
    )
    assert STRATEGY.default(posed, TARGET).implementation.name == "segmented"


def test_few_lines_of_few_places_are_not_ordered():
    """Drawn for `wide:20261127`: 21 blocks read all updates one after the other, 804 us for 102."""
    posed = problem("add", "float64", (168, 73, 58876, 1), {})
    predicted = STRATEGY.default(posed, TARGET).predictions
    assert predicted["common_index"].microseconds > 1.5 * predicted["split_bins"].microseconds


@pytest.mark.parametrize("extent", [1, 2, 14, 1000])
def test_the_most_frequent_place_has_its_share_of_zipf(extent):
    posed = problem("add", "float32", (1, extent, 100_000, 1), {})
    share = 1 / sum(rank**-1.2 for rank in range(1, extent + 1))
    hottest = Work.of(posed, MACHINE, SPREADS[1]).hottest
    assert hottest == pytest.approx(100_000 * share, rel=0.04)


def test_fewer_updates_than_places_cost_no_less_than_nothing():
    posed = problem("mul", "float32", (1, 10000, 10, 1), IN_PLACE)
    costs = Costs(posed, MACHINE, coefficients("cuda"))
    implementation = STRATEGY.implementations["parallel_injective"]
    predict = costs.of(implementation, implementation.config(posed, TARGET))
    assert all(each >= 0 for each in predict(None).terms.values())


@pytest.mark.parametrize("name", ["bucketed", "grouped", "segmented", "owned_rows"])
@pytest.mark.parametrize("more", [{"fill": "0.0"}, {"epilogue": "float32"}])
def test_an_output_that_is_filled_or_computed_on_is_written_as_a_whole(name, more):
    kept, written = (
        problem("add", "float32", (1, 50_000, 100, 128), {**IN_PLACE, **each})
        for each in ({}, more)
    )
    costs = [
        Costs(each, MACHINE, coefficients("cuda")).of(
            STRATEGY.implementations[name],
            STRATEGY.implementations[name].config(each, TARGET),
        )(None)
        for each in (kept, written)
    ]
    output = 50_000 * 128 * 4 / MACHINE.memory
    assert costs[1].microseconds - costs[0].microseconds > 0.5 * output
