"""The drop signal: how a scatter tells the host that it has dropped an update.

Implementations do not handle it. They only say of each launch whether it resolves every index. From
that follows which launches signal drops, and when the host may look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import frame

from .mailbox import DropMailbox

#: A launch inside of these frames may not run in every call, or may run several times.
_CONDITIONAL = (frame.IfFrame, frame.ForFrame, frame.WhileFrame)


@dataclass
class DropSignal:
    """How the launches of one function tell the host that they have dropped an update.

    At first the signal is open: launches signal drops. The first launch that resolves every index,
    in every call, closes it: a flag tells the host that all drops have been signalled, and later
    launches signal none. If there is no such launch, all launches signal drops, and the end of the
    function closes the signal.

    Attributes
    ----------
    mailbox : DropMailbox
        The words in which drops are signalled, and the flag that says that no more will follow.
    call : expression
        The number of the call: the value that the flag is set to.
    counter : handle
        A number in GPU memory with which the blocks of a launch count how many are done. It is zero
        before and after each launch.
    complete : callable
        Emits a launch that sets the flag.
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
        """Whether it is open, and the next launch runs exactly once in every call."""
        frames = IRBuilder.current().frames
        return self.is_open and not any(isinstance(each, _CONDITIONAL) for each in frames)

    def launched(self, reads_indices: bool, resolves_every_index: bool, completes: bool) -> None:
        """Record a launch; close the signal if this launch allows it.

        Parameters
        ----------
        reads_indices : bool
            Whether it reads indices.
        resolves_every_index : bool
            Whether its threads together resolve every index of the scatter.
        completes : bool
            Whether the launch sets the flag itself.
        """
        self.readers += reads_indices
        if resolves_every_index and self.can_close:
            self.close(completed=completes)

    def close(self, completed: bool = False) -> None:
        """Tell the host that all drops are signalled, unless a launch did so (``completed``)."""
        if self.is_open and not completed:
            self.complete()
        self.is_open = False


#: A function that makes a drop signal from two bare handles of a PrimFunc: counter and mailbox.
MakeSignal = Callable[[Any, Any], DropSignal]
