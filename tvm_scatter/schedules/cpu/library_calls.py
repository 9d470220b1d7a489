"""Which tensors a CPU stores so that no function of a library is called twice for an element.

LLVM unites arithmetic that stands twice, but not calls of functions that it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import tvm

from tvm_scatter.emit.computed_updates import function_name, loads_of
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.emit.stored_between import Step

#: Functions that LLVM has instructions or intrinsics for, and TVM steps of arithmetic. It unites
#: two that are computed of the same; other functions are calls of a library.
_UNITED = frozenset(
    (
        *("exp", "exp2", "log", "log2", "log10", "sqrt", "rsqrt", "pow", "sin", "cos", "tan"),
        *("tanh", "sigmoid", "fabs", "floor", "ceil", "trunc", "round", "nearbyint", "fma"),
        *("isnan", "isinf", "isfinite", "if_then_else", "reinterpret", "likely", "popcount"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"),
    )
)
#: Those of which TVM makes steps that read what they are given several times.
_STEPS = frozenset(("tanh", "sigmoid"))


def called_again(steps: Mapping[Any, Step], bodies: Mapping[Any, Any]) -> set[Any]:
    """The buffers to store because functions of a library would be called for them repeatedly.

    Parameters
    ----------
    steps : mapping of buffer to Step
        In the order in which they are computed.
    bodies : mapping of buffer to statement
        What computes each.
    """
    reads = _reads(bodies.values())
    calls: set[Any] = set()
    found: set[Any] = set()
    for buffer, step in steps.items():
        again = any(operand in calls for operand in step.operands)
        if not (again or _calls_library(bodies[buffer])) or step.is_stored:
            continue
        if reads[buffer] > 1:
            found.add(buffer)
        else:
            calls.add(buffer)
    return found


def _calls_library(body: Any) -> bool:
    return any(function_name(call) not in _UNITED for call in all_of(body, tvm.ir.Call))


def _reads(bodies: Iterable[Any]) -> Counter[Any]:
    """How often each buffer is read, twice where steps of arithmetic read it several times."""
    found: Counter[Any] = Counter()
    for body in bodies:
        steps = [call for call in all_of(body, tvm.ir.Call) if function_name(call) in _STEPS]
        found.update(load.source for part in (body, *steps) for load in loads_of(part))
    return found
