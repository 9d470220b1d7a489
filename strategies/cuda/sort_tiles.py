"""A radix sort of all lines together: digits are counted, then each launch sorts by one of them."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.sort import SortProblem
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.sizes import at_most, ceil_div
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import run_body
from tvm_scatter.strategies.cuda.codegen.source import c_type

from .sort_calls import (
    TENSOR,
    Arguments,
    data_of,
    descending,
    pointers,
    sizes,
    tensors,
)
from .steps.sorting import Layout

#: Numbers of elements have two bits less than 32: see ``kOwnCount`` in ``device/sort_tiles.cuh``.
LIMIT = 1 << 30

_THREADS = device_constant("sort_tiles", "kRadixThreads")
_DIGIT_BITS = device_constant("sort_lines", "kSortDigitBits")
_DIGIT_VALUES = 1 << _DIGIT_BITS
#: Elements of a thread; fewer where few elements would leave multiprocessors without any.
_PER_THREAD, _FEW_PER_THREAD, _FEW = 16, 4, 1 << 19
#: The most blocks that count digits, and the elements that their threads read at once.
_COUNTING_BLOCKS, _READ_AT_ONCE = 256, 4
_WORDS = ("numbers0", "numbers1", "counts", "begins", "skipped")


class TileSort:
    """The launches of a sort, and its memory.

    Attributes
    ----------
    bytes : int or expression
        The bytes of memory.
    """

    def __init__(self, problem: SortProblem) -> None:
        self._problem = problem
        self._size = problem.size
        few = isinstance(self._size, int) and self._size < _FEW
        self._per_thread = _FEW_PER_THREAD if few else _PER_THREAD
        self._tiles = ceil_div(self._size, _THREADS * self._per_thread)
        self._digits = item_bytes(problem.dtype) + _digits_of_line(problem.number)
        self._counting = at_most(ceil_div(self._size, _THREADS * _READ_AT_ONCE), _COUNTING_BLOCKS)
        # A mark and the next tile of each digit, and what tiles tell of its values.
        self._zeros = self._digits * (2 + self._tiles * _DIGIT_VALUES)
        counters = 4 * _DIGIT_VALUES * self._digits
        self._layout = Layout()
        for turn in range(2):
            self._layout.add(f"keys{turn}", self._size * item_bytes(problem.dtype))
            self._layout.add(f"numbers{turn}", 4 * self._size)
        self._layout.add("counts", counters * self._counting)
        self._layout.add("begins", counters)
        self._layout.add("skipped", 4 * self._zeros)
        self.bytes = self._layout.total

    def emit(self, data: Any, places: Any, memory: Any) -> None:
        """Emit the launches."""
        if not isinstance(self._size, int):
            limit = tirx.IntImm("int64", LIMIT)
            message = f"argsort: at most {LIMIT - 1} elements can be sorted"
            with T.Assert(self._size < limit, message):
                pass
        arguments = {
            **tensors(data, places),
            "void* memory": memory.data,
            **sizes(self._problem),
            **{f"long long {at}_at": offset for at, offset in self._layout.offsets.items()},
            "long long digits": self._digits,
        }
        read = data_of(self._problem)
        self._step(
            f"  count_all_digits<{_READ_AT_ONCE}>(counts, skipped, zeros, {read}, tiles);",
            {**arguments, "long long zeros": self._zeros},
            self._counting,
        )
        self._step(
            "  begin_digits(begins, skipped, counts, int(blocks), tiles.size);",
            {**arguments, "long long blocks": self._counting},
            self._digits,
        )
        with T.serial(self._digits) as which:
            self._step(
                f"  sort_tile<{self._per_thread}>({pointers(self._problem)}, "
                "{{keys0, keys1}, {numbers0, numbers1}, begins, skipped, next, next + digits}, "
                "tiles, int(which));",
                {**arguments, "long long which": which},
                self._tiles,
            )

    def _step(self, body: str, arguments: Arguments, blocks: Any) -> None:
        run_body("sort_tiles", self._declared() + body, arguments, blocks, _THREADS)

    def _declared(self) -> str:
        key, place = c_type(self._problem.dtype), c_type(self._problem.place_dtype)
        pointers = [self._layout.pointer(name, "uint32") for name in _WORDS]
        pointers += [self._layout.pointer(f"keys{turn}", f"Bits<{key}>") for turn in range(2)]
        used = ("keys0", "keys1", *_WORDS, "next")
        return (
            "  char* const workspace = static_cast<char*>(memory);\n"
            f"{''.join(pointers)}"
            "  uint32* const next = skipped + digits;\n"
            f"  {', '.join(f'(void){name}' for name in used)};\n"
            f"  const TilesToSort<{place}, {key}, {descending(self._problem)}> tiles({TENSOR}, "
            "int(digits));\n"
        )


def _digits_of_line(lines: Any) -> Any:
    """The digits of the number of a line."""
    if isinstance(lines, int):
        return ceil_div((lines - 1).bit_length(), _DIGIT_BITS)
    digits = tirx.IntImm("int64", 0)
    for bits in range(0, LIMIT.bit_length(), _DIGIT_BITS):
        digits = digits + tirx.Cast("int64", lines > tirx.IntImm("int64", 1 << bits))
    return digits
