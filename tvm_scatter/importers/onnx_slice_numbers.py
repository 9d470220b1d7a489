"""Constant places of a slice in numbers that TVM takes, and that mean what they mean in ONNX.

TVM refuses slices that end before they start, overflows in numbers near the ends of int64, and
takes a slice backwards from in front of an axis to be empty, where ONNX begins at the first place.
"""

from __future__ import annotations

from typing import Any

#: No axis is longer.
_FAR = 2**48
#: TVM knows that no size is greater. Up to any other number it allocates as much as that.
_MOST = 2**63 - 1
_NOTHING = 0, 0, 1


def plain(start: int, end: int, step: int, size: Any) -> tuple[int, int, int]:
    """Start, end and step of an axis; one of symbolic size is sliced forwards."""
    if not isinstance(size, int):
        start, end = 0 if start < -_FAR else start, max(end, -_FAR)
        start, end = (_MOST if each > _FAR else each for each in (start, end))
        is_empty = (start < 0) == (end < 0) and start >= end
        return _NOTHING if is_empty or end == -_FAR else (start, end, min(step, _FAR))
    places = range(size)[max(start, -size) : end : step]
    if not places:
        return _NOTHING
    stride = places.step if len(places) > 1 else (1 if step > 0 else -1)
    behind = places[-1] + (1 if stride > 0 else -1)
    # An end in front of the axis is not the last place.
    return places[0], behind if behind >= 0 else -size - 1, stride
