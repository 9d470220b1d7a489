"""Headers of device routines. Each routine brings along those that it needs, as a text."""

from __future__ import annotations

import re

_HEADER = re.compile(
    r"^// tvm_scatter/(?P<name>\w+)\.cuh\n.*?^// end of tvm_scatter/(?P=name)\.cuh\n",
    re.DOTALL | re.MULTILINE,
)


def header(name: str, text: str) -> str:
    """The text of a header, with its name around it."""
    return f"// tvm_scatter/{name}.cuh\n{text}\n// end of tvm_scatter/{name}.cuh\n"


def has_headers(source: str) -> bool:
    """Whether a text is the source of a routine, with headers in front of it."""
    return source.startswith("// tvm_scatter/")


def without_headers(source: str, known: set[str]) -> str:
    """The source of a routine without the headers that are known. Those that are left become so."""

    def left(found: re.Match[str]) -> str:
        if found["name"] in known:
            return ""
        known.add(found["name"])
        return found[0]

    return _HEADER.sub(left, source)
