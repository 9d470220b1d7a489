"""Backend: all that the package knows of a kind of target, beside the implementations for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.target import Target

from tvm_scatter.emit.index_check import DeviceCheck
from tvm_scatter.errors import ScatterError
from tvm_scatter.options import Options


@dataclass(frozen=True)
class Backend:
    """What holds for every target of a kind; by default, what holds for any kind.

    Parameters
    ----------
    kind : str
        TVM's name of the kind.
    device : str
        TVM's name of the device that runs the code; empty where nothing is run by this package.
    is_gpu : bool
        Whether code runs as a grid of threads, on a device of its own beside the CPU that compiles.
    bounds : str
        The policy for bad indices where the caller names none.
    device_check : DeviceCheck, optional
        How indices are checked on the device; ``None`` where the host can read them.
    captures_graphs : bool
        Whether launches can be captured in CUDA graphs.
    launches_together : bool
        Whether an implementation computes several scatters in the launches of one, so that small
        ones are put together.
    gathers_known_writes : bool
        Whether writes whose places are known beforehand had better be one kernel that reads each
        output from where it comes from.
    architecture_attribute : str
        The attribute of a target that tells its architecture: records hold for that alone. Empty
        where records hold for all targets of the kind.
    of_this_machine : callable, optional
        Gives the target for this machine's device, or ``None`` if there is no device. Needed where
        the bare name of the kind says too little to compile for.
    of_architecture : callable, optional
        Gives the target for an architecture's name, or ``None`` if it is no such name.
    example : str
        Such a name, for error messages.
    """

    kind: str
    device: str = ""
    is_gpu: bool = False
    bounds: str = "raise"
    device_check: DeviceCheck | None = None
    captures_graphs: bool = False
    launches_together: bool = False
    gathers_known_writes: bool = False
    architecture_attribute: str = ""
    of_this_machine: Callable[[], Target | None] | None = None
    of_architecture: Callable[[str], Target | None] | None = None
    example: str = ""

    def bounds_under(self, options: Options) -> str:
        """The policy for bad indices under some options.

        Raises
        ------
        ScatterError
            If they shall be looked for, and neither the host nor the device can.
        """
        bounds = options.bounds or self.bounds
        if bounds == "raise" and self.is_gpu and self.device_check is None:
            raise ScatterError(
                f"options: bounds='raise': nothing checks indices on target {self.kind}; it must "
                "be 'drop' or 'trust'."
            )
        return bounds

    def architecture(self, target: Target) -> str:
        """The architecture of a target, such as ``sm_90``; empty where kinds have none."""
        name = self.architecture_attribute
        return str(target.attrs.get(name, "")) if name else ""


_BACKENDS: dict[str, Backend] = {}


def register_backend(backend: Backend) -> Backend:
    """Make a record the one for its kind of target; the last one registered counts."""
    _BACKENDS[backend.kind] = backend
    return backend


def backends() -> tuple[Backend, ...]:
    """The kinds of target that there are implementations for."""
    return tuple(_BACKENDS.values())


def backend_for(target_kind: str) -> Backend:
    """The record for a kind of target."""
    return _BACKENDS.get(target_kind) or Backend(target_kind)


def backend_of(target: Target) -> Backend:
    """The record for the kind of a target."""
    return backend_for(str(target.kind.name))
