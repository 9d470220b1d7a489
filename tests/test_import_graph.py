"""Imports point one way: to the rooms that something is made of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Each room may import those in front of it, and what stands in it itself.
CORE = (
    *("errors", "problem", "options", "emit", "selection", "ops", "bounds", "lowering", "passes"),
    *("fusion", "schedules", "explain", "tasks", "pipelines", "runtime", "tvm_tuner", "importers"),
    "install",
)
TUNING = ("operands", "space", "measure", "store", "search", "bench", "fit", "experiments")
#: Faces that a user meets, and rooms; nothing else stands at the top level.
FACES = ("errors", "options", "install", "pipelines", "explain", "tasks")


def _modules() -> dict[str, Path]:
    """Every module of the package by its dotted name, as it is once installed."""
    found = {}
    for folder, package in (
        ("tvm_scatter", "tvm_scatter"),
        ("strategies", "tvm_scatter.strategies"),
        ("tuning", "tvm_scatter.tuning"),
    ):
        for file in (ROOT / folder).rglob("*.py"):
            parts = [package, *file.relative_to(ROOT / folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


MODULES = _modules()


def _imports(name: str, anywhere: bool = True) -> Iterator[str]:
    """The modules that one imports; those inside of functions and for type checking too."""
    file = MODULES[name]
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*base, *filter(None, [node.module])]) if node.level else node.module
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                imported = inner if inner in MODULES else source
                if imported in MODULES and imported != name:
                    yield imported


def _room(name: str) -> str:
    """The first part of a module's name inside of the package."""
    return name.split(".")[1] if "." in name else ""


def test_no_module_imports_itself_by_way_of_others() -> None:
    # The package itself gathers what its rooms offer, and nothing inside may need it.
    graph = {name: {*_imports(name)} for name in MODULES if name != "tvm_scatter"}
    list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("room", CORE)
def test_rooms_import_only_what_they_are_made_of(room: str) -> None:
    allowed = {*CORE[: CORE.index(room) + 1]}
    if room == "install":
        allowed.add("strategies")
    for name in MODULES:
        if _room(name) == room:
            assert {_room(imported) for imported in _imports(name)} <= allowed, name


@pytest.mark.parametrize("room", TUNING)
def test_rooms_of_tuning_import_only_what_they_are_made_of(room: str) -> None:
    allowed = {*TUNING[: TUNING.index(room) + 1]}
    for name in MODULES:
        if name.startswith(f"tvm_scatter.tuning.{room}"):
            tuning = {
                imported.split(".")[2]
                for imported in _imports(name)
                if imported.startswith("tvm_scatter.tuning.")
            }
            assert tuning <= allowed, name


def test_implementations_know_only_what_they_compute() -> None:
    allowed = {"errors", "problem", "emit", "selection", "strategies", "lowering"}
    for name in MODULES:
        if _room(name) == "strategies":
            assert {_room(imported) for imported in _imports(name)} <= allowed, name


def test_every_module_has_a_room() -> None:
    top = {name.split(".")[1] for name in MODULES if name.count(".") == 1}
    packages = {name.split(".")[1] for name in MODULES if name.count(".") > 1}
    assert top - packages <= {*FACES}
    assert len(FACES) <= 10
