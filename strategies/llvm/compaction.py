"""The compaction of a mask on a CPU: tasks count, and then write, a range of the mask each."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.compaction import Compaction
from tvm_scatter.problem.sizes import ceil_div

from .steps import loops

#: Entries that one task counts: as many as make threads worth while.
_TILE = loops.SERIAL_WORK


def _count(mask: Any, size: Any, counts: Any, number: Any) -> None:
    def count(start: Any, length: Any) -> None:
        found = _cell(0)
        with loops.serial(length) as i:
            T.buffer_store(found, found[0] + tirx.Cast("int64", mask[start + i]), [0])
        T.buffer_store(counts, found[0], [tirx.truncdiv(start, loops.int64(_TILE))])

    loops.for_each_chunk(size, _TILE, size, count)
    before, tiles = _cell(0), ceil_div(size, _TILE)
    with loops.serial(tiles) as tile:
        here = T.bind(counts[tile])
        T.buffer_store(counts, before[0], [tile])
        T.buffer_store(before, before[0] + here, [0])
    T.buffer_store(counts, before[0], [tiles])
    T.buffer_store(number, before[0], [0])


def _write(mask: Any, size: Any, counts: Any, positions: Any) -> None:
    def write(start: Any, length: Any) -> None:
        tile = T.bind(tirx.truncdiv(start, loops.int64(_TILE)))
        place, end = _cell(counts[tile]), T.bind(counts[tile + 1])
        with loops.serial(length) as i:
            # What is written for a false entry, the next true one overwrites. So no branch depends
            # on the mask, which a processor could not predict.
            with T.If(place[0] < end):
                with T.Then():
                    T.buffer_store(positions, start + i, [place[0]])
                    T.buffer_store(place, place[0] + tirx.Cast("int64", mask[start + i]), [0])

    loops.for_each_chunk(size, _TILE, size, write)


def _cell(value: Any) -> Any:
    """A variable of one task."""
    cell = loops.small_buffer(1, "int64")
    T.buffer_store(cell, loops.int64(value), [0])
    return cell


COMPACTION = Compaction(_TILE, _count, _write)
