"""Where the time of a compiled model goes: products, gathers, scatters, orders, and the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import tvm
from tvm import relax

_RUNS = 5
#: Words in the names of functions by which a kind is known; a fused function has several names.
_KINDS = {
    "scatters": ("scatter_", "check_indices"),
    "orders": ("order",),
    "products": ("matmul", "grouped_product"),
    "gathers": ("index", "take", "gather", "embedding", "select"),
}
KINDS = (*_KINDS, "rest")


def time_shares(executable: Any, inputs: Sequence[Any]) -> dict[str, float]:
    """The part of the time on this CPU that each kind of function takes, in the fastest of runs.

    Parameters
    ----------
    executable : tvm.runtime.Executable
        A model.
    inputs : sequence of tvm.runtime.Tensor
        Its inputs.

    Returns
    -------
    shares : dict of str to float
        For each of :data:`KINDS`, a number from 0 to 1.
    """
    machine = relax.VirtualMachine(executable, tvm.cpu())
    began: list[float] = []
    spent: list[tuple[str, float]] = []

    def instrument(_function: Any, name: str, before: bool, *_more: Any) -> int:
        if before:
            began.append(time.perf_counter())
        else:
            spent.append((name, time.perf_counter() - began.pop()))
        return 0

    machine.set_instrument(instrument)
    runs = []
    for _ in range(_RUNS):
        spent.clear()
        machine["main"](*inputs)
        runs.append(list(spent))
    return shares_of(min(runs, key=lambda run: sum(seconds for _, seconds in run)))


def shares_of(spent: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The part of each of :data:`KINDS`, from names of functions or kernels and their times."""
    sums = dict.fromkeys(KINDS, 0.0)
    for name, time_of_it in spent:
        sums[kind_of(name)] += time_of_it
    total = sum(sums.values())
    return {kind: each / total for kind, each in sums.items()}


def kind_of(name: str) -> str:
    """The kind of a function of a compiled model, by its name."""
    return next((kind for kind, words in _KINDS.items() if any(w in name for w in words)), "rest")
