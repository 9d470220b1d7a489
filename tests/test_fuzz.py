"""A short run of the fuzzer, and every case that it ever failed."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzzing import FuzzCase, check_all, draw_cases
from harness import ProblemRunner
from tally import Tally

from tvm_scatter import ScatterProblem

FOUND = sorted((Path(__file__).parent / "fuzz_cases").glob("*.json"))


@pytest.mark.parametrize(
    "share", [2, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
@pytest.mark.each_device
def test_a_short_run(device: str, share: int, tally: Tally) -> None:
    cases = draw_cases(Random(5), device, (20 if device == "llvm" else 12) // share)
    assert check_all(device, cases) == []
    tally("random problems by an implementation", len(cases))


def test_what_failed_once_is_right(device: str) -> None:
    texts = [line for path in FOUND for line in path.read_text().splitlines()]
    cases = [case for case in map(FuzzCase.from_json, texts) if case.device == device]
    if not cases:
        pytest.skip("nothing has failed there")
    assert check_all(device, cases) == []


def has_answer(case: FuzzCase) -> bool:
    """Whether the data of a case has any elements."""
    problem = ScatterProblem.from_json(case.problem).with_sizes(case.sizes)
    return problem.data_size.constant > 0


def test_a_wrong_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ProblemRunner.run

    def wrong(*arguments: Any, **more: Any) -> Any:
        result = right(*arguments, **more)
        result.reshape(-1)[-1:].view("uint8")[-1:] ^= 1
        return result

    # An answer without elements cannot be wrong.
    cases = [case for case in draw_cases(Random(3), "llvm", 8) if has_answer(case)]
    assert len(cases) > 3
    monkeypatch.setattr(ProblemRunner, "run", wrong)
    assert [case for case, _ in check_all("llvm", cases)] == cases
