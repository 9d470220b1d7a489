"""What became of each model of the zoo, as plain data."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty
from typing import Any

import tvm

import tvm_scatter

from .trial import Prepared, load

#: Seconds that a model may take.
LIMIT = 240
Outcome = dict[str, Any]


def kept_apart(function: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Call a function in a process of its own, which may crash or hang.

    It is a fork: what the parent has imported need not be imported again. So the parent must not
    have compiled anything, nor have used a GPU.
    """
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()
    process = context.Process(target=_answer, args=(answers, function, arguments))
    process.start()
    try:
        return dict(answers.get(timeout=LIMIT)) if _wait(process, answers) else {"failed": "crash"}
    except Empty:
        return {"failed": f"no answer in {LIMIT} s"}
    finally:
        process.kill()
        process.join()


def _wait(process: Any, answers: Any) -> bool:
    """Wait for an answer; whether the process gave one, or can still give one."""
    for _ in range(LIMIT * 10):
        if not answers.empty():
            return True
        process.join(0.1)
        if not process.is_alive():
            return not answers.empty()
    return True


def _answer(answers: Any, function: Callable[..., Outcome], arguments: Any) -> None:
    warnings.simplefilter("ignore")
    answers.put(function(*arguments))


def tried(step: str, action: Callable[[], Any]) -> tuple[Any, Outcome]:
    """The value of an action, or at which step it failed and why."""
    try:
        return action(), {}
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip()}"
        return None, {"failed": step, "reason": reason[-600:]}


def judged(prepared: Prepared, tolerance: float, target: Any, device: Any) -> Outcome:
    """How a model fares on a device."""
    counts, _ = tried("explain", lambda: tvm_scatter.explain(prepared.module, target))
    outcome: Outcome = {"scatters": _scatters(counts or [])}
    difference, failure = tried("compile or run", lambda: prepared.difference(target, device))
    if failure:
        return outcome | failure
    if difference <= tolerance:
        return outcome | {"difference": difference}
    return outcome | {"failed": "wrong", "difference": difference}


def _scatters(explanations: Any) -> list[list[str]]:
    """The operator and the implementation of each scatter."""
    return [[each.operator, each.implementation or "TVM's own"] for each in explanations]


def on_device(folder: Path, tolerances: Mapping[str, float], device: Any) -> dict[str, Outcome]:
    """Judge the saved models of a folder on a GPU.

    Parameters
    ----------
    folder : pathlib.Path
        Has a folder for each model, as :meth:`Prepared.save` writes it.
    tolerances : dict of str to float
        The tolerance of each model by its name.
    device : tvm.runtime.Device
        Where to run.
    """

    def judge(path: Path) -> Outcome:
        prepared = load(path)
        target = tvm.target.Target.from_device(device)
        tolerance = tolerances[prepared.name]
        return judged(prepared, tolerance, target, device) | {"name": prepared.name}

    found = {}
    for path in sorted(each for each in folder.iterdir() if each.is_dir()):
        outcome = kept_apart(judge, path)
        found[outcome.pop("name", path.name)] = outcome
    return found
