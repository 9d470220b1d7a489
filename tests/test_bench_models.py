"""The benchmark of models: its rows are right, and a run that is cut off goes on where it was."""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch
import tvm
from cuda_cases import cuda_target
from cuda_on_cpu import status
from harness import compiled_with, device_of, orders

import tvm_scatter
from tvm_scatter import ScatterError
from tvm_scatter.cli import main
from tvm_scatter.selection.targets import gpu_target
from tvm_scatter.strategies.cuda.steps import segments
from tvm_scatter.tuning.bench import bench
from tvm_scatter.tuning.bench.models import applications, report, run, timing
from tvm_scatter.tuning.bench.models.case import Case
from tvm_scatter.tuning.bench.models.check import reference
from tvm_scatter.tuning.bench.models.figures import COMPILE, Figures, Report
from tvm_scatter.tuning.bench.models.graph import Size
from tvm_scatter.tuning.bench.models.layers import LAYERS, two_layers
from tvm_scatter.tuning.bench.models.ours import OPTIONS, compiled, imported
from tvm_scatter.tuning.bench.models.rows import picked, rows

SMALL = 4000
ROWS = {row.name: row for row in rows(SMALL)}
#: Of each kind one, and all types and distributions in some.
SOME = (
    "weighted sum, float32, uniform, degree 3",
    "sum, bfloat16, zipf(1.2), degree 10",
    "mean, float32, zipf(1.2), degree 3",
    "max, float32, uniform, degree 10",
    "EdgeConv, max, float32, zipf(1.2), degree 50",
    "GAT softmax, float32, uniform, degree 10",
    "GATv2 softmax, bfloat16, zipf(1.2), degree 3",
    "embedding bag, zipf(1.2), float32",
    "image splat, float32",
    "lift-splat, float32",
    "MoE combine, bfloat16",
    "data set PPI, 121 features, weighted sum, bfloat16, zipf(1.2)",
    "GIN, two layers",
)
FACTS = {
    **{"device": "a GPU", "threads": 2, "caches": "cold", "scale": 1, "copy_bytes_per_us": 1e6},
    **{"tvm": "0.27", "torch": "2.11"},
}


#: The scatters of whole models on a GPU: what they reduce by, and whether a softmax is part of it.
SCATTERS = {
    "GCN": [("add", False)] * 3,  # the first counts edges
    "SAGE": [("mean", False)] * 2,
    "GIN": [("add", False)] * 2,
    "GAT": [("add", True)] * 2,
    "GATv2": [("add", True)] * 2,
    "EdgeConv": [("max", False)] * 2,
    "TransformerConv": [("add", True)] * 2,
}


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the benchmark sets, the other tests of this process shall not find.
    for name in ("TVM_NUM_THREADS", "TVM_BIND_THREADS"):
        monkeypatch.setenv(name, "1")


@pytest.mark.parametrize("name", SOME)
@pytest.mark.turns(4)
def test_ours_and_peers_are_right(name: str) -> None:
    case = ROWS[name].make()
    wanted = reference(case)
    made = compiled(imported(case), tvm.target.Target("llvm"), "fused")
    wanted.check("ours", made.on(case.inputs)())
    assert made.planned_bytes(case.inputs) >= wanted.result.numel() * 2
    with torch.no_grad():
        wanted.check("PyTorch", case.module(*case.inputs))
        for peer, maker in case.prepared.items():
            try:
                found = maker(*case.inputs)()
            except RuntimeError as refusal:
                # PyTorch on CPUs has no such product of this type.
                assert "bfloat16" in name or "BFloat16" in str(refusal), peer
                continue
            wanted.check(peer, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wide_image_is_splat_right(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where float32 has few bits left for the part of a pixel."""
    monkeypatch.setattr(applications, "_CHANNELS", 1)
    case = applications.splat(dtype, 1)
    with torch.no_grad():
        reference(case).check("PyTorch", case.module(*case.inputs))


def test_a_wrong_result_is_found() -> None:
    case = ROWS[SOME[0]].make()
    wanted = reference(case)
    found = case.module(*case.inputs)
    found[3, 5] += 0.1
    with pytest.raises(ScatterError, match=r"ours is wrong: 1 of 3200 numbers, by up to 0\.1"):
        wanted.check("ours", found)
    with pytest.raises(ScatterError, match=r"is of the shape \(2, 128\) instead of \(25, 128\)"):
        wanted.check("ours", found[:2])


def test_rows_that_are_alike_have_equal_shapes() -> None:
    shapes: dict[str, Any] = {}
    for row in ROWS.values():
        if "Cora's" in row.name or row.is_model:
            continue
        found = [each.shape for each in row.make().inputs]
        assert shapes.setdefault(row.alike, found) == found, row.name


def test_a_pattern_picks_rows() -> None:
    every = list(ROWS.values())
    assert picked(every, "") == every
    names = [row.name for row in picked(every, "gat SOFTMAX*zipf")]
    assert len(names) == 6 and all("GAT softmax" in name and "zipf" in name for name in names)
    assert picked(every, "no such") == []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No form is called more than once to time it."""
    monkeypatch.setattr(bench, "copy_bandwidth", lambda device: 1e4)
    monkeypatch.setattr(timing, "_FEWEST", 1)
    monkeypatch.setattr(timing, "_SECONDS", 0)


def command(*more: str) -> list[str]:
    return ["bench", "--models", "--device", "cpu", "--scale", str(SMALL), *more]


def test_a_run_goes_on(quick: None, tmp_path: Path, capsys: Any) -> None:
    path, markdown, picture = (tmp_path / f"models.{end}" for end in ("json", "md", "png"))
    files = ["--json", str(path), "--markdown", str(markdown), "--plot", str(picture), "--resume"]
    pattern = ["--rows", "max, float32, uniform"]
    assert main(command(*pattern, "--seconds", "0", *files)) == 0
    assert "3 rows are left: --resume goes on with them." in capsys.readouterr().out
    assert main(command("--rows", "max, float32, uniform, degree 3", *files)) == 0
    names = [row["name"] for row in json.loads(path.read_text())["rows"]]
    assert names == ["max, float32, uniform, degree 3"]
    assert main(command("--rows", "GIN", *files)) == 0
    rows = json.loads(path.read_text())["rows"]
    assert [row["name"] for row in rows] == ["GIN, two layers", *names]
    assert set(rows[0]["ours"]) == {"default", "fused"} == set(rows[0]["shares"])
    assert set(rows[0]["products"]) == {"default", "fused", *rows[0]["peers"]}
    text = markdown.read_text()
    assert "| max, float32, uniform, degree 3* |" in text and "| GIN, two layers | torch |" in text
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8", True),
        ("fused_matmul_add_relu_kernel", True),
        ("aten::addmm", True),
        # Inductor names what follows a product after it.
        ("triton_poi_fused_add_addmm_relu_6", False),
        (
            "triton_poi_fused_addmm_expand_index_select_relu_scatter_add_view_3",
            False,
        ),
        ("scatter_add_ordered_kernel_4", False),
    ],
)
def test_what_is_a_product(name: str, product: bool) -> None:
    assert timing.is_product(name) == product


def test_a_form_waits_for_the_threads_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a thread may get no core for as long as a look takes by default.
    monkeypatch.setattr(timing, "_PAUSE", 0.05)
    ended = []

    def work() -> None:
        until = time.perf_counter() + 0.1
        while time.perf_counter() < until:
            pass
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    timing.wait_until_idle()
    assert ended == [True]
    thread.join()


def test_nobody_waits_for_a_thread_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: float(next(seconds)))
    begin = time.perf_counter()
    timing.wait_until_idle()
    assert time.perf_counter() - begin > 0.4


@pytest.mark.gpu
def test_products_and_kinds_of_kernels_are_told() -> None:
    row = ROWS["GIN, two layers"]
    [figures] = run.run([row], "cuda", gpu_target(), ["default"], False, 1e6)
    assert 0 < figures.products["default"] < figures.ours["default"]
    assert sum(figures.shares["default"].values()) == pytest.approx(1)
    assert figures.shares["default"]["scatters"] > 0


def test_a_form_that_is_wrong_is_told(
    quick: None, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def wrong(case: Case) -> Any:
        right = reference(case)
        right.result[0, 0] += 7
        return right

    monkeypatch.setattr(run, "reference", wrong)
    assert main(command("--rows", "max, float32, uniform, degree 3")) == 1
    assert "ours: fused: bench: max, float32, uniform, degree 3: fused is wrong: 1 of" in (
        capfd.readouterr().err
    )


def test_a_deterministic_form_is_timed_where_it_is_wanted(quick: None, tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    wanted = ["--rows", "weighted sum, float32, zipf(1.2), degree 3", "--deterministic"]
    assert main(command(*wanted, "--json", str(path))) == 0
    [row] = json.loads(path.read_text())["rows"]
    assert list(row["ours"]) == list(OPTIONS)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.turns(3)
def test_sizes_that_vary_are_known_to_nobody(name: str) -> None:
    case = ROWS[name].make()
    parameters = imported(case, dynamic=True)["main"].params[: len(case.inputs)]
    for given, axes in zip(parameters, case.varying, strict=True):
        found = [axis for axis, size in enumerate(given.ty.shape) if not is_constant(size)]
        assert tuple(found) == axes


@pytest.mark.skipif(not status(), reason="no simulated device")
@pytest.mark.parametrize(
    "name",
    [
        "weighted sum, float32, uniform, degree 10",
        "EdgeConv, max, float32, zipf(1.2), degree 10",
        "GAT softmax, float32, uniform, degree 10",
        "GATv2 softmax, float32, zipf(1.2), degree 10",
        "lift-splat, float32",
    ],
)
@pytest.mark.turns(5)
def test_sizes_that_vary_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made for one graph, and run for that and for a larger one."""
    monkeypatch.setattr(segments, "_MANY_TO_CARRY", 1)
    cases = [
        next(row for row in rows(scale) if row.name == name).make() for scale in (SMALL, SMALL // 4)
    ]
    mod = imported(cases[0], dynamic=True)
    machine = compiled_with(mod, "cuda", **OPTIONS["fused"])
    for case in cases:
        wanted = reference(case)
        given = [tvm.runtime.tensor(each.numpy(), device_of("cuda")) for each in case.inputs]
        for _ in orders("cuda"):
            [found] = machine["main"](*given)
            wanted.check(name, torch.from_numpy(found.numpy()))


def is_constant(size: Any) -> bool:
    return isinstance(size, tvm.tirx.IntImm)


@pytest.mark.exhaustive
def test_a_run_with_sizes_that_vary(quick: None, tmp_path: Path, capsys: Any) -> None:
    path, markdown = tmp_path / "models.json", tmp_path / "models.md"
    wanted = ["--rows", "max, float32, *, degree 3", "--dynamic", "--compile"]
    files = ["--json", str(path), "--markdown", str(markdown)]
    assert main(command(*wanted, *files)) == 0
    for row in json.loads(path.read_text())["rows"]:
        assert set(row["ours"]) == {"default", "fused"} and COMPILE in row["peers"]
        assert not row["failed"]
    assert "; sizes known at run time only." in markdown.read_text()
    assert main(command(*files, "--resume")) == 2
    message = "was measured with sizes 'known at run time only', here it is 'constant'"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "--rows", "none"], "no row is called 'none'; there are GCN, SAGE,"),
        (["--models", "--all"], "--all does not go with --models"),
        (["--models", "--filter", "rows"], "--filter does not go with --models"),
        (["--models", "--scale", "0"], "--scale 0 must be at least 1"),
        (["--models", "--resume"], "--resume needs --json FILE"),
        (["--rows", "GAT"], "--rows needs --models"),
        (["--seconds", "5"], "--seconds needs --models"),
        (["--dynamic"], "--dynamic needs --models"),
        (["--models", "--jobs", "0"], "--jobs 0 must be at least 1"),
        (["--models", "--jobs", "2"], "--jobs needs a GPU"),
    ],
)
def test_bad_input_is_told_before_anything_is_timed(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(bench, "machine", lambda device: FACTS)
    monkeypatch.delattr(run, "run")
    assert main(["bench", "--device", "cpu", *arguments]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert message in error


def test_a_summary_says_the_mean_and_the_worst() -> None:
    rows = [
        Figures("a", 2.0, ours={"fused": 4.0}, peers={"torch": 8.0, COMPILE: 16.0}),
        Figures("b", 1.0, ours={"fused": 1.0}, peers={"torch": 9.0, COMPILE: 8.0}),
        Figures("c", ours={"fused": 1.0}, failed={COMPILE: "no"}),
    ]
    made = Report(dict(FACTS), rows)
    assert list(report.summary(made)) == [
        "fused: 4.00x of the best peer (least 2.00, a), 5.66x of torch.compile (least 4.00, a), "
        "at most 2.00x the floor."
    ]
    assert "torch.compile fails on c: no" in report.markdown(made)


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_text('{"machine": {}, "rows": [{"workload": "rows"}]}')
    with pytest.raises(ScatterError, match="is no report of models"):
        Report.load(path)


@pytest.mark.gpu
def test_rows_are_compiled_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    wanted = ["--scale", "100", "--rows", "*, float32, uniform, degree 3", "--json", str(path)]
    assert main(["bench", "--models", "--device", "cuda", "--jobs", "3", *wanted]) == 0
    found = json.loads(path.read_text())["rows"]
    names = [row["name"] for row in found]
    assert names == [row.name for row in picked(rows(100), wanted[3])] and len(names) > 5
    assert all(row["ours"] and row["peers"] for row in found)


@pytest.mark.turns(5)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_libraries_have_no_other_scatters(name: str, dynamic: bool) -> None:
    """A mean, a softmax and their messages are found in what the importer makes of a layer."""
    case = two_layers(name, Size(1000, 10_000, "uniform", 10))
    mod = imported(case, dynamic=dynamic)
    explained = tvm_scatter.explain(mod, cuda_target("sm_90"))
    problems = [each.problem for each in explained]
    assert [(each.reduction, each.softmax) for each in problems] == SCATTERS[name]
    assert sum(each.fused for each in problems) == 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_logits_are_summed_where_they_are_read(dynamic: bool) -> None:
    mod = imported(ROWS["GATv2 softmax, float32, uniform, degree 3"].make(), dynamic=dynamic)
    notes = tvm_scatter.explain(mod, cuda_target("sm_90")).notes
    assert any(
        "computes its updates itself" in str(each) and "sums along rows" in str(each)
        for each in notes
    )
