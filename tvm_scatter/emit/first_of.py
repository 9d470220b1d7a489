"""Code of which conditions at run time choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tvm.tirx.script import builder as T


def emit_first(choices: Sequence[tuple[Any, Callable[[], None]]], last: Callable[[], None]) -> None:
    """Emit the first of some code whose condition holds at run time, or the last if none does."""
    with ExitStack() as otherwise:
        for condition, emit in choices:
            otherwise.enter_context(T.If(condition))
            with T.Then():
                emit()
            otherwise.enter_context(T.Else())
        last()
