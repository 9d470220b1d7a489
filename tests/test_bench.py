"""The benchmark's report: rows of an earlier run are kept, marked and told apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tvm_scatter import ScatterError
from tvm_scatter.cli import main
from tvm_scatter.tuning.bench import bench, peers, report
from tvm_scatter.tuning.bench.bench import Report, Row
from tvm_scatter.tuning.experiments import bounds_cost
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.call_times import CallTimes
from tvm_scatter.tuning.space.workloads import WORKLOADS, Workload

pytest.importorskip("torch")

MACHINE = {"device": "a GPU", "driver": "580", "threads": 2, "caches": "cold", "scale": 1}
VERSIONS = {"tvm": "0.27", "torch": "2.11", "kernels": "aa"}


def row(workload: str, **more: Any) -> Row:
    return Row(workload, "grouped", 1.0, CallTimes(2.0, 0.0, 2.0), 0.0, **more)


def facts(**changed: Any) -> dict[str, Any]:
    return {**MACHINE, **VERSIONS, "copy_bytes_per_us": 1e6, **changed}


def test_rows_of_earlier_runs_say_what_they_were_made_with() -> None:
    first = Report(facts(torch="2.10"), [row("rows")])
    assert report.marks(first.rows) == []
    second = first.continued(facts(kernels="bb", copy_bytes_per_us=2e6))
    second.rows.append(row("256 bins"))
    third = second.continued(facts(kernels="cc"))
    third.rows.append(row("maskrcnn"))
    assert [each.earlier for each in third.rows] == [
        {"torch": "2.10", "kernels": "aa"},
        {"kernels": "bb"},
        None,
    ]
    text = report.markdown(third)
    assert "| rows* |" in text and "| 256 bins* |" in text and "| maskrcnn |" in text
    assert text.endswith("an earlier run, with torch 2.10 and kernels aa or bb.")
    # A fact that the earlier run did not note is not taken for the same.
    del second.machine["tvm"]
    assert second.continued(facts(kernels="bb")).rows[1].earlier == {"tvm": "unknown"}
    same = Report(facts(), [row("rows")]).continued(facts(copy_bytes_per_us=2e6))
    assert same.rows[0].earlier == {}
    assert report.marks(same.rows)[0].endswith("with the same kernels and versions.")


@pytest.mark.parametrize("name", MACHINE)
def test_a_report_of_another_machine_is_not_resumed(name: str) -> None:
    with pytest.raises(ScatterError, match=f"was measured with {name} .*, here it is 'other'; "):
        Report(facts(), [row("rows")]).continued(facts(**{name: "other"}))


@pytest.mark.exhaustive
def test_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(bench, "copy_bandwidth", lambda device: 1e4)
    # What the benchmark sets, the other tests of this process shall not find.
    for name in ("TVM_NUM_THREADS", "TVM_BIND_THREADS"):
        monkeypatch.setenv(name, "1")
    path, markdown = tmp_path / "cpu.json", tmp_path / "cpu.md"

    def run(workload: str) -> int:
        options = ["--device", "cpu", "--scale", "1024", "--filter", workload, "--resume"]
        return main(["bench", *options, "--json", str(path), "--markdown", str(markdown)])

    assert run("maskrcnn") == 0
    assert "| maskrcnn |" in markdown.read_text()
    monkeypatch.setattr(bench, "kernels", lambda: "others")
    made_with = json.loads(path.read_text())["machine"]["kernels"]
    assert run("assign 1 of 1000") == 0
    text = markdown.read_text()
    assert "| maskrcnn* |" in text and "| assign 1 of 1000 |" in text
    assert f"with kernels {made_with}." in text and text.splitlines()[-1] in capsys.readouterr().out
    saved = json.loads(path.read_text())
    assert [each["earlier"] for each in saved["rows"]] == [{"kernels": made_with}, None]
    # Nothing is left to measure: the report is shown as it is.
    assert run("assign 1 of 1000") == 0
    assert markdown.read_text() == text
    saved["machine"]["device"] = "another"
    path.write_text(json.dumps(saved))
    assert run("256 bins") == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "bench:" in line]
    assert "was measured with device 'another', here it is " in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "0"], "--scale 0 must be at least 1"),
        (["--json", "no/such.json"], "there is no folder no"),
        (["--markdown", "no/such.md"], "there is no folder no"),
        (["--json", "/"], "/ is a folder"),
        (["--plot", "/"], "/ is a folder"),
        (["--resume"], "--resume needs --json FILE"),
        (["--filter", "none"], "no workload is called 'none'"),
    ],
)
def test_bad_input_is_told_before_anything_is_timed(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(bench, "machine", lambda device: facts())
    monkeypatch.delattr(bench, "run")
    assert main(["bench", "--device", "cpu", *arguments]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert message in error


def small(workload: Workload) -> Workload:
    return replace(workload.scaled(4096), slice=min(workload.slice, 96))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_each_workload_runs_and_is_checked(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(call: Any) -> CallTimes:
        call()
        return CallTimes(1.0, 0.0, 1.0)

    monkeypatch.setattr(bench, "copy_bandwidth", lambda device: 1e4)
    monkeypatch.setattr(bench, "share_threads", lambda: None)
    monkeypatch.setattr(call_times, "on_cpu", once)
    (row,) = bench.run("cpu", [small(workload)], stock=workload.per_element)
    assert row.workload == workload.name and not row.failed
    assert any(name.startswith("torch") for name in row.others)


@pytest.mark.parametrize(
    "workload",
    [each for each in WORKLOADS if not each.reduces.is_store or each.distribution == "permutation"],
    ids=lambda workload: workload.name,
)
def test_all_forms_of_a_peer_agree(workload: Workload) -> None:
    import torch

    workload = replace(small(workload), dtype="float64")
    tensors = bench.make_tensors(workload, "cpu")
    forms = peers.torch_forms(workload, *tensors) | peers.torch_forms_into(workload, *tensors)
    results = {name: form().reshape(-1) for name, form in forms.items()}
    first = next(iter(results.values()))
    assert first.numel() == workload.data_size
    for name, result in results.items():
        torch.testing.assert_close(result, first, msg=name)


def test_an_index_for_each_element() -> None:
    import torch

    workload = Workload("", 2, 3, 2, 4, "float32", "add", "uniform", per_element=True)
    assert workload.index_shape == (2, 4, 2) and workload.index_size == 16
    assert workload.floor_bytes == (2 * 12 + 16) * 4 + 8 * 16
    data, index, updates = torch.zeros(2, 3, 2), torch.zeros(2, 4, 2).long(), torch.ones(2, 4, 2)
    index[0, :, 1] = 2
    index[1, 0, 0] = 1
    for form in peers.torch_forms(workload, data, index, updates).values():
        assert form().tolist() == [[[4, 0], [0, 0], [0, 4]], [[3, 4], [1, 0], [0, 0]]]


def test_what_a_policy_costs_is_measured() -> None:
    rows = next(workload for workload in WORKLOADS if workload.name == "rows").scaled(4096)
    for donate in (False, True):
        times = bounds_cost.cost(bounds_cost.calls(rows, "cpu", donate), "cpu")
        assert set(times) == {"trust", "drop", "raise"} and min(times.values()) > 0
