"""Records that are older than a knob of their implementation, or newer than one that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cuda_cases import cuda_target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import TunedRecord
from tvm_scatter.tuning.fit.candidate_times import measured_in_log
from tvm_scatter.tuning.fit.fit_costs import fit
from tvm_scatter.tuning.space.candidates import Candidate, candidates, need_strategy
from tvm_scatter.tuning.space.grid import problem
from tvm_scatter.tuning.store import ship
from tvm_scatter.tuning.store.database import open_database, read_database
from tvm_scatter.tuning.store.packed import read_log
from tvm_scatter.tuning.store.results import recorded_tasks, results_in

CUDA = cuda_target("sm_90")
STRATEGY = need_strategy(CUDA)


@contextmanager
def without(monkeypatch: pytest.MonkeyPatch, name: str, knob: str) -> Iterator[None]:
    """As long as this lasts, an implementation has no such knob yet."""
    kind = type(STRATEGY.implementations[name])
    now = kind.knobs

    def then(self: Any, posed: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {each: of for each, of in now(self, posed, target).items() if each != knob}

    with monkeypatch.context() as older:
        older.setattr(kind, "knobs", then)
        yield


def add(folder: Path, posed: ScatterProblem, *names: str) -> None:
    """Add a record of each candidate of some implementations, the later the faster."""
    with open_database(folder, CUDA) as log:
        for number, each in enumerate(candidates(posed, CUDA)):
            if each.implementation in names:
                told = {"distribution": "uniform", "seed": "0", "cache": "cold"}
                log.add(posed, CUDA, each, told, [1e-6 * (1000 - number)])


#: `patched` holds so few updates or not; of more it holds none.
FEW, MORE = problem(20_000, 1, 10), problem(20_000, 1, 200)


def test_records_that_do_not_name_all_knobs_are_not_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with without(monkeypatch, "patched", "held"):
        for posed in (FEW, MORE):
            add(tmp_path / "all", posed, "patched")
    for posed in (FEW, MORE):
        add(tmp_path / "all", posed, "sequential")
    output = tmp_path / "few.tar.xz"
    assert ship.main([str(tmp_path / "all"), "-o", str(output)]) == 0
    kept = [(posed, said) for posed, said, _ in read_log(output).records()]
    assert {said.implementation for posed, said in kept if posed == FEW} == {"sequential"}
    # Where there is no choice the program is the same one.
    names = {said.implementation for posed, said in kept if posed == MORE}
    assert names == {"patched", "sequential"}
    assert all(said.config["held"] == 0 for _, said in kept if said.implementation == "patched")


def test_a_knob_without_a_choice_is_no_reason_to_measure_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with without(monkeypatch, "patched", "held"):
        for posed in (FEW, MORE):
            add(tmp_path, posed, "patched")
    log = read_database(tmp_path)
    for posed in (FEW, MORE):
        assert STRATEGY.default(posed, CUDA).implementation.name == "patched"
    assert [task.problem for task in recorded_tasks(log)] == [FEW, MORE]
    assert [result.default is None for result in results_in(log)] == [True, False]


@pytest.mark.parametrize(
    ("name", "knob", "posed"),
    [
        ("tiled", "tile_threads", problem(1 << 20, 1, 1 << 18)),
        ("owned_rows", "unroll", problem(5000, 1, 300, "mean")),
    ],
)
def test_a_log_without_a_knob_is_fitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, knob: str, posed: ScatterProblem
) -> None:
    with without(monkeypatch, name, knob):
        add(tmp_path, posed, name)
    assert set(fit([measured_in_log(read_database(tmp_path))])) == {name}


def test_a_log_with_a_knob_that_is_gone_is_not_fitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    posed = problem(5000, 1, 300, "mean")
    add(tmp_path, posed, "owned_rows", "sequential")
    with without(monkeypatch, "owned_rows", "unroll"):
        assert set(fit([measured_in_log(read_database(tmp_path))])) == {"sequential"}


def test_better_knobs_of_a_log_count_though_one_came_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    selected = STRATEGY.default(MORE, CUDA)
    assert selected.implementation.name == "patched"
    knobs = selected.implementation.knobs(MORE, CUDA)
    assert len(knobs["held"]) == 1
    older = {knob: of for knob, of in selected.config.items() if knob != "held"}
    better = older | {"per_thread": max(knobs["per_thread"])}
    told = [TunedRecord("patched", better, 200.0), TunedRecord("patched", older, 300.0)]
    monkeypatch.setattr("tvm_scatter.selection.strategy.shipped_records", lambda *_: told)
    chosen = STRATEGY.select(MORE, CUDA)
    assert chosen.source == "tuned"
    assert Candidate.of("patched", chosen.config) == Candidate.of("patched", better | {"held": 0})
