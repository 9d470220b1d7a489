"""Rows of bfloat16 that are read and written in words, which hold two columns each.

To widen a vector of neighbours takes two instructions. Of a vector of words one makes the even
columns and one the odd ones. So sums keep these apart: the columns of a vector are in the slots of
two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.target.codegen import target_has_features
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import counts_by_one, varies
from tvm_scatter.emit.single_precision import rounded, widened_load

#: Words of a vector of 64 bytes, the widest, and the columns that they hold.
_WORDS = 16
COLUMNS = 2 * _WORDS
_UPPER = 0xFFFF0000
#: LLVM's names of features of processors that read words from anywhere: x86, ARM. A tensor may
#: begin with half a word.
_FEATURES = ("sse2", "neon")


def read_in_words(value: Any, column: Any) -> bool:
    """Whether all that differs along a row is bfloat16 that begins with a whole word.

    Parameters
    ----------
    value : expression
        An element, emitted in float32.
    column : Var
        Its column.
    """
    if not any(target_has_features(feature, Target.current()) for feature in _FEATURES):
        return False
    loads = [load for load in loads_of(value) if varies(load, column)]
    return bool(loads) and all(_begins_word(load, column) for load in loads)


def _begins_word(load: Any, column: Any) -> bool:
    [position] = load.indices
    if str(load.source.dtype) != "bfloat16" or not counts_by_one(position, column):
        return False
    begin = substitute(position, {column: tirx.IntImm("int64", 0)})
    return bool(Analyzer().can_prove_equal(tirx.floormod(begin, 2), 0))


def slot(column: Any) -> Any:
    """The slot of a column."""
    word, odd = tirx.floordiv(tirx.floormod(column, COLUMNS), 2), tirx.floormod(column, 2)
    return column - tirx.floormod(column, COLUMNS) + odd * _WORDS + word


def read(count: int, element: Callable[[Any], Any], body: Callable[[Any, Any], None]) -> None:
    """Emit ``body`` for vectors of columns that are all even or all odd.

    Parameters
    ----------
    count : int
        How many columns there are.
    element : callable
        The element in a column.
    body : callable
        It is given the slots of some columns, and what is read for them.
    """
    for first in range(0, count, COLUMNS):
        for odd in range(2):
            with T.vectorized(_WORDS) as lane:
                word = tirx.Cast("int64", lane)
                body(first + odd * _WORDS + word, _element(element, first, word, odd))


def write(out: Any, begin: Any, count: int, number: Callable[[Any], Any]) -> None:
    """Emit the stores of columns.

    Parameters
    ----------
    out : buffer
        Where they are written.
    begin : expression
        The position of the first one, which is even.
    number : callable
        What is written, as float32, from its slot.
    """
    words = _words(out)
    for first in range(0, count, COLUMNS):
        with T.vectorized(_WORDS) as lane:
            word = tirx.Cast("int64", lane)
            even, odd = (_rounded(number(first + half * _WORDS + word)) for half in range(2))
            low = tirx.shift_right(even, tirx.const(16, "uint32"))
            at = tirx.shift_right(begin + first, tirx.IntImm("int64", 1)) + word
            T.buffer_store(words, tirx.bitwise_or(low, odd), [at])


def _element(element: Callable[[Any], Any], first: int, word: Any, odd: int) -> Any:
    column = tirx.Var("column", "int64")

    def read_word(call: Any) -> Any:
        load = widened_load(call)
        if load is None or not varies(load, column):
            return call
        begin = substitute(load.indices[0], {column: tirx.IntImm("int64", first)})
        bits = _words(load.source)[tirx.shift_right(begin, tirx.IntImm("int64", 1)) + word]
        return tirx.reinterpret("float32", _upper(bits, odd))

    value = tvm_ffi.structural_map(element(column), (tvm.ir.Call, read_word))
    return substitute(value, {column: first + 2 * word + odd})


def _words(buffer: Any) -> Any:
    """The whole words of a buffer of bfloat16."""
    [size] = buffer.shape
    return T.decl_buffer((tirx.floordiv(size, 2),), "uint32", data=buffer.data)


def _upper(bits: Any, odd: int) -> Any:
    """The bits of a float32 whose upper half is a half of a word."""
    if odd:
        return tirx.bitwise_and(bits, tirx.const(_UPPER, "uint32"))
    return tirx.shift_left(bits, tirx.const(16, "uint32"))


def _rounded(number: Any) -> Any:
    """The bits of a number whose lower half is zero."""
    return tirx.reinterpret("uint32", rounded(number))
