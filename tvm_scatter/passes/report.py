"""What the passes did, for whoever asks: :func:`tvm_scatter.explain` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """One thing that a pass did.

    Attributes
    ----------
    switch : str
        The option that switches the pass off.
    where : str
        The function and the variable.
    text : str
        One clause.
    """

    switch: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.switch}: {self.where} {self.text}"


_CURRENT: ContextVar[list[Note] | None] = ContextVar("tvm_scatter_notes", default=None)


def note(switch: str, where: str, text: str) -> None:
    """Leave a note; nothing happens where nobody collects them."""
    notes = _CURRENT.get()
    if notes is not None:
        notes.append(Note(switch, where, text))


@contextmanager
def collected_notes() -> Iterator[list[Note]]:
    """The notes that passes leave inside the block."""
    notes: list[Note] = []
    token = _CURRENT.set(notes)
    try:
        yield notes
    finally:
        _CURRENT.reset(token)
