"""The buffers and sizes that the statements of an implementation work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Signature
from tvm_scatter.problem.sizes import Sizes

from .computed_result import ComputedResult
from .drop_signal import DropSignal


@dataclass(frozen=True)
class Operands:
    """The argument of :meth:`~tvm_scatter.selection.strategy.Implementation.emit`.

    Attributes
    ----------
    problem : ScatterProblem
        The problem.
    signature : Signature
        The shapes behind the buffers.
    target : tvm.target.Target
        The target that the code is for.
    data : buffer or None
        The input; ``None`` if the problem is in place, because ``out`` then holds the data.
    indices : list of buffer
        One for each component, or one for all if the problem is interleaved.
    updates, out : buffer
        The updates and the result. All buffers are one-dimensional, compact and row-major. If the
        problem is fused, the updates are :class:`ComputedUpdates`, which are read like a buffer.
    workspace : buffer or None
        ``uint8`` scratch memory of the size that the implementation asked for.
    sizes : Sizes
        Numbers, or int64 expressions for symbolic sizes.
    drop_signal : DropSignal or None
        The signal for dropped updates, or ``None`` if the host need not know of them.
    result : ComputedResult or None
        What is written in place of the scatter's own result; ``None`` if that is.
    ordering : tuple of buffer
        The permutation and the offsets, ``int32``, of :func:`tvm_scatter.order`, those that
        :attr:`ScatterProblem.ordering` names.
    offset_bytes : int or None
        Bytes of a type that holds all positions, if that is known although sizes are symbolic.
    overlaps : bool or None
        Whether a kernel may be launched while the one before it ends, where the target allows it;
        ``None`` if those may that gain by it.
    others : tuple of Operands
        The operands of further scatters of the same problem, computed by the same launches.
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
    ordering: Sequence[Any] = ()
    result: ComputedResult | None = None
    offset_bytes: int | None = None
    overlaps: bool | None = False
    others: tuple[Operands, ...] = ()
