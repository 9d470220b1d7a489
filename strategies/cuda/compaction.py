"""The compaction of a mask on the GPU: a launch that counts, one that sums up, one that writes."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.compaction import Compaction
from tvm_scatter.problem.sizes import ceil_div
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import run_body

_TILE = device_constant("compaction", "kCompactTile")
_THREADS = device_constant("compaction", "kCompactThreads")
_OFFSETS_THREADS = device_constant("compaction", "kOffsetsThreads")

_TILED = "static_cast<int64*>(counts), static_cast<const unsigned char*>(mask), size"


def _count(mask: Any, size: Any, counts: Any, number: Any) -> None:
    tiles = ceil_div(size, _TILE)
    _launch(
        f"count_true({_TILED});",
        {"void* counts": counts.data, "void* mask": mask.data, "long long size": size},
        tiles,
        _THREADS,
    )
    _launch(
        "sum_counts(static_cast<int64*>(counts), tiles, static_cast<int64*>(number));",
        {"void* counts": counts.data, "long long tiles": tiles, "void* number": number.data},
        1,
        _OFFSETS_THREADS,
    )


def _write(mask: Any, size: Any, counts: Any, positions: Any) -> None:
    _launch(
        f"write_true(static_cast<int64*>(positions), {_TILED});",
        {
            "void* positions": positions.data,
            "void* counts": counts.data,
            "void* mask": mask.data,
            "long long size": size,
        },
        ceil_div(size, _TILE),
        _THREADS,
    )


def _launch(body: str, arguments: dict[str, Any], blocks: Any, threads: int) -> None:
    run_body("compaction", f"  {body}", arguments, blocks, threads)


COMPACTION = Compaction(_TILE, _count, _write)
