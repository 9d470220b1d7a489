"""Floats whose bits tell what was done to them: signed zeros, NaNs with payloads, denormals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_scatter.problem.reductions import numpy_dtype

Array = np.ndarray[Any, Any]
#: Bits of the exponent and of the mantissa.
_FIELDS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
#: What the updates of one place are drawn from.
KINDS = ("zeros", "denormals", "numbers", "nans")


def special_values(dtype: str, kind: str) -> Array:
    """Some values of a kind; of ``nans``, numbers as well."""
    exponent_bits, mantissa_bits = _FIELDS[dtype]
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    one = (infinity >> 1) & infinity
    quiet = 1 << (mantissa_bits - 1)
    magnitudes = {
        "zeros": [0],
        "denormals": [0, 1, 2, quiet, (1 << mantissa_bits) - 1],
        "numbers": [0, 1, one, one + 1, infinity - 1, infinity],
        "nans": [0, one, infinity, infinity + 1, infinity + quiet, infinity + quiet + 5],
    }[kind]
    sign = 1 << (exponent_bits + mantissa_bits)
    bits = [m | s for m in magnitudes for s in (0, sign)]
    return np.array(bits, f"uint{exponent_bits + mantissa_bits + 1}").view(numpy_dtype(dtype))


def draw(generator: np.random.Generator, dtype: str, kinds: Array) -> Array:
    """A value for each entry of ``kinds``, which are positions in :data:`KINDS`."""
    result = np.zeros(kinds.size, numpy_dtype(dtype))
    for number, kind in enumerate(KINDS):
        chosen = kinds == number
        result[chosen] = generator.choice(special_values(dtype, kind), int(chosen.sum()))
    return result
