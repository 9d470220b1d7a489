"""The tests find the bugs of :mod:`mutants`, each planted in a copy of the repository.

    MUTANTS_OUTCOMES=outcomes.jsonl pytest -n 0 -m exhaustive tests/test_mutants.py

The file gets a line for each bug with the test that has found it; what stands there already is not
tried again unless the bug, its file or its tests have changed.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from mutants import MUTANTS
from mutation import ROOT, Copy, Mutant, Outcome
from tally import Tally

IDS = [re.sub(r"\W+", "_", mutant.name) for mutant in MUTANTS]


def test_there_are_many() -> None:
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS}) >= 60
    survivors = [mutant for mutant in MUTANTS if mutant.survives]
    assert len(survivors) <= 0.05 * len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_bug_can_be_planted(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1 and mutant.new != mutant.old
    assert mutant.tests
    for test in mutant.tests:
        file, name = test.split("::")
        assert name.split("[")[0] in _functions(file)


@cache
def _functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    found = Copy(tmp_path_factory.mktemp("copy"))
    yield found
    found.close()


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_planted_bug_is_found(mutant: Mutant, copy: Copy, tally: Tally) -> None:
    digest = mutant.digest(copy.folder)
    outcome = _known(digest)
    if outcome is None:
        outcome = copy.run(mutant)
        _keep(mutant, digest, outcome)
    if mutant.survives:
        assert not outcome.killer, f"{outcome.killer} finds it"
        pytest.xfail(mutant.survives)
    assert outcome.killer, f"none of {', '.join(mutant.tests)} finds it"
    tally("planted bugs found", 1)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_without_a_bug_the_same_tests_pass(copy: Copy) -> None:
    tests = tuple(sorted({test for mutant in MUTANTS for test in mutant.tests}))
    assert copy.test(tests) == Outcome("")


def _outcomes() -> Path | None:
    path = os.environ.get("MUTANTS_OUTCOMES")
    return Path(path) if path else None


def _known(digest: str) -> Outcome | None:
    path = _outcomes()
    if path is None or not path.exists():
        return None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    killers = [line["killer"] for line in lines if line["digest"] == digest]
    return Outcome(killers[-1]) if killers else None


def _keep(mutant: Mutant, digest: str, outcome: Outcome) -> None:
    path = _outcomes()
    if path is not None:
        with path.open("a") as file:
            line = {"name": mutant.name, "digest": digest, "killer": outcome.killer}
            file.write(json.dumps(line) + "\n")
