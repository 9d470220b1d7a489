"""Numbers that a launch and its kernel must agree in are read from the kernel's header."""

from __future__ import annotations

import pytest

from tvm_scatter.strategies.cuda.codegen import constants
from tvm_scatter.strategies.cuda.codegen.constants import device_constant

HEADER = """
constexpr int kThreads = 256, kItems = 4;
constexpr int kTile = kThreads * kItems * 2;
struct Table {
  static constexpr uint32 slots = 64;
};
struct Other {
  static constexpr bool slots_are_few = true;
};
constexpr uint32 kMark = 1u << 31;
void twice() {
  constexpr int per_thread = 4;
}
void again() {
  constexpr int per_thread = 8;
}
"""


@pytest.fixture(autouse=True)
def header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "headers", lambda names: HEADER)


@pytest.mark.parametrize(
    ("name", "value"), [("kThreads", 256), ("kItems", 4), ("kTile", 2048), ("slots", 64)]
)
def test_a_constant_is_a_number_or_a_product(name: str, value: int) -> None:
    assert device_constant("header", name) == value


@pytest.mark.parametrize("name", ["kRetired", "per_thread", "Threads", "kMark"])
def test_what_is_not_one_number_is_refused(name: str) -> None:
    with pytest.raises(LookupError, match=r"header\.cuh: it declares"):
        device_constant("header", name)
