"""What the tests count, over all processes: printed at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

Tally = Callable[[str, int], None]


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Add to a count of what was tried, such as ``tally("bad indices", 40)``."""
    return lambda what, count: record_property(f"tally: {what}", count)


def summary(reports: Any) -> list[str]:
    """A line for each count."""
    total: Counter[str] = Counter()
    for report in reports:
        if getattr(report, "when", None) == "call" and report.passed:
            for name, count in report.user_properties:
                if name.startswith("tally: "):
                    total[name.removeprefix("tally: ")] += count
    return [f"{count:>10,} {what}" for what, count in sorted(total.items())]
