"""One launch that orders few updates by destination: each block owns some of the places."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, ceil_div
from tvm_scatter.selection.work import Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit
from tvm_scatter.strategies.cuda.machines import multiprocessors

from . import owned_lists
from .order_forms import OrderedLists, OrderForm, all_of

_THREADS = device_constant("owner_order", "kOwnerOrderThreads")
#: The most updates, which all blocks look through, by what lists of so many leave of shared memory.
_MOST_ITEMS = (1 << 14, 1 << 13, 1 << 11)
#: The most places of a block.
_MOST_EACH = 512
#: Cycles that a block takes to look at an update with each of its threads.
_LOOK_CYCLES = 250.0
#: Bytes of static shared memory, at most.
_STATIC_BYTES = 512


def _takes(problem: ScatterProblem, sizes: Sizes, target: Any) -> Any:
    most = _most_items(shared_memory_limit(target))
    if most == 0:
        return False
    places = _MOST_EACH * multiprocessors(target) - 1
    return all_of(sizes.items <= most, sizes.destinations <= places)


def _most_items(shared_bytes: int) -> int:
    """The most updates whose lists a block has room for, with so much shared memory."""
    limit = shared_bytes - _STATIC_BYTES
    fits = (n for n in _MOST_ITEMS if owned_lists.shared_bytes(n, _MOST_EACH, _THREADS) <= limit)
    return next(fits, 0)


def _emit(operands: Operands, lists: OrderedLists) -> None:
    sizes, static = operands.sizes, operands.problem.is_static
    places = sizes.destinations + 1
    each = at_least(ceil_div(places, multiprocessors(operands.target)), 1)
    limit = shared_memory_limit(operands.target)
    items, rows = (sizes.items, each) if static else (_most_items(limit), _MOST_EACH)
    launch(
        operands,
        ("owner_order",),
        f"{lists.declarations}  order_by_owners<P, {owned_lists.ahead(items, _THREADS)}>"
        f"({lists.permutation}, {lists.offsets}, indices, sizes, uint32(each), shared);",
        ceil_div(places, each),
        _THREADS,
        {**lists.arguments, "each": ("long long", each)},
        owned_lists.shared_bytes(items, rows, _THREADS),
        resolves_every_index=True,
        narrow=True,
        overlaps=True,
        static_bytes=_STATIC_BYTES,
    )


def _time(work: Work) -> tuple[Any, Any] | None:
    places = _MOST_EACH * work.machine.multiprocessors - 1
    if work.items > _most_items(work.machine.shared_bytes) or work.destinations > places:
        return None
    return 1, work.cycles(work.items / _THREADS * _LOOK_CYCLES)


FORM = OrderForm("owners", _takes, lambda problem, sizes, target: 0, _emit, _time)
