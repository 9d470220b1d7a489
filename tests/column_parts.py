"""Small scatters whose rows are read as those of large tensors are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tvm_scatter.strategies.cuda.steps import listed_rows, segments
from tvm_scatter.strategies.llvm.steps import carried


@contextmanager
def columns_in_parts() -> Iterator[None]:
    """On GPUs all first columns are read before all others; every order carries what it can."""

    def halves(_operands: Any, lanes: int, _vector: int, *_more: Any) -> Any:
        return max(lanes // 2, 1), True

    with (
        mock.patch.object(listed_rows, "lanes_of_parts", halves),
        mock.patch.object(segments, "lanes_of_parts", halves),
        mock.patch.object(segments, "most_parts", lambda width: width),
        mock.patch.object(segments, "_MANY_TO_CARRY", 0),
        mock.patch.object(carried, "_LEAST_ITEMS", 0),
    ):
        yield
