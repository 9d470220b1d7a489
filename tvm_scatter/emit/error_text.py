"""Error messages with run-time numbers, raised from compiled host code without any Python.

TVM's own assertions have a fixed text. Here the host code assembles the text in a stack buffer with
C's ``strcat`` and sets it as the FFI's current error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

_TEXT_BYTES = 512
_DIGIT_BYTES = 24


def raise_error(kind: str, parts: Sequence[Any]) -> None:
    """Emit statements that raise an error and return from the function.

    Parameters
    ----------
    kind : str
        The name of a Python exception class, such as ``"IndexError"``.
    parts : sequence of str or expression
        The parts of the message, in order.
    """
    text = T.alloc_buffer((_TEXT_BYTES,), "uint8", scope="global")
    digits = T.alloc_buffer((_DIGIT_BYTES,), "uint8", scope="global")
    T.buffer_store(text, tirx.IntImm("uint8", 0), [0])
    for part in parts:
        if isinstance(part, str):
            _append(text, part)
        else:
            _write_decimal(digits, part)
            _append(text, _first_digit(digits))
    T.evaluate(T.call_extern("void", "TVMFFIErrorSetRaisedFromCStr", kind, text.data))
    T.evaluate(T.tvm_throw_last_error())


def _append(text: Any, more: Any) -> None:
    T.evaluate(T.call_extern("handle", "strcat", text.data, more))


def _write_decimal(digits: Any, value: Any) -> None:
    """Write ``value`` right-aligned into a buffer; ``digits[0]`` is set to where it begins."""
    dtype = "uint64" if not isinstance(value, int) and str(value.ty) == "uint64" else "int64"
    value = tirx.const(value, dtype) if isinstance(value, int) else tirx.Cast(dtype, value)
    rest = T.alloc_buffer((1,), dtype, scope="global")
    zero, ten = tirx.const(0, dtype), tirx.const(10, dtype)
    at = T.alloc_buffer((1,), "int32", scope="global")
    T.buffer_store(rest, value, [0])
    T.buffer_store(at, tirx.IntImm("int32", _DIGIT_BYTES - 1), [0])
    T.buffer_store(digits, tirx.IntImm("uint8", 0), [_DIGIT_BYTES - 1])
    with T.serial(20):
        with T.If(tirx.any(rest[0] != zero, at[0] == _DIGIT_BYTES - 1)):
            with T.Then():
                T.buffer_store(at, at[0] - 1, [0])
                # Digits are taken from the negative value with division that rounds to zero,
                # because the smallest integer has no positive counterpart.
                last = tirx.truncmod(rest[0], ten)
                digit = tirx.Cast("uint8", tirx.Select(last < zero, zero - last, last))
                T.buffer_store(digits, digit + tirx.IntImm("uint8", ord("0")), [at[0]])
                T.buffer_store(rest, tirx.truncdiv(rest[0], ten), [0])
    with T.If(value < zero):
        with T.Then():
            T.buffer_store(at, at[0] - 1, [0])
            T.buffer_store(digits, tirx.IntImm("uint8", ord("-")), [at[0]])
    T.buffer_store(digits, tirx.Cast("uint8", at[0]), [0])


def _first_digit(digits: Any) -> Any:
    return T.address_of(digits[tirx.Cast("int32", digits[0])])
