"""The record of CPUs as a kind of target."""

from __future__ import annotations

from tvm_scatter.problem.reductions import DATA_DTYPES
from tvm_scatter.selection.backend import Backend

from .compaction import COMPACTION
from .machines import CALIBRATION, device_name, machine_of
from .ordering import ORDERING
from .steps.fills import fill_output

#: TVM computes bfloat16 in float32, so the bits of a computed one are not accessible. And it takes
#: the bits of one for an integer where what is computed from it is bound to a variable.
_FUSES = tuple(dtype for dtype in DATA_DTYPES if dtype != "bfloat16")

LLVM = Backend(
    "llvm",
    device="cpu",
    compaction=COMPACTION,
    ordering=ORDERING,
    fill=fill_output,
    fuses=_FUSES,
    fuses_vectors_only=True,
    fuses_by_default=True,
    sums_rows_by_default=True,
    rounds_once=True,
    machine=machine_of,
    device_name=device_name,
    calibration=CALIBRATION,
)
