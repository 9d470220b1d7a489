"""What the statements of an implementation work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Signature
from tvm_scatter.problem.sizes import Sizes

from .mailbox import Noted


@dataclass
class Notes:
    """How a scatter tells the host that it has passed over an index.

    Attributes
    ----------
    noted : Noted
        Where the note is left, and where it is said to be final.
    call : expression
        The number of the call, which says so.
    counter : handle
        A number on the GPU by which blocks of one launch count themselves, from zero to zero.
    tell : callable
        Adds a launch that says so.
    final : bool
        Whether something that says so was added.
    """

    noted: Noted
    call: Any
    counter: Any
    tell: Callable[[], None]
    final: bool = False


@dataclass(frozen=True)
class Operands:
    """What :meth:`~tvm_scatter.selection.strategy.Implementation.emit` works on.

    Attributes
    ----------
    problem : ScatterProblem
        The problem.
    signature : Signature
        The shapes behind the buffers.
    target : tvm.target.Target
        What the code is for.
    data : buffer or None
        The input; ``None`` where the problem is in place and ``out`` holds the data already.
    indices : list of buffer
        One for each component, or one for all if the problem is interleaved.
    updates, out : buffer
        The updates and the result. All buffers are one-dimensional, compact and row-major.
    workspace : buffer or None
        ``uint8`` scratch memory of the size that the implementation asked for.
    sizes : Sizes
        Numbers, or int64 expressions for symbolic sizes.
    notes : Notes or None
        Where an index that is passed over is noted, if that is wanted.
    others : tuple of Operands
        Those of further scatters of the same problem, which a GPU's launches compute as well.
    """

    problem: ScatterProblem
    signature: Signature
    target: Any
    data: Any
    indices: Sequence[Any]
    updates: Any
    out: Any
    workspace: Any
    sizes: Sizes
    notes: Notes | None = None
    others: tuple[Operands, ...] = ()

    @property
    def noting(self) -> bool:
        """Whether what resolves an index has to note that it is passed over."""
        return self.notes is not None and not self.notes.final

    def indices_are_seen(self, told: bool = False) -> None:
        """Say that the launches so far have resolved every index: those that follow note none.

        An implementation says so where much follows, which the host then need not wait for.

        Parameters
        ----------
        told : bool
            Whether the last launch itself tells the host.
        """
        if self.noting:
            assert self.notes is not None
            if not told:
                self.notes.tell()
            self.notes.final = True
