"""The record of CPUs as a kind of target."""

from __future__ import annotations

from tvm_scatter.problem.reductions import DATA_DTYPES
from tvm_scatter.selection.backend import Backend

from .compaction import COMPACTION
from .machines import CALIBRATION, device_name, machine_of
from .ordering import ORDERING
from .steps.fills import fill_output

LLVM = Backend(
    "llvm",
    device="cpu",
    compaction=COMPACTION,
    ordering=ORDERING,
    fill=fill_output,
    fuses=tuple(DATA_DTYPES),
    fuses_vectors_only=True,
    fuses_by_default=True,
    shares_orders_by_default=True,
    sums_rows_by_default=True,
    rounds_once=True,
    widens_bfloat16=True,
    machine=machine_of,
    device_name=device_name,
    calibration=CALIBRATION,
)
