"""The simulated device stands alone: one entry to it, nothing of this repository in it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cuda_on_cpu
import pytest

TESTS = Path(__file__).resolve().parent
ROOM = TESTS / "cuda_on_cpu"
#: What a project that takes the folder has to have; the second is for the folder's own tests.
NEEDS = {*sys.stdlib_module_names, "tvm", "tvm_ffi"}
TESTS_NEED = {*NEEDS, "ml_dtypes", "numpy", "pytest"}


def imports(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """How relative, from where and what a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", [alias.name for alias in node.names]


def test_it_is_entered_by_one_module() -> None:
    outside = [path for path in TESTS.rglob("*.py") if ROOM not in path.parents]
    assert len(outside) > 50
    for path in outside:
        for level, module, names in imports(path):
            assert level or not module.startswith("cuda_on_cpu."), f"{path} imports {module}"
            if module == "cuda_on_cpu":
                assert {*names} <= {*cuda_on_cpu.__all__}, path


def test_the_entry_is_all_of_functions_and_classes() -> None:
    for name in cuda_on_cpu.__all__:
        assert callable(getattr(cuda_on_cpu, name))


@pytest.mark.parametrize("path", sorted(ROOM.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOM)))
def test_it_imports_nothing_from_outside(path: Path) -> None:
    allowed = TESTS_NEED if ROOM / "tests" in path.parents else NEEDS
    depth = len(path.relative_to(ROOM).parts)
    for level, module, _ in imports(path):
        assert level <= depth, f"{path} imports from beside the folder"
        assert level or module.split(".")[0] in allowed, f"{path} imports {module}"


@pytest.mark.exhaustive
def test_it_works_in_another_project(tmp_path: Path) -> None:
    """A copy of the folder and the README's two files are all that it takes."""
    ignored = shutil.ignore_patterns("__pycache__", "tests")
    shutil.copytree(ROOM, tmp_path / "cuda_on_cpu", ignore=ignored)
    files = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", (ROOM / "README.md").read_text(), re.S)
    assert [name for name, _ in files] == ["conftest.py", "test_kernel.py"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert re.search(r"^\d+ (passed|skipped)", finished.stdout, re.MULTILINE), finished.stdout
