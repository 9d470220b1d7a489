"""One launch that orders few updates by destination, in the shared memory of one block."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, ceil_div
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.target import dynamic_bytes, shared_memory_limit

from .order_forms import OrderedLists, OrderForm, all_of, steps_reached

_THREADS = device_constant("block_order", "kBlockOrderThreads")
_MOST = device_constant("block_order", "kBlockOrderItems")
#: Above, the launches of several blocks take no longer: 10 us for 2 000 updates of 500 places on an
#: H200. With 10 556 of 2 708 one block takes 29, and several 15.
_MOST_ITEMS = 2 * _THREADS
_MOST_PLACES = 4 * _THREADS
_MOST_DIGIT_BITS = 8
#: Bytes of static shared memory, at most.
_STATIC_BYTES = 256


def _shared_bytes(turns: int, bits: int) -> int:
    return turns * _THREADS * 4 + (_THREADS // 32 << bits) * 2


def _takes(problem: ScatterProblem, sizes: Sizes, target: Any) -> Any:
    turns = _turns(sizes) if problem.is_static else _MOST
    needed = _shared_bytes(turns, _MOST_DIGIT_BITS) + _STATIC_BYTES
    if needed > shared_memory_limit(target):
        return False
    return all_of(sizes.items <= _MOST_ITEMS, sizes.destinations <= _MOST_PLACES)


def _turns(sizes: Sizes) -> Any:
    return at_least(ceil_div(sizes.items, _THREADS), 1)


def _emit(operands: Operands, lists: OrderedLists) -> None:
    sizes, static = operands.sizes, operands.problem.is_static
    # A place more than there are, for updates that are dropped.
    bits = steps_reached(sizes.destinations, [1 << bit for bit in range(1, 16)]) + 1
    passes = ceil_div(bits, _MOST_DIGIT_BITS)
    digit = ceil_div(bits, passes) if static else _MOST_DIGIT_BITS
    turns = _turns(sizes) if static else _MOST
    launch(
        operands,
        ("block_order",),
        f"{lists.declarations}  order_in_block<P, {turns}, {digit}>({lists.permutation}, "
        f"{lists.offsets}, indices, sizes, int(turns), int(passes), shared);",
        1,
        _THREADS,
        {
            **lists.arguments,
            "turns": ("long long", _turns(sizes)),
            "passes": ("long long", passes),
        },
        dynamic_bytes(_shared_bytes(turns, digit), _STATIC_BYTES),
        resolves_every_index=True,
        narrow=True,
        overlaps=True,
    )


FORM = OrderForm("block", _takes, lambda problem, sizes: 0, _emit)
