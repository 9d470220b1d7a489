"""Numbers that a launch and the kernel behind it must agree in: the kernel's header has them."""

from __future__ import annotations

import math
import re

from .source import headers

_DECLARATION = re.compile(r"\bconstexpr (?:int|uint32) (\w+ = [^;]+);")
_ONE = re.compile(r"(\w+) = ([^,]+)")


def device_constant(header: str, name: str) -> int:
    """The value of a constant that a device header declares.

    Parameters
    ----------
    header : str
        The header's name without its ending.
    name : str
        A ``constexpr int`` or ``uint32``: a number, or a product of numbers and such constants.

    Raises
    ------
    LookupError
        If the header has not exactly one constant of that name.
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
