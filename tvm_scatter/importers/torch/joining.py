"""Joining tensors, where TVM does not as PyTorch: other types, and the empty list of a cache."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of

from .arithmetic import common_type
from .call import TorchCall


def cat(call: TorchCall) -> Any:
    """``cat`` of tensors of several types, or with empty vectors among tensors of another rank.

    Such a vector counts as nothing: a cache begins with one.
    """
    tensors = call["tensors"]
    dtype = common_type(*tensors)
    kept = [tensor for tensor in tensors if shape_of(tensor) != (0,)] or [tensors[0]]
    if len(kept) == len(tensors) and all(str(each.ty.dtype) == dtype for each in kept):
        return None
    kept = [call.cast(tensor, dtype) for tensor in kept]
    axis = call.axis(call["dim"], kept[0].ty.ndim)
    return call.emit(relax.op.concat(kept, axis)) if len(kept) > 1 else kept[0]
