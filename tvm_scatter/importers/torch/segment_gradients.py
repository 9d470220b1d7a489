"""The gradient of reductions of segments, in PyTorch's own operators."""

from __future__ import annotations

from typing import Any

from tvm_scatter.errors import ScatterError


def segment_reduce_backward(
    gradient: Any,
    output: Any,
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    offsets: Any = None,
    axis: int = 0,
    initial: Any = None,
) -> Any:
    """``_segment_reduce_backward`` along the first axis.

    The gradient of a maximum is shared by all elements that are equal to it.
    """
    import torch

    if axis != 0:
        raise ScatterError(f"segment_reduce: the gradient is supported for axis 0; got {axis}.")
    if reduce == "prod":
        raise ScatterError(
            "segment_reduce: the gradient of 'prod' is not supported; use 'sum', 'mean', 'max' or "
            "'min'."
        )
    ends = lengths.cumsum(0) if offsets is None else offsets[1:]
    rows = torch.arange(data.shape[0], device=data.device)
    segment = torch.searchsorted(ends, rows.to(ends.dtype), right=True)
    gradient = gradient.index_select(0, segment)
    if reduce == "sum":
        return gradient
    if reduce == "mean":
        sizes = torch.diff(ends, prepend=torch.zeros_like(ends[:1])) if lengths is None else lengths
        counts = sizes.index_select(0, segment).to(data.dtype)
        return gradient / counts.reshape(-1, *(1 for _ in data.shape[1:]))
    reduced = output.index_select(0, segment)
    chosen = (data == reduced).to(data.dtype)
    counts = torch.zeros_like(output).index_add(0, segment, chosen)
    return gradient * chosen / counts.index_select(0, segment).clamp(min=1)
