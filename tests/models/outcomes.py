"""What became of each model of the zoo, as plain data."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm

import tvm_scatter

from .trial import Prepared, load, name_of

#: Seconds that a model may take.
LIMIT = 240
#: Saved models that are judged at a time.
AT_ONCE = min(8, os.cpu_count() or 1)
Outcome = dict[str, Any]


def kept_apart(start: str, function: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Call a function in a process of its own, which may crash or hang.

    Parameters
    ----------
    start : str
        ``"fork"``: what the parent has imported need not be imported again, but the parent must not
        have compiled anything, nor have looked for a GPU. ``"spawn"``: a fresh process.
    """
    context: Any = multiprocessing.get_context(start)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(LIMIT):
            return {"failed": f"no answer in {LIMIT} s"}
        return dict(receiver.recv())
    except EOFError:
        process.join()
        return {"failed": f"the process ended with {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _answer(sender: Any, function: Callable[..., Outcome], arguments: Any) -> None:
    warnings.simplefilter("ignore")
    sender.send(function(*arguments))


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


def on_device(
    folder: Path, tolerances: Mapping[str, float], judge: Callable[..., Outcome]
) -> Iterator[tuple[str, Outcome]]:
    """Judge the saved models of a folder on this machine, several at a time.

    The name and the outcome of each come as soon as they are known, in order.

    Parameters
    ----------
    folder : pathlib.Path
        Has a folder for each model, as :meth:`Prepared.save` writes it.
    tolerances : dict of str to float
        The tolerance of each model by its name.
    judge : callable
        :func:`on_gpu` or :func:`on_llvm`.
    """
    paths = sorted(each for each in folder.iterdir() if each.is_dir())

    def apart(path: Path) -> Outcome:
        return kept_apart("spawn", judge, path, dict(tolerances))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from zip(map(name_of, paths), pool.map(apart, paths), strict=True)


def on_gpu(path: Path, tolerances: Mapping[str, float]) -> Outcome:
    """Judge a saved model on the first GPU."""
    prepared, device = load(path), tvm.cuda(0)
    target = tvm.target.Target.from_device(device)
    return judged(prepared, tolerances[prepared.name], target, device)


def on_llvm(path: Path, tolerances: Mapping[str, float]) -> Outcome:
    """Judge a saved model on the CPU."""
    prepared = load(path)
    return judged(prepared, tolerances[prepared.name], tvm.target.Target("llvm"), tvm.cpu())
