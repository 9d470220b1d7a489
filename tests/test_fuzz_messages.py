"""What becomes of random messages whose process dies, and of long errors."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import fuzz_messages
from fuzz_messages import PER_MODULE, compared
from fuzzing_messages import Outcome, brief

FIRST = range(3 * PER_MODULE)


def ended(code: int, *lines: str) -> Any:
    text = "".join(f"{line}\n" for line in lines)
    return subprocess.CompletedProcess([], code, text, "what(): an illegal memory access")


def outcome(**fields: Any) -> str:
    return "outcome " + json.dumps(vars(Outcome(programs=PER_MODULE, **fields)))


def runs(monkeypatch: Any, *ends: Any) -> tuple[list[Any], list[str]]:
    """The outcomes if the processes end like this, and the seeds at which they began."""
    waiting, seeds = list(ends), []

    def run(command: list[str], **_: Any) -> Any:
        seeds.append(command[command.index("--seed") + 1])
        return waiting.pop(0)

    monkeypatch.setattr(subprocess, "run", run)
    outcomes = compared("cuda", FIRST)
    assert not waiting
    return outcomes, seeds


def test_the_next_modules_run_after_a_process_has_died(monkeypatch):
    died = ended(-6, outcome(fused=7), "begun seed20, segmented", "begun seed24, bucketed")
    outcomes, seeds = runs(monkeypatch, died, ended(0, "begun seed40, bucketed", outcome()))
    assert seeds == ["0", "40"]
    assert [each.fused for each in outcomes] == [7, 0, 0]
    [failure] = outcomes[1].failures
    for part in ("range(20, 40)", "-6", "seed24, bucketed", "illegal memory access"):
        assert part in failure


def test_the_next_modules_run_after_a_process_has_lost_the_device(monkeypatch):
    lost = ended(1, outcome(failures=["seed3"], device_lost=True))
    outcomes, seeds = runs(monkeypatch, lost, ended(0, outcome(), outcome()))
    assert seeds == ["0", "20"]
    assert [each.failures for each in outcomes] == [["seed3"], [], []]


def test_nothing_runs_once_the_time_is_over(monkeypatch):
    monkeypatch.setattr(fuzz_messages.time, "monotonic", lambda: 10.0)
    assert compared("cuda", FIRST, end=9.0) == []


def test_errors_of_compilers_show_what_is_wrong():
    warnings = 'k.cu(9): warning #177-D: function "hpow" was declared but never referenced\n  ^\n'
    wrong = 'k.cu(22588): error: identifier "hnearbyint" is undefined\n  y = hnearbyint(x);\n'
    text = 400 * warnings + wrong + 400 * warnings
    said = brief(RuntimeError(text + "1 error detected in the compilation."))
    assert "hnearbyint(x)" in said and "hpow" not in said
    assert brief(IndexError("Index 1 out of bounds 1")) == "IndexError\nIndex 1 out of bounds 1"
