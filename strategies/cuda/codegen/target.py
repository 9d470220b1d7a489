"""Limits of a CUDA target, from its attributes or its architecture."""

from __future__ import annotations

import re
from typing import Any

from tvm_scatter.errors import ScatterError

_NAME = re.compile(r"sm_(\d{2,3})[af]?", re.ASCII)
#: Bytes of shared memory of a block (CUDA C++ Programming Guide, "Technical specifications per
#: compute capability"), of which CUDA reserves one kilobyte.
_OPT_IN_BYTES = {
    70: 96 << 10,
    72: 96 << 10,
    75: 64 << 10,
    80: 163 << 10,
    86: 99 << 10,
    87: 163 << 10,
    89: 99 << 10,
    90: 227 << 10,
    100: 227 << 10,
    103: 227 << 10,
    120: 99 << 10,
    121: 99 << 10,
}
_ALWAYS_BYTES = 48 << 10


def architecture(target: Any) -> int:
    """The compute capability of a CUDA target times ten: 90 for ``sm_90a``, 0 if it says none.

    Raises
    ------
    ScatterError
        If what it says is no name of an architecture.
    """
    name = str(target.attrs.get("arch", ""))
    found = _NAME.fullmatch(name)
    if name and found is None:
        raise ScatterError(f"target cuda: arch {name!r} must be an architecture such as sm_90.")
    return int(found[1]) if found else 0


def shared_memory_limit(target: Any) -> int:
    """Bytes of dynamic shared memory that a block may use."""
    return _OPT_IN_BYTES.get(architecture(target), _ALWAYS_BYTES)


def dynamic_bytes(needed: int, static: int) -> int:
    """Bytes of dynamic shared memory to launch with, where a block has static memory, too.

    TVM raises CUDA's limit of 48 KB only for launches whose dynamic memory alone reaches it.
    """
    return needed if needed + static <= _ALWAYS_BYTES else max(needed, _ALWAYS_BYTES)
