"""The record of CUDA as a kind of target."""

from __future__ import annotations

import re

import tvm
from tvm.target import Target

from tvm_scatter.problem.reductions import DATA_DTYPES
from tvm_scatter.selection.backend import Backend

from .attention import ATTENTION
from .check import CHECK
from .codegen.target import architecture
from .compaction import COMPACTION
from .machines import CALIBRATION, device_name, machine_of, named_machine
from .ordering import ORDERING
from .scan import SCAN
from .smallest import SMALLEST
from .sort import SORT
from .steps.stages import fill_output, finish_output

#: Attributes that TVM's schedules need, for targets given by their architecture alone.
_LIMITS = {
    "max_num_threads": 1024,
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}


#: Compute capabilities from 5.0 to 12.x.
_ARCHITECTURE = re.compile(r"sm_([5-9]|1[0-2])\d[af]?", re.ASCII)


def _of_this_machine() -> Target | None:
    """The target for the first GPU."""
    device = tvm.cuda(0)
    return Target.from_device(device) if device.exist else None


def _of_architecture(name: str) -> Target | None:
    if not _ARCHITECTURE.fullmatch(name):
        return None
    return Target({"kind": "cuda", "arch": name, **_LIMITS}, host="llvm")


def _architecture(target: Target) -> str:
    """The architecture without the letter that allows its own instructions: it is one hardware."""
    compute = architecture(target)
    return f"sm_{compute}" if compute else ""


def _multiplies_halves(target: Target) -> bool:
    """Whether fragments of 16 x 16 of either type are multiplied: from compute capability 8.0."""
    return architecture(target) >= 80


def _multiplies_in_groups(target: Target) -> bool:
    """Whether code for the target may have ``wgmma``.

    It is an instruction of compute capability 9.0 alone, whose code must be for ``sm_90a``. TVM
    compiles so for the GPU of this machine, and for a target that says so.
    """
    if architecture(target) != 90:
        return False
    device = tvm.cuda(0)
    is_this = device.exist and device.compute_version == "9.0"
    return str(target.attrs["arch"]).endswith("a") or is_this


CUDA = Backend(
    "cuda",
    device="cuda",
    is_gpu=True,
    # Not "raise" by default, because the host would wait for the device.
    bounds="drop",
    device_check=CHECK,
    compaction=COMPACTION,
    ordering=ORDERING,
    scan=SCAN,
    smallest=SMALLEST,
    sort=SORT,
    fill=fill_output,
    finish=finish_output,
    captures_graphs=True,
    launches_together=True,
    fuses=tuple(DATA_DTYPES),
    fuses_by_default=True,
    shares_orders_by_default=True,
    sums_rows_by_default=True,
    sums_logits=True,
    gathers_known_writes=True,
    schedules_reads=True,
    multiplies_halves=_multiplies_halves,
    multiplies_in_groups=_multiplies_in_groups,
    attention=ATTENTION,
    double_of_bits="__longlong_as_double",
    architecture=_architecture,
    of_this_machine=_of_this_machine,
    of_architecture=_of_architecture,
    example="sm_90",
    machine=machine_of,
    named_machine=named_machine,
    device_name=device_name,
    calibration=CALIBRATION,
)
