"""Machine: what a cost must know of the hardware, in one record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The hardware that a scatter runs on. Rates are per microsecond.

    Parameters
    ----------
    name : str
        What the device calls itself.
    multiprocessors : int
        Units that run blocks of threads; of a CPU its cores.
    clock : float
        Cycles per microsecond.
    memory : float
        Bytes per microsecond that a copy reads and writes together.
    cache_bytes : float
        Bytes of the cache that all units share.
    shared_bytes : int
        Bytes of memory of its own that a block can have.
    launch : float
        Microseconds from the begin of one small launch to the begin of the next.
    threads : int
        Threads that a multiprocessor has at a time; 1, the default, for a core.
    cached_sectors, missed_sectors : float
        Sectors of 32 bytes at random places that the shared cache serves, and that memory serves.
        0, the default, stands for what an H200 reaches in sums, by its other rates: of the cache a
        quarter of a sector in each cycle of each unit, of memory an eleventh of what a copy moves.
    measured : bool
        Whether the rates were measured, and not taken from a data sheet.
    """

    name: str
    multiprocessors: int
    clock: float
    memory: float
    cache_bytes: float
    shared_bytes: int
    launch: float
    threads: int = 1
    cached_sectors: float = 0.0
    missed_sectors: float = 0.0
    measured: bool = False

    def __post_init__(self) -> None:
        if not self.cached_sectors:
            object.__setattr__(self, "cached_sectors", self.multiprocessors * self.clock / 4)
        if not self.missed_sectors:
            object.__setattr__(self, "missed_sectors", self.memory / (11 * 32))


#: Stands for hardware that nobody described. Costs can still be compared on it.
SOME_MACHINE = Machine(
    name="unknown hardware",
    multiprocessors=16,
    clock=1500.0,
    memory=2e5,
    cache_bytes=4e6,
    shared_bytes=48 << 10,
    launch=5.0,
    threads=1024,
)
