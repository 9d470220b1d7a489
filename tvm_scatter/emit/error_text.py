"""Error messages with run-time numbers, raised from compiled host code without any Python.

TVM's own assertions have a fixed text. Here the host code assembles the text in a stack buffer with
C's ``strcat`` and sets it as the FFI's current error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

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
    numbers = _decimals([part for part in parts if not isinstance(part, str | int)])
    written = sum(len(str(part).encode()) for part in parts if isinstance(part, str | int))
    room = written + len(parts) * _DIGIT_BYTES + 1
    text = T.alloc_buffer((room,), "uint8", scope="global")
    T.buffer_store(text, tirx.IntImm("uint8", 0), [0])
    known = ""
    for part in parts:
        if isinstance(part, str | int):
            known += str(part)
            continue
        _append(text, known)
        _append(text, next(numbers))
        known = ""
    _append(text, known)
    T.evaluate(T.call_extern("void", "TVMFFIErrorSetRaisedFromCStr", kind, text.data))
    T.evaluate(T.tvm_throw_last_error())


def _append(text: Any, more: Any) -> None:
    T.evaluate(T.call_extern("handle", "strcat", text.data, more))


def _decimals(numbers: Sequence[Any]) -> Iterator[Any]:
    """Write integers as decimal numbers; returns where their texts begin, in the same order."""
    dtypes = ["uint64" if str(number.ty) == "uint64" else "int64" for number in numbers]
    texts = {
        dtype: _write_decimals(
            [number for number, its in zip(numbers, dtypes, strict=True) if its == dtype], dtype
        )
        for dtype in dict.fromkeys(dtypes)
    }
    return (next(texts[dtype]) for dtype in dtypes)


def _write_decimals(numbers: Sequence[Any], dtype: str) -> Iterator[Any]:
    """Write integers of one type, each right-aligned in its part of a buffer.

    In a loop: unrolled, the text would take longer to compile than the rest of a check.
    """
    count = len(numbers)
    values = T.alloc_buffer((count,), dtype, scope="global")
    rest = T.alloc_buffer((1,), dtype, scope="global")
    digits = T.alloc_buffer((count * _DIGIT_BYTES,), "uint8", scope="global")
    first = T.alloc_buffer((count,), "int32", scope="global")
    zero, ten = tirx.const(0, dtype), tirx.const(10, dtype)
    for which, number in enumerate(numbers):
        T.buffer_store(values, tirx.Cast(dtype, number), [which])
    with T.serial(count) as which:
        end = (which + 1) * _DIGIT_BYTES - 1

        def put(character: Any, which: Any = which) -> None:
            T.buffer_store(first, first[which] - 1, [which])
            T.buffer_store(digits, character, [first[which]])

        T.buffer_store(first, end + 1, [which])
        T.buffer_store(rest, values[which], [0])
        put(tirx.IntImm("uint8", 0))
        with T.serial(20):
            with T.If(tirx.any(rest[0] != zero, first[which] == end)):
                with T.Then():
                    # Digits are taken from the negative value with division that rounds to zero,
                    # because the smallest integer has no positive counterpart.
                    last = tirx.truncmod(rest[0], ten)
                    digit = tirx.Cast("uint8", tirx.Select(last < zero, zero - last, last))
                    put(digit + tirx.IntImm("uint8", ord("0")))
                    T.buffer_store(rest, tirx.truncdiv(rest[0], ten), [0])
        with T.If(values[which] < zero):
            with T.Then():
                put(tirx.IntImm("uint8", ord("-")))
    return (T.address_of(digits[first[which]]) for which in range(count))
