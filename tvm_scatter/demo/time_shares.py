"""Where the time of a compiled model goes: its products, gathers, scatters, and the rest."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import tvm
from tvm import relax

_RUNS = 5
#: Words in the names of functions by which a kind is known; a fused function has several names.
_KINDS = {
    "scatters": ("scatter_", "check_indices"),
    "products": ("matmul", "grouped_product"),
    "gathers": ("index", "take", "gather", "embedding", "select"),
}


def time_shares(executable: Any, inputs: tuple[Any, ...]) -> dict[str, float]:
    """The part of the time on this CPU that each kind of function takes, in the fastest of runs.

    Parameters
    ----------
    executable : tvm.runtime.Executable
        A model that was compiled for this CPU.
    inputs : tuple of torch.Tensor
        Its inputs.

    Returns
    -------
    shares : dict of str to float
        For ``"products"``, ``"gathers"``, ``"scatters"`` and ``"rest"``, a number from 0 to 1.
    """
    machine = relax.VirtualMachine(executable, tvm.cpu())
    spent: defaultdict[str, float] = defaultdict(float)
    began: list[float] = []

    def instrument(_function: Any, name: str, before: bool, *_more: Any) -> int:
        if before:
            began.append(time.perf_counter())
        else:
            spent[kind_of(name)] += time.perf_counter() - began.pop()
        return 0

    machine.set_instrument(instrument)
    tensors = [tvm.runtime.tensor(tensor.numpy()) for tensor in inputs]
    runs = []
    for _ in range(_RUNS):
        spent.clear()
        machine["main"](*tensors)
        runs.append(dict(spent))
    best = min(runs, key=lambda run: sum(run.values()))
    total = sum(best.values())
    return {kind: best.get(kind, 0.0) / total for kind in (*_KINDS, "rest")}


def kind_of(name: str) -> str:
    """The kind of a function of a compiled model, by its name."""
    return next((kind for kind, words in _KINDS.items() if any(w in name for w in words)), "rest")
