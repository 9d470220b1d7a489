"""Options of the strategy, in force inside a ``with`` block of the current thread or task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from .errors import ScatterError
from .problem import BOUNDS


@dataclass(frozen=True)
class Options:
    """What a caller may ask of the strategy.

    Parameters
    ----------
    implementation : str, optional
        The name of the implementation to use for every scatter; ``None`` leaves the choice to the
        strategy.
    knobs : tuple of (str, int), optional
        Knob values for the forced implementation; the rest keep their defaults.
    deterministic : bool
        Whether equal inputs must give equal bits on every run, and the last update must win.
    bounds : str, optional
        ``"raise"``, ``"drop"`` or ``"trust"``; ``None`` means raise on CPU and drop on CUDA.
    enabled : bool
        ``False`` leaves TVM's own operators to TVM.
    """

    implementation: str | None = None
    knobs: tuple[tuple[str, int], ...] = ()
    deterministic: bool = False
    bounds: str | None = None
    enabled: bool = True

    def bounds_for(self, target_kind: str) -> str:
        """The bounds policy for a target kind."""
        return self.bounds or ("drop" if target_kind == "cuda" else "raise")


_DEFAULT = Options()
_CURRENT: ContextVar[Options] = ContextVar("tvm_scatter_options", default=_DEFAULT)


def current_options() -> Options:
    """The options in force here."""
    return _CURRENT.get()


@contextmanager
def options(**changes: Any) -> Iterator[Options]:
    """Set options for what is compiled inside the block; blocks nest.

    Parameters
    ----------
    **changes
        Fields of :class:`Options`: ``implementation``, ``knobs`` (a mapping), ``deterministic``,
        ``bounds``, ``enabled``.

    Raises
    ------
    ScatterError
        If an option or a value is unknown.
    """
    known = Options.__dataclass_fields__
    for name in changes:
        if name not in known:
            raise ScatterError(
                f"options: unknown option {name!r}; it must be one of {', '.join(known)}."
            )
    bounds = changes.get("bounds")
    if bounds is not None and bounds not in BOUNDS:
        raise ScatterError(f"options: bounds={bounds!r} must be one of {', '.join(BOUNDS)}.")
    for name in ("deterministic", "enabled"):
        if not isinstance(changes.get(name, False), bool):
            raise ScatterError(f"options: {name}={changes[name]!r} must be True or False.")
    implementation = changes.get("implementation")
    if implementation is not None and not isinstance(implementation, str):
        raise ScatterError(f"options: implementation={implementation!r} must be a name.")
    if "knobs" in changes:
        changes["knobs"] = _knobs(changes["knobs"])
    token = _CURRENT.set(replace(_CURRENT.get(), **changes))
    try:
        yield _CURRENT.get()
    finally:
        _CURRENT.reset(token)


def _knobs(value: Any) -> tuple[tuple[str, int], ...]:
    try:
        knobs = dict(value)
    except (TypeError, ValueError):
        knobs = {None: None}
    if not all(isinstance(name, str) and isinstance(knobs[name], int) for name in knobs):
        raise ScatterError(f"options: knobs={value!r} must map names to integers.")
    return tuple(sorted(knobs.items()))
