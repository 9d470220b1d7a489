"""Launches that reduce rows, given a list of the updates of each place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tvm_scatter.emit.first_of import emit_first
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most, ceil_div
from tvm_scatter.problem.vectors import needs_swaps, widest_vector
from tvm_scatter.selection.arithmetic import choose, is_at_most, larger, smaller
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.computed import read_updates
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import by_alignment, launch
from tvm_scatter.strategies.cuda.codegen.owned import vectors_apart
from tvm_scatter.strategies.cuda.codegen.source import accumulate_dtype

from . import contention, sorting
from .column_parts import busy_lanes, columns_each, lanes_of_parts, parts_at_run_time, parts_of

#: Lists with more entries are reduced in chunks.
LONG_LIST = device_constant("listed_rows", "kLongList")
#: Entries of a chunk of a long list: few if there is little work to share, many if otherwise too
#: many chunks would be added to one sum.
LEAST_CHUNK, _MOST_CHUNK = 32, 128
#: Cycles for an entry of a list: the latency of its update, about.
_ENTRY_CYCLES = 500.0
#: Cycles of a multiprocessor for a byte that is an element, read or written.
_MOVE_CYCLES = 0.2
_BLOCK_THREADS = 256
#: Threads of a multiprocessor that must have registers where an update is computed from one vector.
#: Two registers more, and a sixth of them would have none.
_ROW_THREADS = 1536
#: Bytes of rows that are read and written in some forty microseconds.
_FEW_BYTES = 1 << 28
#: Threads that search for chunks of long lists, whose number only the device knows.
CHUNK_THREADS = 1 << 17


def chunk_entries(problem: ScatterProblem, sizes: Sizes) -> Any:
    """The number of entries of a chunk of a long list."""
    return at_most(at_least(even_entries(problem, sizes), LEAST_CHUNK), _MOST_CHUNK)


def even_entries(problem: ScatterProblem, sizes: Sizes) -> Any:
    """The number of entries of a list if as many threads as a GPU has share them evenly."""
    return sizes.items * ceil_div(sizes.width, widest_vector(problem)) // CHUNK_THREADS


def cost(work: Work, listed: bool = False) -> Terms:
    """What it costs to make the lists' ends and to write every row from its list.

    Parameters
    ----------
    listed : bool
        Whether :class:`ListedRows` sums and writes them: blocks add their sums of a long list by
        atomics.
    """
    width = work.problem.width
    known = width.constant if width.is_static else None
    each = work.vector * columns_each(work.problem, known, work.vector)
    lanes = sorting.lanes_in_warp(work.problem, each)
    threads = work.width / each
    warps = larger(threads, float(lanes)) / 32
    chunk = smaller(larger(work.items * threads / CHUNK_THREADS, LEAST_CHUNK), _MOST_CHUNK)
    # The entries of a chunk are added one after the other, then the sums of the chunks of a block,
    # and then those of blocks, which matters where they are compared and swapped.
    blocks = work.hottest / (chunk * (_BLOCK_THREADS / lanes))
    summed_as = accumulate_dtype(work.problem.data_dtype)
    sums = replace(work, problem=replace(work.problem, data_dtype=summed_as))
    # A thread compares and swaps one of its elements after the other.
    meeting = contention.meeting(sums) * (work.vector if needs_swaps(sums.problem) else 1)
    single = _MOVE_CYCLES * work.written_bytes / work.machine.multiprocessors
    single = work.cycles(single) if work.element == 1 else 0.0
    summed = _ENTRY_CYCLES * LONG_LIST + (blocks * meeting if listed else 0.0)
    return {
        "lists": work.streams(16 * work.destinations),
        "long lists": work.cycles(choose(is_at_most(work.hottest, LONG_LIST), 0.0, summed)),
        "rows": larger(
            work.streams(work.items * larger(work.row_bytes, 32.0)), contention.combining(work)
        ),
        # Elements of a byte take a thread longer than memory.
        "writes": larger(work.streams(work.written_bytes), single),
        "places": work.sectors(4 * work.destinations * warps),
    }


def lanes_and_parts(
    problem: ScatterProblem, sizes: Sizes, vector: int | None = None
) -> tuple[int, Any]:
    """The threads that share a row, and the number of parts into which its columns are divided.

    Parameters
    ----------
    vector : int, optional
        The elements that a thread has at a time; by default the most.
    """
    vector = vector or widest_vector(problem)
    lanes = sorting.lanes_in_warp(problem, vector)
    return lanes, parts_of(sizes.width, lanes, vector)


def shares_of_rows(problem: ScatterProblem, sizes: Sizes) -> tuple[int, Any]:
    """The same where a thread may have several vectors of a row that is listed."""
    vector = widest_vector(problem)
    each = vector * columns_each(problem, sizes.width, vector)
    return lanes_and_parts(problem, sizes, each)


def few_bytes(operands: Operands) -> bool:
    """Whether rows are read in so little time that their launch counts.

    A kernel that is launched while another one ends gets what that leaves of the L1 cache.
    """
    problem, sizes = operands.problem, operands.sizes
    itemsize = item_bytes(problem.data_dtype)
    moved = (sizes.items + sizes.destinations) * sizes.width * itemsize
    return isinstance(moved, int) and moved <= _FEW_BYTES


def declare_lists(
    layout: sorting.Layout, kind: str, name: str, fields: Mapping[str, str], *numbers: Any
) -> tuple[str, sorting.Arguments]:
    """C++ declarations of the lists and of the ``sums`` of long ones, and their arguments.

    Parameters
    ----------
    kind, name : str
        The aggregate type of the lists, and the name of the variable.
    fields : mapping of name to C++ type
        Regions of the layout that the aggregate points to, in order.
    numbers : int or expression
        They follow them, as numbers of 32 bits.
    """
    values, given = list(fields), layout.arguments(*fields, "sums")
    for at, number in enumerate(numbers):
        value, arguments = as_number(f"number{at}", number)
        values.append(value)
        given |= arguments
    text = "".join(layout.pointer(field, of) for field, of in fields.items())
    text += f"  const {kind} {name}{{{', '.join(values)}}};\n"
    text += "  using Wide = Accumulate<Data>;\n" + layout.pointer("sums", "Wide")
    text += f"  (void){name}, (void)sums;\n"
    return text, given


def as_number(name: str, number: Any) -> tuple[str, sorting.Arguments]:
    """C++ for a number of 32 bits, and the argument of this name that has it if it is not known."""
    if isinstance(number, int):
        return str(number), {}
    return f"static_cast<uint32>({name})", {name: ("long long", number)}


class ListedRows:
    """The launches of a reduction of listed rows. Each is a template over lanes and vectors.

    Parameters
    ----------
    header : str
        The device header of the lists.
    prologue : str
        C++ declarations of the lists and of the ``sums`` of long ones.
    arguments : dict
        The arguments of the declarations.

    Attributes
    ----------
    lanes, tiles : int, int or expression
        The threads that share a part of a row, and the parts of a row.
    """

    def __init__(
        self, operands: Operands, header: str, prologue: str, arguments: sorting.Arguments
    ) -> None:
        sizes = operands.sizes
        self._operands = operands
        self._header = header
        self._vector = widest_vector(operands.problem)
        self._columns = columns_each(operands.problem, sizes.width, self._vector)
        self.lanes, self.tiles = shares_of_rows(operands.problem, sizes)
        self._arguments = {
            **arguments,
            "chunk": ("long long", chunk_entries(operands.problem, sizes)),
            "tiles": ("long long", self.tiles),
        }
        self._prologue = prologue

    def step(
        self,
        call: str,
        blocks: Any,
        threads: int,
        owns: bool = False,
        together: int = 0,
        overlaps: bool = False,
        begins: str = "begin_overlapped",
    ) -> None:
        """Launch ``call``, after filling in ``{lanes}``, ``{vector}`` and ``{columns}``.

        In scope are ``chunk``, and ``tiles``, the number of parts of the columns.

        Parameters
        ----------
        owns : bool
            Whether it knows the place of each update that it reads.
        together : int
            Blocks that registers must leave room for on a multiprocessor; 0 for any number.
        overlaps : bool
            Whether it shall be launched while the launch before it ends.
        begins : str
            The device function by which it begins then.
        """
        known = {"lanes": self.lanes, "columns": self._columns}
        forms = [call.format(vector=width, **known) for width in (self._vector, 1)]
        body = self._prologue + by_alignment(self._operands, self._vector, *forms)
        headers = (self._header,)
        launch(
            self._operands,
            headers,
            body,
            blocks,
            threads,
            self._arguments,
            owns=owns,
            together=together,
            overlaps=overlaps,
            begins=begins,
        )

    def sum(
        self, call: str, blocks: Any, threads: int, together: int = 0, overlaps: bool = False
    ) -> None:
        """Launch ``call``, which sums parts of long lists, as :meth:`step` does.

        Whoever does that knows the place of each part. But where updates must be computed as they
        are read, reads of the next ones would wait for it.

        Parameters
        ----------
        together : int
            Blocks that registers must leave room for if a row is computed from one vector.
        """
        owned = vectors_apart(self._operands, self._vector)
        vectors = owned or read_updates(self._operands).vectors
        together = together if vectors == 1 else 0
        self.step(call, blocks, threads, owned > 0, together, overlaps, "begin_overlapped_in_order")

    def write(self, lists: str, threads: int, carries: bool = False, early: bool = False) -> None:
        """Write every row of the output from its list, its sum or the data.

        Parameters
        ----------
        carries : bool
            Whether the lists carry what is the same for all elements of a row.
        early : bool
            Whether the launch before this one is that of :meth:`sum`, and begins while the one
            before it ends. Then rows that have no sum are written meanwhile.
        """
        operands = self._operands
        mean = "true" if operands.problem.reduces.needs_count else "false"
        source, in_place = ("out", "true") if operands.data is None else ("data", "false")
        width, each = operands.sizes.width, self._vector * self._columns
        single = self._columns == 1 and vectors_apart(operands, self._vector) == 1

        def step(lanes: int, apart: bool) -> None:
            lanes = busy_lanes(width, lanes, each)
            parts = parts_of(width, lanes, each)
            self._arguments["column_parts"] = "long long", parts
            self.step(
                f"write_rows<P, {lanes}, {{vector}}, {{columns}}, {mean}, {in_place}, "
                f"{str(apart).lower()}, {str(early).lower()}>(output, {source}, sums, {lists}, "
                "updates, sizes, column_parts);",
                ceil_div(operands.sizes.destinations * parts * lanes, threads),
                threads,
                owns=True,
                together=_ROW_THREADS // threads if single else 0,
                overlaps=early or few_bytes(operands),
                begins="begin_overlapped_early" if early else "begin_overlapped",
            )

        emit_first(
            [
                (better, partial(step, lanes, apart=True))
                for lanes, better in parts_at_run_time(operands, self.lanes, each, carries)
            ],
            partial(step, *lanes_of_parts(operands, self.lanes, each, carries)),
        )
