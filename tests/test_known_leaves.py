"""What is known of tensors that updates are computed from, with and without their sizes."""

from __future__ import annotations

import pytest
from tvm import te, tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.emit.known_leaves import NOTHING_KNOWN, KnownLeaves


def leaf(size: int | tirx.Var):
    return te.placeholder([size], "float32")


@pytest.mark.parametrize(
    ("size", "short", "elements"),
    [(0, True, False), (1, True, True), ((1 << 31) - 1, True, True), (1 << 31, False, True)],
)
def test_a_size_that_is_known_decides(size: int, short: bool, elements: bool) -> None:
    given = leaf(tirx.IntImm("int64", size))
    for known in (NOTHING_KNOWN, KnownLeaves(are_short=True)):
        assert known.is_short(given) == short and known.has_elements(given) == elements


def test_another_size_is_as_the_host_has_found_it() -> None:
    given = leaf(tirx.Var("n", "int64"))
    assert not NOTHING_KNOWN.is_short(given) and not NOTHING_KNOWN.has_elements(given)
    known = KnownLeaves(are_short=True)
    assert known.is_short(given) and known.has_elements(given)


@pytest.mark.parametrize(
    ("sizes", "short"),
    [
        ((5, 7), True),
        ((1, (1 << 31) - 1), True),
        # The first elements are read where an index is bad: there must be some.
        ((0, 7), False),
        ((5, 0), False),
        ((5, 1 << 31), False),
    ],
)
def test_the_host_asks_all_sizes(sizes: tuple[int, int], short: bool) -> None:
    n, m = (tirx.Var(name, "int64") for name in "nm")
    condition = KnownLeaves.are_known_to_be_short([leaf(n), leaf(m)])
    values = dict(zip((n, m), (tirx.IntImm("int64", size) for size in sizes), strict=True))
    found = Analyzer().simplify(substitute(condition, values))
    assert bool(found) == short
