"""The drop signal: how a scatter tells the host that it has dropped an update.

An implementation knows nothing of it. Of each launch it says whether that resolves every index;
from this follows which launches signal drops, and when the host may look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import frame

from .mailbox import DropMailbox

#: Inside of these a launch may run in some calls only, or with other arguments every time.
_CONDITIONAL = (frame.IfFrame, frame.ForFrame, frame.WhileFrame)


@dataclass
class DropSignal:
    """How the launches of one function tell the host that they have dropped an update.

    It is open at first: launches signal drops. The first that resolves every index in each call
    closes it: the host is told that it has heard of all drops, and later launches signal none.
    Where no launch is known to do so, all signal drops, and the end of the function closes it.

    Attributes
    ----------
    mailbox : DropMailbox
        Where drops are signalled, and where a flag says that there will be no more.
    call : expression
        The number of the call, which the flag is set to.
    counter : handle
        A number on the GPU by which blocks of one launch count themselves, from zero to zero.
    complete : callable
        Adds a launch that raises the flag.
    is_open : bool
        Whether the next launch has to signal drops.
    readers : int
        How many of the launches so far have read indices.
    """

    mailbox: DropMailbox
    call: Any
    counter: Any
    complete: Callable[[], None]
    is_open: bool = True
    readers: int = 0

    @property
    def can_close(self) -> bool:
        """Whether what is launched now runs exactly once in every call."""
        frames = IRBuilder.current().frames
        return self.is_open and not any(isinstance(each, _CONDITIONAL) for each in frames)

    def launched(self, reads_indices: bool, resolves_every_index: bool, completes: bool) -> None:
        """Take note of a launch.

        Parameters
        ----------
        completes : bool
            Whether it raises the flag itself.
        """
        self.readers += reads_indices
        if resolves_every_index and self.can_close:
            self.close(completed=completes)

    def close(self, completed: bool = False) -> None:
        """Tell the host that it has heard of all drops, unless a launch has done so."""
        if self.is_open and not completed:
            self.complete()
        self.is_open = False


#: Makes a signal of two tensors that a PrimFunc takes as bare handles: the counter, the mailbox.
MakeSignal = Callable[[Any, Any], DropSignal]
