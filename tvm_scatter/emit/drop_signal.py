"""The drop signal: how a scatter tells the host that it has dropped an update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .mailbox import DropMailbox


@dataclass
class DropSignal:
    """How a scatter tells the host that it has dropped an update.

    Attributes
    ----------
    mailbox : DropMailbox
        Where the signal is left, and where a flag says that it is final.
    call : expression
        The number of the call, which the flag is set to.
    counter : handle
        A number on the GPU by which blocks of one launch count themselves, from zero to zero.
    complete : callable
        Adds a launch that raises the flag.
    is_complete : bool
        Whether something that raises the flag was added.
    """

    mailbox: DropMailbox
    call: Any
    counter: Any
    complete: Callable[[], None]
    is_complete: bool = False


#: Makes a signal of two tensors that a PrimFunc takes as bare handles: the counter, the mailbox.
MakeSignal = Callable[[Any, Any], DropSignal]
