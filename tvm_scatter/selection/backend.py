"""Backend: one record for each kind of target, with all facts except its implementations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.target import Target

from tvm_scatter.emit.attention import Attention
from tvm_scatter.emit.compaction import Compaction
from tvm_scatter.emit.index_check import DeviceCheck
from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.ordering import Ordering
from tvm_scatter.emit.scan import Scan
from tvm_scatter.emit.smallest import Smallest
from tvm_scatter.emit.sort import Sort
from tvm_scatter.errors import ScatterError
from tvm_scatter.options import Options

from .calibration import Calibration
from .machine import SOME_MACHINE, Machine


@dataclass(frozen=True)
class Backend:
    """The facts about one kind of target. The defaults suit a kind without special support.

    Parameters
    ----------
    kind : str
        TVM's name of the kind.
    device : str
        TVM's name of the device that runs the code; empty if this package never runs code for it.
    is_gpu : bool
        Whether code runs as a grid of threads, on a device beside the CPU that compiles.
    bounds : str
        The policy for bad indices if the caller names none.
    device_check : DeviceCheck, optional
        How to check indices on the device; ``None`` if the host can read them.
    compaction : Compaction, optional
        How to list the true positions of a mask; ``None`` if TVM's function of the host does.
    ordering : Ordering, optional
        How to order updates by destination; ``None`` if nothing does.
    scan : Scan, optional
        How to compute running sums; ``None`` if TVM's functions do.
    smallest : Smallest, optional
        How to find the smallest elements of lines; ``None`` if they are sorted.
    sort : Sort, optional
        How to sort lines; ``None`` if TVM does.
    fill : callable, optional
        Emits the statements that fill the output with the number that the problem begins with, for
        implementations that do not do so themselves.
    finish : callable, optional
        Emits the statements that compute what follows a scatter, from its result in the output, in
        the same place, for implementations that do not do so themselves.
    captures_graphs : bool
        Whether CUDA graphs can capture its launches.
    launches_together : bool
        Whether every implementation can compute several scatters in the launches of one. Then the
        passes merge small scatters.
    gathers_known_writes : bool
        Whether a chain of writes is best computed as one kernel that reads, for each output
        element, the value that ends there. Else writes stay scatters.
    fuses : tuple of str
        Data types of updates that implementations can compute where they read them.
    fuses_vectors_only : bool
        Whether only such updates are computed that a compiler makes vectors of: functions like
        ``exp`` stay apart, and so does what reads elements that are no neighbours.
    fuses_by_default : bool
        Whether they do so if the options leave it open.
    shares_orders_by_default : bool
        Whether scatters by one index share one order of it where that pays, if the options leave it
        open.
    sums_rows_by_default : bool
        Whether reductions of rows that are read by index compute the rows, if the options leave it
        open.
    sums_logits : bool
        Whether implementations can compute the logits of a softmax that are sums along rows.
    rounds_once : bool
        Whether all sums of 16-bit floats are left to implementations that round them once, as
        PyTorch does on such devices, where one of these can compute them. On others those are that
        have more updates than places.
    widens_bfloat16 : bool
        Whether computed updates of bfloat16 are given as expressions of float32, to be rounded.
    schedules_reads : bool
        Whether this package schedules reads by index, fused with what they feed, in CUDA C++.
    multiplies_halves : callable
        Returns whether a target's tensor cores multiply 16-bit floats for this package's schedules.
    multiplies_in_groups : callable
        Returns whether four warps of such a target may use tensor cores together.
    attention : Attention, optional
        How to compute attention without a matrix of scores, where it multiplies halves; ``None`` if
        nothing does.
    double_of_bits : str
        The function that makes a number of double precision of its bits, where TVM writes constants
        with too few digits; empty if it writes none.
    architecture : callable
        Returns the architecture of a target, such as ``sm_90``. Tuned records then apply to that
        architecture only. Nothing if they apply to all targets of the kind.
    of_this_machine : callable, optional
        Returns the target for this machine's device, or ``None`` if there is no device. Needed if
        the name of the kind alone is not a complete target.
    of_architecture : callable, optional
        Returns the target for the name of an architecture, or ``None`` for any other text.
    example : str
        A name of an architecture, for error messages.
    machine : callable
        Returns what costs must know of a target's hardware, as far as a table or the target tells.
    named_machine : callable
        Returns the same of a device by what it calls itself, given a target of its architecture;
        ``None`` if no table has it.
    device_name : callable
        Returns what this machine's device calls itself, if the target is for it; else nothing.
    calibration : Calibration, optional
        How the device's rates are measured; ``None`` if nothing measures them.
    """

    kind: str
    device: str = ""
    is_gpu: bool = False
    bounds: str = "raise"
    device_check: DeviceCheck | None = None
    compaction: Compaction | None = None
    ordering: Ordering | None = None
    scan: Scan | None = None
    smallest: Smallest | None = None
    sort: Sort | None = None
    fill: Callable[[Operands], None] | None = None
    finish: Callable[[Operands], None] | None = None
    captures_graphs: bool = False
    launches_together: bool = False
    gathers_known_writes: bool = False
    fuses: tuple[str, ...] = ()
    fuses_vectors_only: bool = False
    fuses_by_default: bool = False
    shares_orders_by_default: bool = False
    sums_rows_by_default: bool = False
    sums_logits: bool = False
    rounds_once: bool = False
    widens_bfloat16: bool = False
    schedules_reads: bool = False
    multiplies_halves: Callable[[Target], bool] = lambda _target: False
    multiplies_in_groups: Callable[[Target], bool] = lambda _target: False
    attention: Attention | None = None
    double_of_bits: str = ""
    architecture: Callable[[Target], str] = lambda _target: ""
    of_this_machine: Callable[[], Target | None] | None = None
    of_architecture: Callable[[str], Target | None] | None = None
    example: str = ""
    machine: Callable[[Target], Machine] = lambda _target: SOME_MACHINE
    named_machine: Callable[[str, Target], Machine | None] = lambda _name, _target: None
    device_name: Callable[[Target], str] = lambda _target: ""
    calibration: Calibration | None = None

    def bounds_once_checked(self, options: Options) -> str:
        """The policy where a check of the same indices reports bad ones.

        On a host that check is over. On a device it is only launched, so that bad indices must
        do no harm.
        """
        bounds = self.bounds_under(options)
        if bounds != "raise":
            return bounds
        return "trust" if self.device_check is None else "drop"

    def bounds_under(self, options: Options) -> str:
        """The policy for bad indices: that of the options, else the default of this kind.

        Raises
        ------
        ScatterError
            If the policy is ``"raise"``, and neither the host nor the device can check indices.
        """
        bounds = options.bounds or self.bounds
        if bounds == "raise" and self.is_gpu and self.device_check is None:
            raise ScatterError(
                f"options: bounds='raise': nothing checks indices on target {self.kind}; it must "
                "be 'drop' or 'trust'."
            )
        return bounds

    def fuses_under(self, options: Options) -> bool:
        """Whether scatters compute their updates: as the options say, else as this kind does."""
        if options.fuse is None:
            return self.fuses_by_default and not self._captures(options)
        return options.fuse

    def widens(self, dtype: str) -> bool:
        """Whether computed updates of a type are given as expressions of float32."""
        return self.widens_bfloat16 and dtype == "bfloat16"

    def fills_under(self, options: Options) -> bool:
        """Whether scatters into zeros fill them themselves, if that costs less."""
        if options.fill is None:
            return self.fill is not None and not self._captures(options)
        return options.fill

    def finishes_under(self, options: Options) -> bool:
        """Whether scatters compute what follows them, if that costs less."""
        if options.epilogue is None:
            return self.finish is not None and not self._captures(options)
        return options.epilogue

    def shares_orders_under(self, options: Options) -> bool:
        """Whether scatters by one index share one order of it, where that pays."""
        if options.share_order is None:
            return self.shares_orders_by_default
        return options.share_order

    def sums_rows_under(self, options: Options) -> bool:
        """Whether reductions compute the rows that they read by index."""
        if options.row_sums is None:
            return self.sums_rows_by_default and not self._captures(options)
        return options.row_sums

    def sums_logits_under(self, options: Options) -> bool:
        """Whether scatters that compute a softmax compute its logits where these are sums."""
        return self.sums_logits and options.sum_logits is not False

    def _captures(self, options: Options) -> bool:
        """Whether graphs of launches are captured.

        What reads a parameter is not part of them, because its place may change. Fused with what
        reads it, a scatter would be left out as well.
        """
        return self.captures_graphs and options.captures


_BACKENDS: dict[str, Backend] = {}


def register_backend(backend: Backend) -> Backend:
    """Register the record for its kind of target. It replaces an earlier one for the kind."""
    _BACKENDS[backend.kind] = backend
    return backend


def backends() -> tuple[Backend, ...]:
    """The registered records: one for each kind of target that has implementations."""
    return tuple(_BACKENDS.values())


def backend_for(target_kind: str) -> Backend:
    """The record for a kind of target, or a default one if none is registered."""
    return _BACKENDS.get(target_kind) or Backend(target_kind)


def backend_of(target: Target) -> Backend:
    """The record for the kind of a target."""
    return backend_for(str(target.kind.name))
