"""The option ``measure``: predictions that are too close are settled on the device, once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from harness import relax_function, target_of
from tvm import relax
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from tvm_scatter import explain, options
from tvm_scatter.errors import ScatterWarning
from tvm_scatter.ops.operators import index_put
from tvm_scatter.options import Options
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection import measuring, strategy
from tvm_scatter.selection.user_folder import FOLDER
from tvm_scatter.tuning.measure import device_time, here
from tvm_scatter.tuning.search import settle
from tvm_scatter.tuning.space.candidates import need_strategy
from tvm_scatter.tuning.space.grid import problem
from tvm_scatter.tuning.store.database import read_database

LLVM = Target("llvm")
POSED = problem(300, 8, 2000)
MEASURE = Options(measure=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(FOLDER, str(tmp_path / "data"))
    # All that have a cost are too close.
    monkeypatch.setattr(strategy, "ratio_error", lambda _kind: 1e9)
    monkeypatch.setitem(device_time.FLUSH_BYTES, "cuda", 1 << 16)
    yield tmp_path / "data" / "measured"
    measuring._given_up.clear()


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is timed, as it is."""
    seen: list[Any] = []

    def record(*arguments: Any) -> Any:
        seen.append(arguments)
        return here.times_here(*arguments)

    monkeypatch.setattr(settle, "times_here", record)
    return seen


def test_the_fastest_is_chosen_and_remembered(device: str, folder: Path, timed: list[Any]) -> None:
    target, table = target_of(device), need_strategy(target_of(device))
    asked = Options(measure=True, shipped_log=False)
    selection = table.select(POSED, target, asked)
    (kept,) = folder.iterdir()
    records = list(read_database(kept).records())
    candidates = timed[0][2]
    assert 2 <= len(candidates) <= 3
    assert len(records) == 2 * len(candidates)
    assert selection.source == "tuned" and "measured here" in selection.reason
    assert selection.implementation.name in {each.implementation for each in candidates}
    assert list(selection.predictions)[: len(candidates)] == [c.implementation for c in candidates]
    # Once: also by another program, which has the files only.
    again = table.select(POSED, target, asked)
    assert len(timed) == 1
    assert (again.branches, again.reason) == (selection.branches, selection.reason)
    # The records are a log like any other.
    assert ms.database.JSONDatabase(work_dir=str(kept)).get_all_tuning_records()


def test_it_is_off_by_default(folder: Path, timed: list[Any]) -> None:
    table = need_strategy(LLVM)
    table.select(POSED, LLVM, MEASURE)
    assert table.select(POSED, LLVM).source == "default"
    assert len(timed) == 1


def test_nothing_is_measured_without_need(
    timed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = need_strategy(LLVM)
    elsewhere = Target({"kind": "llvm", "mcpu": "cortex-a53", "mtriple": "aarch64-linux-gnu"})
    assert table.select(POSED, elsewhere, MEASURE).source == "default"
    symbolic = replace(POSED, count=SymbolicSize(1, ("n",)))
    assert table.select(symbolic, LLVM, MEASURE).source == "default"
    assert table.select(problem(1 << 20, 256, 1), LLVM, MEASURE).source == "default"
    forced = Options("sequential", measure=True)
    assert table.select(POSED, LLVM, forced).source == "forced"
    monkeypatch.setattr(strategy, "ratio_error", lambda _kind: 1.0)
    assert table.select(POSED, LLVM, MEASURE).source == "default"
    assert not timed


def test_what_cannot_be_measured_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fail(*arguments: Any) -> Any:
        tried.append(arguments)
        raise MemoryError("no memory left")

    monkeypatch.setattr(settle, "times_here", fail)
    table = need_strategy(LLVM)
    with pytest.warns(ScatterWarning, match="is not measured: no memory left; the prediction"):
        assert table.select(POSED, LLVM, MEASURE).source == "default"
    assert table.select(POSED, LLVM, MEASURE).source == "default"
    assert len(tried) == 1


@pytest.mark.filterwarnings("ignore::tvm_scatter.errors.ScatterWarning")
def test_a_damaged_folder_does_no_harm(folder: Path) -> None:
    table = need_strategy(LLVM)
    table.select(POSED, LLVM, MEASURE)
    (kept,) = folder.iterdir()
    for name in ("database_tuning_record.json", "database_workload.json", "metadata.json"):
        text = (kept / name).read_text()
        (kept / name).write_text("[0,")
        measuring._given_up.clear()
        assert table.select(POSED, LLVM, MEASURE).source in ("tuned", "default")
        (kept / name).write_text(text)
    shutil.rmtree(kept)
    kept.write_text("a file")
    measuring._given_up.clear()
    assert table.select(POSED, LLVM, MEASURE).source == "default"


def test_a_model_is_compiled_with_it(folder: Path, timed: list[Any]) -> None:
    """Measuring inside of a pass, under a context and a database of the caller."""
    builder = relax.BlockBuilder()
    arrays = [np.zeros((90, 4), "float32"), np.arange(500) % 90, np.ones((500, 4), "float32")]
    relax_function(builder, "main", lambda d, i, u: index_put(d, [i], u, reduction="add"), arrays)
    mod = builder.get()
    with (
        options(measure=True),
        tvm.transform.PassContext(opt_level=3),
        ms.database.MemoryDatabase(),
    ):
        assert explain(mod, LLVM)[0].source == "tuned"
        executable = tvm.compile(mod, target=LLVM)
    assert len(timed) == 1
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](
        *map(tvm.runtime.tensor, arrays)
    ).numpy()
    np.testing.assert_array_equal(result[:, 0], np.bincount(np.arange(500) % 90, minlength=90))
