"""Records what the passes did; :func:`tvm_scatter.explain` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """One change that a pass made.

    Attributes
    ----------
    switch : str
        The option that switches this pass off; where none does, what is computed.
    where : str
        The function and the variable that were changed, such as ``main.lv``.
    text : str
        What changed, as a clause that follows ``where``.
    """

    switch: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.switch}: {self.where} {self.text}"


_CURRENT: ContextVar[list[Note] | None] = ContextVar("tvm_scatter_notes", default=None)


def note(switch: str, where: str, text: str) -> None:
    """Record a change. Outside of :func:`collected_notes` this does nothing."""
    notes = _CURRENT.get()
    if notes is not None:
        notes.append(Note(switch, where, text))


@contextmanager
def collected_notes() -> Iterator[list[Note]]:
    """The notes that passes record inside the ``with`` block."""
    notes: list[Note] = []
    token = _CURRENT.set(notes)
    try:
        yield notes
    finally:
        _CURRENT.reset(token)
