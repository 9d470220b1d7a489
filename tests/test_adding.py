"""The steps of docs/adding-an-implementation.md, followed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import ProblemRunner, assert_same, target_of
from random_problems import draw_operands

from tvm_scatter import Implementation, strategy_for
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.strategies.cuda.codegen import source
from tvm_scatter.tuning.space.grid import problem

PAGE = Path(__file__).parent.parent / "docs" / "adding-an-implementation.md"


def block(language: str) -> str:
    """The block of code of the page in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return str(found)


@pytest.fixture
def pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Implementation]:
    """The implementation of the page, in the table for the while of a test."""
    cuda = Path(str(resources.files("tvm_scatter.strategies.cuda")))
    shutil.copytree(cuda / "device", tmp_path / "device")
    (tmp_path / "device" / "pull.cuh").write_text(block("cpp"))
    monkeypatch.setattr(source, "resources", SimpleNamespace(files=lambda _package: tmp_path))
    names: dict[str, Any] = {"__name__": "pull"}
    exec(compile(block("python"), "pull.py", "exec"), names)
    table = strategy_for("cuda")
    assert table is not None
    entries = list(table._entries)
    (line,) = re.findall(r"`cuda\.(add_implementation\(.*?\))`", PAGE.read_text(encoding="utf-8"))
    eval(f"table.{line}", {"table": table, **names})
    yield table.implementations["pull"]
    table._entries[:] = entries
    source.headers.cache_clear()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"in_place": True},
        {"include_self": False},
        {"reduction": "update", "deterministic": True},
        {"data_dtype": "bfloat16", "reduction": "max"},
    ],
    ids=str,
)
@pytest.mark.each_device
def test_it_is_right(device: str, pull: Implementation, change: dict[str, Any]) -> None:
    if device == "llvm":
        pytest.skip("it is for cuda")
    posed = replace(problem(40, 6, 30), **change)
    runner = ProblemRunner(device)
    runner.add("main", posed, "pull")
    data, indices, updates = draw_operands(posed, seed=1)
    result = runner.run("main", data, indices, updates, in_place=posed.in_place)
    assert_same(result, scatter_reference(posed, data, indices, updates), str(change))


def test_it_competes_by_its_cost(pull: Implementation) -> None:
    """Without a coefficient, a measurement or a GPU."""
    table, target = strategy_for("cuda"), target_of("cuda")
    assert table is not None
    few, many = problem(1000, 1, 1), problem(1000, 1, 1_000_000)
    assert table.default(few, target).implementation is pull
    assert "searches" in table.default(many, target).predictions["pull"].terms
    assert table.default(many, target).implementation is not pull
    assert table.refusal(pull, replace(few, reduction="mean"), target) == "it keeps no counts"
