"""Variants of a test that take turns."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.fixture(params=["a", "b"])
def kind(request): return request.param

@pytest.mark.turns(2)
@pytest.mark.parametrize("letter", "xyz")
@pytest.mark.parametrize(("number", "twice"), [(1, 2), (2, 4), (3, 6), (4, 8)])
def test_some(letter, number, twice, kind): ...

@pytest.mark.parametrize("letter", "xyz")
def test_all(letter): ...

@pytest.mark.on_cpu
@pytest.mark.turns(2)
@pytest.mark.parametrize("letter", "xyz")
@pytest.mark.parametrize("device", ["llvm", "cuda"])
def test_dear(device, letter): ...

@pytest.mark.on_cpu
@pytest.mark.parametrize("device", ["llvm", "cuda"])
def test_dear_alone(device): ...
"""


def test_each_pair_of_values_has_its_turn(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from turns import take_turns as pytest_collection_modifyitems")
    items, _ = pytester.inline_genitems(pytester.makepyfile(TESTS))
    tried = [item for item in items if not item.get_closest_marker("exhaustive")]
    some = [item.callspec.params for item in tried if "test_some" in item.name]
    assert len(some) == 12 and sum("test_all" in item.name for item in tried) == 3
    dear = [item.callspec.params["device"] for item in tried if "test_dear" in item.name]
    assert set(dear) == {"llvm"} and len(dear) in (2, 3)
    assert len({(each["letter"], each["number"]) for each in some}) == 12
    assert len({(each["letter"], each["kind"]) for each in some}) == 6
    assert len({(each["number"], each["kind"]) for each in some}) == 8
