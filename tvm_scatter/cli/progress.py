"""Shows the progress of long commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class Progress:
    """Steps of a longer piece of work, on standard error.

    A terminal shows the current step and how long the work has taken; anything else gets a line
    for each step.
    """

    def __init__(self) -> None:
        # A duplicate of the descriptor, which still works while libraries are silenced. File names
        # may be undecodable.
        file = os.fdopen(os.dup(2), "w", errors="backslashreplace")
        self._console = Console(file=file, highlight=False, markup=False)
        self._status = self._console.status("") if self._console.is_terminal else None

    def step(self, text: str) -> None:
        """Show the step that begins now."""
        if self._status is None:
            self._console.print(text, soft_wrap=True)
        else:
            self._status.update(text)

    @contextmanager
    def shown(self) -> Iterator[Progress]:
        """Show the steps until the end of the block."""
        if self._status is None:
            yield self
            return
        with self._status:
            yield self


@contextmanager
def progress() -> Iterator[Progress]:
    """Show the steps of a block, each announced by :meth:`Progress.step`."""
    with Progress().shown() as shown:
        yield shown
