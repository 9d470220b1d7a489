"""Tuning from end to end on llvm: bad candidates, killed runs, directories, RPC, the commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm.target import Target

from tvm_scatter import ScatterError, strategy_for
from tvm_scatter.cli import main
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import records_in
from tvm_scatter.tasks import Task
from tvm_scatter.tuning.experiments.scale_out import running_servers, running_tracker
from tvm_scatter.tuning.measure.build import Failure
from tvm_scatter.tuning.search.tune import Settings, tune
from tvm_scatter.tuning.space.candidates import (
    Candidate,
    candidates,
    default_candidate,
    need_strategy,
)
from tvm_scatter.tuning.space.grid import problem
from tvm_scatter.tuning.store.database import open_database, read_database
from tvm_scatter.tuning.store.results import Result, recorded_tasks

LLVM = Target("llvm")
SMALL = Settings(distributions=("uniform",))

pytestmark = pytest.mark.usefixtures("quick_processes")


def space(posed: ScatterProblem) -> int:
    return len(list(candidates(posed, LLVM)))


@pytest.fixture
def bad_implementations() -> Iterator[Any]:
    """The module, whose implementations no other test sees."""
    import bad_implementations

    bad_implementations.register()
    yield bad_implementations
    bad_implementations.unregister()


@pytest.mark.exhaustive
def test_bad_candidates_cost_their_own_trial(bad_implementations: Any, tmp_path: Path) -> None:
    posed = problem(bad_implementations.EXTENT, 3, 500)
    settings = Settings(distributions=("uniform",), timeout=4.0, imports=("bad_implementations",))
    (result,) = tune([Task(posed)], LLVM, tmp_path, settings)
    good = set(need_strategy(LLVM).applicable(posed, LLVM)) - set(bad_implementations.BAD)
    assert {r.implementation for r in result.ranked} == good
    reasons = {f.candidate.implementation: f.reason for f in result.failed}
    assert set(reasons) == set(bad_implementations.BAD)
    assert "answer is wrong in" in reasons["wrong"]
    assert f"wrong in {posed.data_size} of" in reasons["silent"]
    assert "more than 4 s" in reasons["hangs"]
    assert "SIGABRT" in reasons["crashes"]
    assert "does not compile" in reasons["uncompilable"]
    kept = read_database(tmp_path)
    assert {line["candidate"] for line in kept.failures()} == set(bad_implementations.BAD)
    assert len(kept) == len(good)


def test_records_are_used_and_a_run_is_resumed(tmp_path: Path) -> None:
    posed = problem(700, 5, 300, "max")
    (first,) = tune([Task(posed)], LLVM, tmp_path, Settings(trials=2))
    assert len(first.ranked) == 2
    with pytest.raises(ScatterError, match=r"holds 4 records; resume"):
        tune([Task(posed)], LLVM, tmp_path, Settings())
    (second,) = tune([Task(posed)], LLVM, tmp_path, Settings(), resume=True)
    assert len(second.ranked) == space(posed) > 2
    stored = read_database(tmp_path).stored
    # Each on both distributions, none twice.
    assert len(stored.get_all_tuning_records()) == 2 * space(posed)
    assert second.best is not None
    with stored:
        selection = strategy_for("llvm").select(posed, LLVM)  # type: ignore[union-attr]
    assert (selection.source, selection.implementation.name) == (
        "tuned",
        second.best.implementation,
    )
    plain = tvm.s_tir.meta_schedule.database.JSONDatabase(work_dir=str(tmp_path))
    assert [r.implementation for r in records_in(plain, posed, LLVM)] == [
        r.implementation for r in second.ranked
    ]


@pytest.mark.exhaustive
def test_a_log_is_completed_by_one_implementation(tmp_path: Path) -> None:
    old, new = problem(700, 5, 300, "max"), problem(300, 5, 700, "max")
    tune([Task(old)], LLVM, tmp_path, replace(SMALL, trials=1))
    (before,) = read_database(tmp_path).records()
    lacking = next(
        name
        for name in need_strategy(LLVM).applicable(old, LLVM)
        if name != before[1].implementation
    )
    completed = replace(SMALL, implementations=(lacking,))
    kept, measured = tune([Task(old), Task(new)], LLVM, tmp_path, completed, resume=True)
    assert {r.implementation for r in kept.ranked} == {before[1].implementation, lacking}
    mine = [c for c in candidates(old, LLVM) if c.implementation == lacking]
    assert kept.tried == kept.space == min(len(mine), 4) == len(kept.ranked) - 1
    # Of a problem without records everything is measured.
    assert len(measured.ranked) == space(new)


def test_a_log_is_completed_where_its_default_was_not_measured_first(tmp_path: Path) -> None:
    known, unknown = problem(700, 5, 300, "max"), problem(300, 5, 700, "max")
    for posed, is_known in ((known, True), (unknown, False)):
        default = default_candidate(posed, LLVM)
        with open_database(tmp_path, LLVM) as database:
            chosen = next(c for c in candidates(posed, LLVM) if (c == default) == is_known)
            told = {"distribution": "uniform", "seed": "0", "cache": "warm"}
            database.add(posed, LLVM, chosen, told, [1e-6])
    recorded = recorded_tasks(read_database(tmp_path))
    assert [task.problem for task in recorded] == [unknown, known]
    name = default_candidate(unknown, LLVM).implementation
    command = ["tune", "--target", "llvm", "--grid", "recorded", "--work-dir", str(tmp_path)]
    command += ["--resume", "--implementation", name, "--trials", "1", "--distribution", "uniform"]
    assert main(command) == 0
    assert [task.problem for task in recorded_tasks(read_database(tmp_path))] == [known, unknown]


def recorded(problems: Sequence[ScatterProblem], folder: Path) -> None:
    """A log with a record of each, as if one candidate had been measured."""
    for posed in problems:
        with open_database(folder, LLVM) as database:
            told = {"distribution": "uniform", "seed": "0", "cache": "warm"}
            database.add(posed, LLVM, next(candidates(posed, LLVM)), told, [1e-6])


def test_a_pattern_picks_scatters(tmp_path: Path) -> None:
    recorded([problem(700, 5, 300, "max"), problem(300, 5, 700, "max")], tmp_path)
    command = ["tune", "--target", "llvm", "--grid", "recorded", "--work-dir", str(tmp_path)]
    command += ["--resume", "--trials", "2", "--distribution", "uniform"]
    assert main([*command, "--problem", "max float*data (1, 300, 5)"]) == 0
    records = read_database(tmp_path).records()
    measured = [posed.extent.constant for posed, _, _ in records]
    assert sorted(measured) == [300, 300, 700]


def test_a_symbolic_size_is_measured_over_its_range(tmp_path: Path) -> None:
    from tvm_scatter.problem.symbolic_size import SymbolicSize

    posed = replace(problem(100, 2, 1), count=SymbolicSize(1, ("n0",)))
    (result,) = tune([Task(posed, ranges={"n0": (8, 800)})], LLVM, tmp_path, SMALL)
    sizes = {
        decision.circumstances["sizes"] for _, decision, _ in read_database(tmp_path).records()
    }
    assert sizes == {"n0=8", "n0=80", "n0=800"}
    assert result.best is not None


def test_a_killed_run_is_resumed(tmp_path: Path) -> None:
    """SIGKILL after the first record, the last line cut in the middle, and on from there."""
    folder = tmp_path / "log"
    script = (
        "from pathlib import Path; from tvm.target import Target\n"
        "from tvm_scatter.tuning.space.grid import problem\n"
        "from tvm_scatter.tasks import Task\n"
        "from tvm_scatter.tuning.search.tune import Settings, tune\n"
        "tasks = [Task(problem(n, 1, 50)) for n in range(50, 90)]\n"
        f"tune(tasks, Target('llvm'), Path({str(folder)!r}), Settings(distributions=('uniform',)))"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    records = folder / "database_tuning_record.json"
    until = time.monotonic() + 60
    while not (records.exists() and records.read_text().count("\n") >= 2):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    whole = len(records.read_text().splitlines())
    with records.open("a") as file:
        file.write('[0,[[[["GetSBlock",[],["sca')
    with pytest.warns(UserWarning, match=r"1 damaged line\(s\).*the rest is kept"):
        (result,) = tune([Task(problem(50, 1, 50))], LLVM, folder, SMALL, resume=True)
    assert len(result.ranked) == space(problem(50, 1, 50))
    assert len(read_database(folder)) >= whole


def test_a_damaged_workload_takes_only_its_own_records(tmp_path: Path) -> None:
    recorded([problem(n, 1, 50) for n in (50, 60, 70)], tmp_path)
    path = tmp_path / "database_workload.json"
    lines = path.read_text().splitlines()
    lines[1] = lines[1][: len(lines[1]) // 2]
    path.write_text("\n".join(lines) + "\n")
    assert len(read_database(tmp_path)) == 2
    with pytest.warns(UserWarning, match="damaged"), open_database(tmp_path, LLVM) as database:
        found = {posed.extent.constant for posed, _, _ in database.records()}
    assert found == {50, 70}


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    task = [Task(problem(50, 1, 50))]
    with open_database(tmp_path / "mine", LLVM):
        with pytest.raises(ScatterError, match="in use by another tuner"):
            tune(task, LLVM, tmp_path / "mine", SMALL)
    (tmp_path / "file").write_text("")
    with pytest.raises(ScatterError, match="cannot be written"):
        tune(task, LLVM, tmp_path / "file", SMALL)
    other = tmp_path / "other"
    other.mkdir()
    metadata = {"format": 1, "target": {"kind": "cuda", "arch": "sm_80"}, "runs": []}
    (other / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(ScatterError, match="records for cuda sm_80, not for llvm"):
        tune(task, LLVM, other, SMALL)
    (other / "metadata.json").write_text(json.dumps({**metadata, "format": 99}))
    with pytest.raises(ScatterError, match="is of format 99, this version reads 1"):
        tune(task, LLVM, other, SMALL)
    (other / "metadata.json").write_text("{")
    with pytest.raises(ScatterError, match=r"metadata.json' cannot be read"):
        read_database(other)


def test_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(ScatterError, match="no scatter to tune"):
        tune([], LLVM, tmp_path, SMALL)
    with pytest.raises(ScatterError, match="0 trials measure nothing"):
        tune([Task(problem(50, 1, 50))], LLVM, tmp_path, Settings(trials=0))


@pytest.mark.exhaustive
def test_two_servers_behind_a_tracker_that_goes_away(tmp_path: Path) -> None:
    tasks = [Task(problem(n, 4, 200)) for n in range(50, 70)]
    whole: dict[ScatterProblem, Result] = {}
    with ExitStack() as tracker_runs, ExitStack() as servers_run:
        tracker = tracker_runs.enter_context(running_tracker())
        servers_run.enter_context(running_servers(tracker, 2))
        behind = replace(SMALL, tracker=tracker)
        with pytest.raises(ScatterError, match=r"has no server of key 'there'.*scale-out"):
            tune(tasks, LLVM, tmp_path, replace(behind, tracker=replace(tracker, key="there")))

        def listener(result: Result) -> None:
            whole[result.task.problem] = result
            if len(whole) == 2:
                tracker_runs.close()

        with pytest.raises(ScatterError, match="no RPC tracker answers"):
            tune(tasks, LLVM, tmp_path, replace(behind, timeout=8.0), True, listener)
    first, second = list(whole.values())[:2]
    for result in (first, second):
        assert len(result.ranked) == space(result.task.problem) and not result.failed
    # What was measured until then is whole: nothing is left out of it with a warning.
    with open_database(tmp_path, LLVM) as database:
        known = len(list(database.records()))
        assert len(first.ranked) + len(second.ranked) <= known == len(database)
    with pytest.raises(ScatterError, match="no RPC tracker answers"):
        tune(tasks, LLVM, tmp_path, behind, resume=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with three scatters, two of them alike."""
    import torch

    class Model(torch.nn.Module):
        def forward(self, x: Any, index: Any, y: Any) -> Any:
            first = torch.index_add(x, 0, index, y)
            second = torch.index_add(x, 0, index, y * 2)
            rows = index[:, None].expand(-1, 16)
            return torch.scatter_reduce(first + second, 0, rows, y, "amax")

    path = tmp_path_factory.mktemp("model") / "model.pt2"
    arguments = (torch.zeros(90, 16), torch.zeros(40, dtype=torch.int64), torch.zeros(40, 16))
    torch.export.save(torch.export.export(Model(), arguments), path)
    return str(path)


def test_the_commands(model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, pictures = str(tmp_path / "log"), tmp_path / "pictures"
    tune_it = ["tune", model, "--target", "llvm", "--work-dir", folder]
    assert main([*tune_it, "--distribution", "uniform", "--plot", str(pictures)]) == 0
    shown = capfd.readouterr()
    assert "of 2 tasks" in shown.err and "s left" in shown.err
    assert len(list(pictures.glob("*.png"))) == 2
    assert main(["report", folder]) == 0
    assert " records, 0 left out" in capfd.readouterr().out
    assert main(["report", folder, folder]) == 0
    assert capfd.readouterr().out.count("index per") == 2
    library = str(tmp_path / "model.so")
    assert main(["compile", model, "--target", "llvm", "--log", folder, "-o", library]) == 0
    assert main(["explain", model, "--target", "llvm", "--log", folder, "--json"]) == 0
    out = capfd.readouterr().out
    found = json.loads(out[out.index("[") :])
    assert [scatter["source"] for scatter in found] == ["tuned"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a model, or a grid"),
        (["model.pt2", "--grid", "shipped"], "model.pt2 and --grid shipped: name one of them"),
        (["--grid", "none"], "unknown grid 'none'"),
        (["--grid", "recorded"], "holds no tuning records"),
        (["--grid", "shipped", "--problem", "none"], "--problem 'none': no scatter is so named"),
        (["--grid", "shipped", "--tracker", "here"], "must be of the form HOST:PORT"),
        (["--grid", "shipped", "--tracker", "here:9"], "needs --key"),
        (["--grid", "shipped", "--tracker", "127.0.0.1:9", "--key", "k"], "no RPC tracker answers"),
        (["--grid", "shipped", "--trials", "0"], "0 trials measure nothing"),
        (["--grid", "shipped", "--timeout", "0"], "no candidate is done in 0 s"),
        (["--grid", "shipped", "--seed", "-1"], "the seed -1 must be at least 0"),
        (["--grid", "shipped", "--builders", "0"], "0 builders compile nothing"),
        (["--grid", "shipped", "--rival", "none"], "there is no implementation 'none'; there is: "),
        (["--grid", "shipped", "--import", "no.such"], "--import no.such: No module named 'no'."),
    ],
)
def test_bad_input_of_the_command(
    arguments: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "--target", "llvm", "--work-dir", str(tmp_path / "log")]
    assert main([*command, *arguments]) == 2
    assert message in capfd.readouterr().err


def test_the_command_says_why_nothing_was_measured(
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(tasks: list[Task], *_: Any) -> list[Result]:
        failure = Failure(Candidate("sequential"), "it took more than 1 s")
        return [Result(task, failed=[failure]) for task in tasks]

    monkeypatch.setattr("tvm_scatter.tuning.search.tune.tune", fail)
    assert main(["tune", model, "--target", "llvm", "--work-dir", str(tmp_path)]) == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        "tvm-scatter tune: no candidate could be measured, the first because it took more than "
        f"1 s; all reasons are in {tmp_path / 'failures.jsonl'}."
    )


def test_a_log_for_another_target_is_refused(
    model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no tuning records" in capfd.readouterr().err
    recorded([problem(50, 1, 50)], tmp_path)
    assert main(["explain", model, "--target", "sm_90", "--log", str(tmp_path)]) == 2
    assert "records for llvm, not for cuda sm_90" in capfd.readouterr().err
