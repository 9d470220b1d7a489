"""The experiment that compares new implementations: its forms are valid; what is wrong is told."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from cuda_cases import cuda_target

from tvm_scatter import ScatterError
from tvm_scatter.tuning.bench.reference import Reference
from tvm_scatter.tuning.experiments import second_round
from tvm_scatter.tuning.experiments.second_round import FORMS, Row, Timed
from tvm_scatter.tuning.measure.sampling import Budget
from tvm_scatter.tuning.space.workloads import WORKLOADS

pytest.importorskip("torch")

UPDATES = replace(
    next(each for each in WORKLOADS if each.name == "add 20 to 5000"), count=20, extent=500
)


@pytest.mark.parametrize("workload", list(second_round.workloads()), ids=lambda each: each.name)
def test_every_form_is_one_that_the_workload_takes(workload: second_round.Workload) -> None:
    forms = second_round.selections(workload, FORMS[workload.name], cuda_target("sm_90"))
    names = list(forms)
    assert names[0].startswith("chosen: ")
    assert len(forms) == 1 + len(FORMS[workload.name])


def measure(monkeypatch: pytest.MonkeyPatch) -> Row:
    monkeypatch.setattr(second_round, "_BUDGET", Budget.exactly(2))
    forms = [("sequential", {}), ("sort_based", {})]
    return second_round.measure(UPDATES, forms, "cpu", with_peers=False)


def test_forms_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    row = measure(monkeypatch)
    assert list(row.forms)[1:] == ["sequential", "sort_based"]
    assert all(timed.device > 0 and not timed.wrong for timed in row.forms.values())


def test_what_is_wrong_is_told_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Reference.check

    def check(self: Reference, result: object, name: str) -> float:
        if name == "sequential":
            raise ScatterError("bench: sequential is wrong.")
        return right(self, result, name)

    monkeypatch.setattr(Reference, "check", check)
    row = measure(monkeypatch)
    assert row.forms["sequential"].wrong == "bench: sequential is wrong."
    assert row.forms["sequential"].device == 0 and row.forms["sort_based"].device > 0
    assert "| sequential | bench: sequential is wrong. |" in second_round.markdown([row])


def test_rows_of_an_earlier_run_are_kept(tmp_path: Path) -> None:
    rows = [Row(name, 8, {"chosen: tiled": Timed(2.0, 0.1, 0.0, [1.0, 0.5])}) for name in "ab"]
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"rows": [asdict(row) for row in rows]}))
    assert second_round.kept_rows(str(path), ["b"]) == rows[:1]
    assert second_round.kept_rows(None, []) == []
    assert "| a | chosen: tiled | 2.0 | 0.1 | 1.00 | 1.0 + 0.5 |" in second_round.markdown(rows)
