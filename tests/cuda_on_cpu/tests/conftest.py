"""The device that these tests are of, whatever the tests around them do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .. import enable, schedule

enable()

SCHEDULES = [("forward", 0), ("reversed", 0), ("shuffled", 1), ("shuffled", 2), ("eager", 0)]


@pytest.fixture(params=SCHEDULES, ids=lambda s: f"{s[0]}{s[1] or ''}")
def any_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """Threads and blocks in each of the orders."""
    order, seed = request.param
    with schedule(threads=order, blocks=order, seed=seed):
        yield
