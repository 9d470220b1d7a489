"""Reads constants that launch and kernel share from the kernel's header."""

from __future__ import annotations

import math
import re

from .source import headers

_DECLARATION = re.compile(r"\bconstexpr (?:int|uint32) (\w+ = [^;]+);")
_ONE = re.compile(r"(\w+) = ([^,]+)")


def device_constant(header: str, name: str) -> int:
    """The value of a ``constexpr`` constant in a device header.

    Parameters
    ----------
    header : str
        The file name of the header without its extension.
    name : str
        The name of a ``constexpr int`` or ``uint32``, which is a number, or a product of numbers
        and such constants.

    Raises
    ------
    LookupError
        If the header does not declare exactly one constant of that name.
    """
    text = headers((header,))
    declared = [
        value
        for declaration in _DECLARATION.findall(text)
        for declared_name, value in _ONE.findall(declaration)
        if declared_name == name
    ]
    if len(declared) != 1:
        raise LookupError(f"{header}.cuh: it declares {len(declared)} constants {name}, not one")
    factors = (factor.strip() for factor in declared[0].split("*"))
    return math.prod(
        int(factor) if factor.isdigit() else device_constant(header, factor) for factor in factors
    )
