"""Options of the strategy and the passes, set for a block of the current thread or task."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

from tvm_scatter.problem.scatter_problem import BOUNDS

from .errors import ScatterError

#: The environment variable that switches CUDA graphs on by default.
CUDA_GRAPH_VARIABLE = "TVM_SCATTER_CUDA_GRAPH"


@dataclass(frozen=True)
class Options:
    """Options of the strategy and of the passes.

    Parameters
    ----------
    implementation : str, optional
        The name of the implementation to use for every scatter; ``None`` leaves the choice to the
        strategy.
    knobs : tuple of (str, int), optional
        Knob values for the forced implementation; the rest keep their defaults.
    deterministic : bool
        Whether equal inputs must give equal bits on every run. Without a reduction, the last of
        several updates of one destination then wins.
    bounds : str, optional
        ``"raise"``, ``"drop"`` or ``"trust"``; ``None`` means raise on CPU and drop on CUDA.
    enabled : bool
        ``False`` switches this package off: TVM compiles its own operators itself.
    shipped_log : bool
        Whether to use the tuning log shipped for the target's architecture, if the current database
        has no record of the problem.
    measure : bool
        Whether to time the two or three best implementations on this machine's device, where their
        predictions differ by less than these are usually off, and to remember the result in the
        user's folder. Compiling takes some seconds more for each new problem.
    fold_broadcast_index : bool
        Whether to rewrite an index of one number per row, in whatever shape, as one index per row.
    index_facts : bool
        Whether what is proved of indices is used: those in range are not checked, unique ones need
        no atomics.
    bulk : bool
        Whether to merge chains of scatters into one tensor.
    turn_lines : bool
        Whether lines that share an index, such as the channels of an image, are turned into rows
        where that is predicted to take less.
    by_place : bool
        Whether each place looks up its update, where plain updates go to places far apart and that
        is predicted to take less, on GPUs.
    in_place : bool
        Whether a scatter overwrites its data if it is proved that nothing reads it afterwards.
    batch : bool, optional
        Whether to merge independent scatters of one shape. ``None`` merges small scatters on a GPU
        only, where launches take most of the time.
    fuse : bool, optional
        Whether a scatter computes its updates itself, instead of reading them from a tensor that
        other operators compute. ``None`` leaves it to the target: CPUs and GPUs do, but GPUs not
        where they capture graphs.
    share_order : bool, optional
        Whether scatters by one index share one order of their updates, where it pays. ``None``
        leaves it to the target, and to sizes of which a greatest value is known.
    share_checks : bool
        Whether operators by one index share one check of it, where a bad index is an error.
    fill : bool, optional
        Whether a scatter into zeros, or another number everywhere, fills the tensor itself where
        that costs less. ``None`` does so on GPUs where they capture no graphs.
    epilogue : bool, optional
        Whether a scatter computes the elementwise operators that follow it where it writes its
        result, where that costs less. ``None`` does so on GPUs where they capture no graphs.
    gather : bool
        Whether reads by index are fused with what they feed, and scheduled by this package, on
        GPUs. So are elementwise functions whose rows lie side by side, and reductions along them.
    products : bool
        Whether products in single precision have a schedule of this package on GPUs, read rows by
        index and transposed factors themselves, and compute what follows them in any shape.
    attention : bool
        Whether attention of 16-bit floats is one kernel that writes no tensor of queries times
        keys, on GPUs whose tensor cores multiply them.
    reductions : bool
        Whether reductions of few elements, and rows that are reduced or normalised, are spread over
        threads by this package, on GPUs, with what is computed in front of them. Logarithms of
        softmaxes of long rows are not written then, where only sums and single elements are read.
    loops : bool
        Whether tensors of one shape that are computed element by element from the same are computed
        by one kernel, on GPUs.
    transposes : bool
        Whether functions that transpose go through tiles in shared memory, on GPUs.
    row_sums : bool, optional
        Whether sums, maxima and minima along rows compute the rows themselves, where those are
        read by index. ``None`` leaves it to the target.
    sum_logits : bool, optional
        Whether a scatter that computes a softmax computes its logits, too, where these are sums
        along rows that it can read. ``None`` leaves it to the target.
    donate : tuple of str
        Names of function parameters that scatters may overwrite.
    cuda_graph : bool, optional
        Whether to capture kernels in CUDA graphs, and so choose only implementations that can be
        captured. ``None`` uses the environment variable ``TVM_SCATTER_CUDA_GRAPH``, 0 or 1.
    overlap_launches : bool, optional
        Whether a kernel of a scatter or an order may be launched while the one before it ends, on
        GPUs of compute capability 9.0 and more. ``None`` means those that gain by it, which make
        lists and orders or are so short that their launch counts, and none where CUDA graphs are
        captured.
    schedule : bool, optional
        Whether products, reductions and the rest get a default schedule on CPUs, where TVM has
        none. ``None`` means only in :func:`tvm_scatter.pipeline`.
    """

    implementation: str | None = None
    knobs: tuple[tuple[str, int], ...] = ()
    deterministic: bool = False
    bounds: str | None = None
    enabled: bool = True
    shipped_log: bool = True
    measure: bool = False
    fold_broadcast_index: bool = True
    index_facts: bool = True
    turn_lines: bool = True
    by_place: bool = True
    bulk: bool = True
    in_place: bool = True
    batch: bool | None = None
    fuse: bool | None = None
    share_values: bool = True
    share_order: bool | None = None
    share_checks: bool = True
    fill: bool | None = None
    epilogue: bool | None = None
    gather: bool = True
    products: bool = True
    attention: bool = True
    reductions: bool = True
    loops: bool = True
    transposes: bool = True
    row_sums: bool | None = None
    sum_logits: bool | None = None
    donate: tuple[str, ...] = ()
    cuda_graph: bool | None = None
    overlap_launches: bool | None = None
    schedule: bool | None = None

    @property
    def overlaps(self) -> bool | None:
        """Whether launches overlap; ``None`` if those do that gain by it."""
        return False if self.overlap_launches is None and self.captures else self.overlap_launches

    @property
    def captures(self) -> bool:
        """Whether CUDA graphs are asked for, by this option or the environment."""
        if self.cuda_graph is None:
            return _is_switched_on(CUDA_GRAPH_VARIABLE)
        return self.cuda_graph


def _is_switched_on(variable: str) -> bool:
    """Whether an environment variable is 1; not set, empty or 0 is off."""
    text = os.environ.get(variable, "").strip()
    if text not in ("", "0", "1"):
        raise ScatterError(f"options: the environment variable {variable}={text} must be 0 or 1.")
    return text == "1"


#: The boolean options; some may also be ``None``.
_FLAGS = {
    name: kind for name, kind in get_type_hints(Options).items() if kind in (bool, bool | None)
}
_DEFAULT = Options()
_CURRENT: ContextVar[Options] = ContextVar("tvm_scatter_options", default=_DEFAULT)


def current_options() -> Options:
    """The options of the current thread or task."""
    return _CURRENT.get()


@contextmanager
def options(**changes: Any) -> Iterator[Options]:
    """Set options for what is compiled inside the block; blocks nest.

    Parameters
    ----------
    **changes
        Fields of :class:`Options`; ``knobs`` may be a mapping.

    Raises
    ------
    ScatterError
        If an option or a value is unknown.
    """
    changed = replace(_CURRENT.get(), **checked(changes))
    if changes.get("knobs") and changed.implementation is None:
        raise ScatterError(
            f"options: knobs={changes['knobs']!r} are those of an implementation; name it as well."
        )
    token = _CURRENT.set(changed)
    try:
        yield _CURRENT.get()
    finally:
        _CURRENT.reset(token)


def checked(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Check options, and convert their values to those that :class:`Options` holds.

    Raises
    ------
    ScatterError
        If an option or a value is unknown.
    """
    changes = dict(changes)
    known = Options.__dataclass_fields__
    for name in changes:
        if name not in known:
            raise ScatterError(
                f"options: unknown option {name!r}; it must be one of {', '.join(known)}."
            )
    bounds = changes.get("bounds")
    if bounds is not None and not (isinstance(bounds, str) and bounds in BOUNDS):
        raise ScatterError(f"options: bounds={bounds!r} must be one of {', '.join(BOUNDS)}.")
    for name, kind in _FLAGS.items():
        if not isinstance(changes.get(name, False), kind):
            raise ScatterError(f"options: {name}={changes[name]!r} must be True or False.")
    implementation = changes.get("implementation")
    if implementation is not None and not isinstance(implementation, str):
        raise ScatterError(f"options: implementation={implementation!r} must be a name.")
    if "knobs" in changes:
        changes["knobs"] = _knobs(changes["knobs"])
    if "donate" in changes:
        changes["donate"] = _names(changes["donate"])
    return changes


def _knobs(value: Any) -> tuple[tuple[str, int], ...]:
    try:
        knobs = dict(value)
    except (TypeError, ValueError):
        knobs = {None: None}
    numbers = all(isinstance(each, int) and not isinstance(each, bool) for each in knobs.values())
    if not (numbers and all(isinstance(name, str) for name in knobs)):
        raise ScatterError(f"options: knobs={value!r} must map names to integers.")
    return tuple(sorted(knobs.items()))


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ScatterError(f"options: donate={value!r} must be a list of parameter names.")
    names = tuple(value)
    if not all(isinstance(name, str) for name in names):
        raise ScatterError(f"options: donate={value!r} must be a list of parameter names.")
    return names
