"""Max pooling that also tells where the maxima are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx

from tvm_scatter.emit.pooled_windows import Pooling, Windows, pooling_function
from tvm_scatter.ops.shapes import SymbolTable

from .shapes import shape_of


def max_pool(
    bb: Any,
    data: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    *,
    ceil_mode: bool,
    across_planes: bool,
) -> tuple[Any, Any]:
    """The maxima of windows, and their positions.

    Parameters
    ----------
    data : relax.Expr
        A tensor whose last axes are pooled: as many as the kernel has, 2 or 3.
    kernel, stride, dilation : sequence of int
        One number for each of these axes.
    padding : sequence of int
        One number for each of these axes, or the numbers before all of them, then those behind.
    ceil_mode : bool
        Whether a last window may lie partly outside.
    across_planes : bool
        Whether positions count all elements of the tensor, not only those of their plane.

    Returns
    -------
    values, positions : relax.Expr
        Tensors of the pooled shape; positions are int64.
    """
    axes, dtype, own = len(kernel), str(data.ty.dtype), shape_of(data)
    plane = relax.Var("plane", relax.TensorType((1, 1, *own[-axes:]), dtype))
    operator = relax.op.nn.max_pool3d if axes == 3 else relax.op.nn.max_pool2d
    # TVM's operator says how many windows there are.
    pool = operator(plane, kernel, stride, padding, dilation, ceil_mode=ceil_mode)
    counts, windows = list(shape_of(bb.normalize(pool))[-axes:]), []
    for i, length in enumerate(own[-axes:]):
        axis = (length, kernel[i], stride[i], dilation[i], padding[i], padding[i - axes])
        if ceil_mode and not isinstance(counts[i], int):
            counts[i] = _count(*axis)
        windows.append(_windows(*axis, ceil_mode))
    pooled = (*own[:-axes], *counts)
    types = [relax.TensorType(pooled, each, data.ty.vdevice) for each in (dtype, "int64")]
    symbols = SymbolTable()
    result = relax.Var("pooled", types[0])
    shape, whole = (symbols.shape("max_pool", each) for each in (data, result))
    pooling = Pooling(dtype, shape, whole[-axes:], windows, across_planes)
    function = bb.add_func(pooling_function(pooling), "max_pool")
    both = bb.emit(relax.op.call_tir(function, [data], types))
    return bb.emit(both[0]), bb.emit(both[1])


def _count(length: Any, size: int, stride: int, dilation: int, before: int, behind: int) -> Any:
    """How many windows begin in the data or in front of it, and the last may reach beyond.

    TVM says it by a choice, which its fusion does not understand.
    """
    space = length + before + behind - dilation * (size - 1) - 1
    whole = tirx.floordiv(space + stride - 1, stride) + 1
    return tirx.min(whole, tirx.floordiv(length + before - 1, stride) + 1)


def _windows(
    length: Any, size: int, stride: int, dilation: int, before: int, behind: int, ceil_mode: bool
) -> Windows:
    """The windows along an axis of some length."""
    # Of no data, or of data that may be none, there may be a window that has only padding.
    fit = before + behind < size and not ceil_mode
    known = isinstance(length, int) and length > 0 and max(before, behind) < size
    have_data = dilation == 1 and (fit or known)
    return Windows(size, stride, dilation, before, ceil_mode or behind > 0, have_data)
