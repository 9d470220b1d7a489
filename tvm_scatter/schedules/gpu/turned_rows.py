"""Gives what is brought to shared memory the places that ``wgmma`` expects it at.

Of eight rows of 128 bytes, each has its parts of 16 bytes in another order: a part's number is
changed by that of the row, bit by bit (``SWIZZLE_128B`` of NVIDIA's PTX ISA, section 5.5.7). So
equal parts of neighbouring rows lie in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx

from .warpgroup_code import PART, ROW

_ROWS = ROW // PART


def with_turned_rows(function: tirx.PrimFunc, tensors: Sequence[Any]) -> tirx.PrimFunc:
    """A scheduled function whose stores to some tensors, of rows of 64 elements, go there.

    What it reads of these tensors, it reads by intrinsics.
    """

    def turned(store: tirx.BufferStore) -> tirx.BufferStore:
        if not any(map(store.buffer.same_as, tensors)):
            return store
        *others, row, place = store.indices
        change = tirx.floormod(row, _ROWS) * PART
        # In 32 bits, or TVM keeps all indices in 64 bits, and as what is known to be in the row.
        changed = tirx.bitwise_xor(tirx.Cast("int32", place), tirx.Cast("int32", change))
        place = tirx.Cast(place.ty.dtype, tirx.floormod(changed, ROW))
        indices = [*others, row, place]
        return tirx.BufferStore(store.buffer, store.value, indices)

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.BufferStore, turned)))
