"""The wheel holds everything, and what is installed imports from anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("tvm_scatter", "strategies", "tuning")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("setuptools")
    source = tmp_path_factory.mktemp("source")
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name)
    wheels = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", wheels, source], check=True, timeout=300)
    (path,) = wheels.glob("*.whl")
    return path


def sources():
    """Every file of the packages, by its place in the wheel."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            if not path.is_file() or "__pycache__" in parts or path.suffix == ".pyc":
                continue
            # Results of benchmarks are for readers of the repository.
            if parts[:2] == ("tuning", "results"):
                continue
            inside = parts if folder == "tvm_scatter" else ("tvm_scatter", *parts)
            yield "/".join(inside), path


def test_wheel_holds_every_module_and_data_file(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    suffixes = (".py", ".json", ".cuh", ".typed", ".xz")
    packed = {name for name, path in sources() if path.suffix in suffixes}
    assert packed <= names
    top = {name.split("/")[0] for name in names}
    assert top == {"tvm_scatter", f"tvm_scatter-{wheel.name.split('-')[1]}.dist-info"}


_IMPORTS = """
import tvm_scatter, tvm_scatter.strategies, tvm_scatter.tuning
import tvm_scatter.strategies.cuda.sequential
print(tvm_scatter.__file__)
assert tvm_scatter.strategy_for("cuda").implementations
"""


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.parametrize("where", ["elsewhere", "repository"])
@pytest.mark.turns(2)
def test_installed_wheel_imports(wheel, where, tmp_path):
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    folder = tmp_path if where == "elsewhere" else ROOT
    paths = os.pathsep.join([str(installed), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": paths}
    # -P: the current folder is not searched first, as for an installed command.
    command = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-c", _IMPORTS]
    finished = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    if sys.version_info >= (3, 11):
        assert finished.stdout.startswith(str(installed))


def test_checkout_imports_from_its_root(monkeypatch, request):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    request.getfixturevalue("quick_processes")
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True, cwd=ROOT, timeout=120)
