"""Plants a bug in a copy of the repository and runs the tests that must find it."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_FOLDERS = ("tvm_scatter", "strategies", "tuning", "tests")
#: Seconds in which the tests of one bug are over, or it has made them hang.
_PATIENCE = 900
#: What pytest returns where tests have failed, and where all of them have passed.
_FAILED, _PASSED = 1, 0


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Attributes
    ----------
    name : str
        What is wrong.
    file : str
        Where, from the root of the repository.
    old, new : str
        The right text, which stands there exactly once, and the wrong one.
    tests : tuple of str
        Names of tests as pytest takes them, of which one at least must fail.
    survives : str
        Why no test fails, where none can.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def digest(self, root: Path) -> str:
        """Changes with the bug, with its file and with the files of its tests."""
        files = sorted({self.file, *(test.split("::")[0] for test in self.tests)})
        text = repr(astuple(self)) + "".join((root / file).read_text() for file in files)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Outcome:
    """The test that found a bug first, or nothing if none has."""

    killer: str


class Copy:
    """A copy of the repository, which the package is imported from.

    Parameters
    ----------
    folder : Path
        An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__", "fuzz_cases")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        for path in ROOT.glob("*.*"):
            if path.is_file():
                shutil.copy(path, folder)
        # As the installed package has them, so that nothing is taken from an installation.
        for name in ("strategies", "tuning"):
            (folder / "tvm_scatter" / name).symlink_to(Path("..") / name)
        by_content = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder, quiet=1, invalidation_mode=by_content)
        self._check_imports()
        self._server = subprocess.Popen(
            [sys.executable, str(folder / "tests" / "mutation_server.py"), str(_PATIENCE)],
            cwd=folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, mutant: Mutant) -> Outcome:
        """Plant a bug, run its tests, and take the bug out again."""
        path = self.folder / mutant.file
        right = path.read_text(encoding="utf-8")
        assert right.count(mutant.old) == 1, f"{mutant.file} has changed"
        path.write_text(right.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            return self.test(mutant.tests)
        finally:
            path.write_text(right, encoding="utf-8")

    def test(self, tests: tuple[str, ...]) -> Outcome:
        """Run tests until one fails."""
        output = self.folder / "output.txt"
        arguments = ["-n", "0", "-x", "-q", "-rf", "-m", "", "-p", "no:cacheprovider", *tests]
        assert self._server.stdin and self._server.stdout
        print(json.dumps([str(output), arguments]), file=self._server.stdin, flush=True)
        returned = int(self._server.stdout.readline())
        text = output.read_text(encoding="utf-8", errors="replace")
        if returned < 0:
            return Outcome(f"the process ends with {returned}")
        assert returned in (_FAILED, _PASSED), text[-3000:]
        if returned == _PASSED:
            assert re.search(r"\b[1-9]\d* passed", text), "no test has run"
            return Outcome("")
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text, re.MULTILINE)
        return Outcome(failed[1] if failed else "they hang")

    def close(self) -> None:
        """Stop what runs the tests."""
        self._server.communicate()

    def _check_imports(self) -> None:
        code = "import tvm_scatter, tvm_scatter.strategies, tvm_scatter.tuning as t, json;"
        code += "print(json.dumps([m.__file__ for m in (tvm_scatter, tvm_scatter.strategies, t)]))"
        output = subprocess.check_output(
            [sys.executable, "-c", code], cwd="/", env=self._environment(), text=True
        )
        for file in json.loads(output.splitlines()[-1]):
            assert Path(file).is_relative_to(self.folder), f"{file} is not of the copy"

    def _environment(self) -> dict[str, str]:
        # What Python compiles by itself it knows by time and size, which two versions may share.
        changes = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        inherited = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
        return {**inherited, **changes}
