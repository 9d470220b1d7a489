"""Wall time: what a caller of compiled code sees.

Caches are as the call before left them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .sampling import Budget, sample, seconds_of

Call = Callable[[], Any]

_CALLS = Budget.exactly(50)


def between_calls(call: Call, synchronize: Call, calls: int = 50, rounds: int = 9) -> list[float]:
    """Seconds of one of many calls that follow each other, a sample a round.

    Nothing waits but what a call itself waits for, until all calls of a round are done.
    """

    def one_round() -> None:
        for _ in range(calls):
            call()
        synchronize()

    return sample(lambda: seconds_of(one_round) / calls, Budget.exactly(rounds))


def to_result(
    call: Call, synchronize: Call, budget: Budget = _CALLS, warm_up: int = 5
) -> list[float]:
    """Seconds of a call and of waiting for its result.

    Parameters
    ----------
    warm_up : int
        Calls before, which nobody times.
    """

    def call_and_wait() -> None:
        call()
        synchronize()

    for _ in range(warm_up):
        call()
    synchronize()
    return sample(lambda: seconds_of(call_and_wait), budget)
