"""ScatterProblem: what it derives, how it is written and read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_scatter import ScatterError, ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize

ROWS = ScatterProblem(
    batch=SymbolicSize(2),
    extents=(SymbolicSize(10), SymbolicSize(3)),
    slice=SymbolicSize(4),
    count=SymbolicSize(7),
    data_dtype="float32",
    index_dtype="int64",
    reduction="add",
)
SYMBOLIC = replace(ROWS, count=SymbolicSize.product(["n", 2]), slice=SymbolicSize.product(["m"]))


def test_derived_extents() -> None:
    assert ROWS.extent == SymbolicSize(30)
    assert ROWS.data_size == SymbolicSize(2 * 30 * 4)
    assert ROWS.update_size == SymbolicSize(2 * 7 * 4)
    assert (ROWS.items, ROWS.width, ROWS.destinations) == (
        SymbolicSize(14),
        SymbolicSize(4),
        SymbolicSize(60),
    )
    elements = replace(ROWS, index_batch=True, index_slice=True)
    assert (elements.items, elements.width) == (SymbolicSize(56), SymbolicSize())
    assert elements.destinations == SymbolicSize(240)


def test_rank_counts_what_is_more_than_one() -> None:
    assert ROWS.rank == 3
    assert replace(ROWS, batch=SymbolicSize()).rank == 2
    assert replace(ROWS, batch=SymbolicSize(), slice=SymbolicSize()).rank == 1


@pytest.mark.parametrize(
    "problem",
    [
        ROWS,
        SYMBOLIC,
        replace(ROWS, index_batch=True, unique=True, bounds="trust", in_place=True),
        replace(
            ROWS, interleaved=True, include_self=False, reduction="mean", batch=SymbolicSize(0)
        ),
    ],
)
def test_json_round_trip(problem: ScatterProblem) -> None:
    again = ScatterProblem.from_json(problem.to_json())
    assert again == problem
    assert hash(again) == hash(problem)
    assert again.to_json() == problem.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"version": 1}',
        '{"version": 1, "batch": 3}',
        ROWS.to_json()[:-20],
        ROWS.to_json().replace('"add"', '"divide"'),
        ROWS.to_json().replace('"batch":"2"', '"batch":null'),
    ],
)
def test_what_is_no_problem_is_refused(text: str) -> None:
    with pytest.raises(ScatterError):
        ScatterProblem.from_json(text)


def test_another_version_is_refused() -> None:
    with pytest.raises(ScatterError, match="version 99"):
        ScatterProblem.from_json(ROWS.to_json().replace('"version":1', '"version":99'))


def test_symbols_and_sizes() -> None:
    assert SYMBOLIC.symbols == ("m", "n")
    assert not SYMBOLIC.is_static
    fixed = SYMBOLIC.with_sizes({"m": 4, "n": 3})
    assert fixed == replace(ROWS, count=SymbolicSize(6))
    assert SYMBOLIC.with_sizes({"m": 4}).symbols == ("n",)


def test_a_zero_makes_a_product_static() -> None:
    assert SymbolicSize.product(["n", 0]) == SymbolicSize(0)
    assert SymbolicSize.parse(str(SymbolicSize.product(["n", 3, "m"]))) == SymbolicSize(
        3, ("m", "n")
    )


def test_needs_order() -> None:
    strict = replace(ROWS, deterministic=True)
    assert strict.needs_order
    assert not ROWS.needs_order
    assert not replace(strict, unique=True).needs_order
    assert not replace(strict, data_dtype="int32").needs_order
    assert not replace(strict, reduction="max").needs_order
    assert replace(strict, data_dtype="int32", reduction="update").needs_order


def test_bad_fields_are_refused() -> None:
    with pytest.raises(ScatterError, match="unknown reduction 'divide'"):
        replace(ROWS, reduction="divide")
    with pytest.raises(ScatterError, match="alias"):
        replace(ROWS, reduction="amax")
    with pytest.raises(ScatterError, match="bounds 'clamp'"):
        replace(ROWS, bounds="clamp")


def test_text_names_what_matters() -> None:
    text = str(replace(ROWS, unique=True))
    for part in ("add float32", "(2, 30, 4)", "(2, 7, 4)", "int64 index per row", "unique=True"):
        assert part in text


def test_a_fill_is_a_number_of_the_data() -> None:
    assert replace(ROWS, fill="-inf").fill == "-inf"
    for dtype, fill in (("float32", "zero"), ("int32", "0.5"), ("int32", "1;")):
        with pytest.raises(ScatterError, match=r"fill .* must be a number of type"):
            replace(ROWS, data_dtype=dtype, fill=fill)
