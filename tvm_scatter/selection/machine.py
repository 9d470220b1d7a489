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
    measured: bool = False

    @property
    def sectors(self) -> float:
        """Sectors of 32 bytes that the shared cache serves at random places.

        A quarter of a sector in each cycle of each unit: what sums into places that the cache
        holds reach on an H200.
        """
        return self.multiprocessors * self.clock / 4

    @property
    def missed_sectors(self) -> float:
        """Sectors at random places that memory serves: an eleventh of what a copy moves.

        What sums into places all over the memory of an H200 reach.
        """
        return self.memory / (11 * 32)


#: Stands for hardware that nobody described. Costs can still be compared on it.
SOME_MACHINE = Machine(
    name="unknown hardware",
    multiprocessors=16,
    clock=1500.0,
    memory=2e5,
    cache_bytes=4e6,
    shared_bytes=48 << 10,
    launch=5.0,
)
