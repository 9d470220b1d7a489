"""TVMScript looks at the whole stack; under pytest that is deep, and most of it is not of interest.

``inspect`` reads a line of source for each frame, and looks for its module among all that
are loaded. TVM needs that for the frames around the decorator only.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType

#: What Python itself finds.
getouterframes = inspect.getouterframes
#: Frames of which the source is read, from the caller outwards.
NEAR = 4


def enable() -> None:
    """Have ``inspect`` leave out the source of what is far away."""
    inspect.stack = _stack
    inspect.getouterframes = _outer


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    return _outer(sys._getframe(1), context)


def _outer(frame: FrameType | None, context: int = 1) -> list[inspect.FrameInfo]:
    frames = []
    while frame is not None:
        near = len(frames) < NEAR
        about = inspect.getframeinfo(frame, context) if near else _without_source(frame)
        frames.append(inspect.FrameInfo(frame, *about))
        frame = frame.f_back
    return frames


def _without_source(frame: FrameType) -> inspect.Traceback:
    code = frame.f_code
    return inspect.Traceback(code.co_filename, frame.f_lineno, code.co_name, None, None)
