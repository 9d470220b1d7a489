"""The arguments with which TVM's tuner measures a function.

TVM's own arguments are random bits. As indices, these address any place in memory.

This module is pickled by value and sent to TVM's workers, which may not have this package. So it
imports nothing of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.s_tir.meta_schedule.runner import local_runner, rpc_runner

_WHOLE_NUMBERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))


def local_arguments(device: Any, args_info: Any, alloc_repeat: int) -> list[list[Any]]:
    """TVM's arguments for a function on this machine, with valid indices."""
    return _with_valid_indices(local_runner.default_alloc_argument(device, args_info, alloc_repeat))


def rpc_arguments(session: Any, device: Any, args_info: Any, alloc_repeat: int) -> list[list[Any]]:
    """TVM's arguments for a function on another machine, with valid indices."""
    return _with_valid_indices(
        rpc_runner.default_alloc_argument(session, device, args_info, alloc_repeat)
    )


def _with_valid_indices(repeated: list[list[Any]]) -> list[list[Any]]:
    """Fill integer tensors with 0, 1, 2, ..., starting again below the smallest extent of all.

    It is unknown which arguments are indices and what they address, so all get values that are
    valid for every axis of every argument.
    """
    for arguments in repeated:
        extents = [int(extent) for tensor in arguments for extent in tensor.shape if extent > 0]
        least = min(extents, default=1)
        for tensor in arguments:
            if str(tensor.dtype) in _WHOLE_NUMBERS:
                dtype = np.dtype(str(tensor.dtype))
                period = min(least, int(np.iinfo(dtype).max))
                shape = tuple(map(int, tensor.shape))
                numbers = np.arange(int(np.prod(shape))) % period
                tensor.copyfrom(numbers.astype(dtype).reshape(shape))
    return repeated
