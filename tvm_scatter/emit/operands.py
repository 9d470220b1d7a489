"""What the statements of an implementation work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Signature
from tvm_scatter.problem.sizes import Sizes

from .drop_signal import DropSignal


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
    drop_signal : DropSignal or None
        How the host is told that an update was dropped, if it is to know.
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
    drop_signal: DropSignal | None = None
    others: tuple[Operands, ...] = ()
