"""What the README shows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tvm_scatter

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
IMPLEMENTATIONS = (ROOT / "docs" / "implementations.md").read_text(encoding="utf-8")
OPERATORS = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")


def test_the_table_names_every_implementation():
    row = r"^\| (llvm|cuda) \| `(\w+)` \|.*\| (yes|no) \|$"
    rows = re.findall(row, IMPLEMENTATIONS, re.MULTILINE)
    named = {(kind, name): promise == "yes" for kind, name, promise in rows}
    registered = {
        (kind, name): implementation.deterministic
        for kind in ("llvm", "cuda")
        for name, implementation in tvm_scatter.strategy_for(kind).implementations.items()
    }
    assert named == registered


def test_it_counts_the_implementations():
    strategies = [tvm_scatter.strategy_for(kind) for kind in ("llvm", "cuda")]
    count = sum(len(strategy.implementations) for strategy in strategies)
    assert count == 26 and "there are twenty-six implementations" in README


def test_the_example_runs(capsys, monkeypatch):
    pytest.importorskip("torch")
    example = next(
        block
        for block in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
        if "class Messages" in block
    )
    exec(compile(example, "README.md", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    shown = next(
        block
        for block in re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
        if "= index_add [cuda]" in block
    )
    assert printed == shown


def test_the_table_names_every_operator_that_writes():
    pytest.importorskip("torch")
    from tvm_scatter.importers.torch.converters import WRITERS

    row = re.search(r"^\| PyTorch \|(.*)\|$", OPERATORS, re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", row[1])) - {"reduce", "None", "accumulate", "forward"}
    assert named == {name.split(".")[0] for name in WRITERS} - {"_unsafe_index_put"}


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("tuning/notes/*.md")]
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)
