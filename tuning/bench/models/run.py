"""Checks and times the rows of the benchmark of models one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.target import Target

import tvm_scatter
from tvm_scatter.errors import ScatterError
from tvm_scatter.tuning.bench.bench import share_threads
from tvm_scatter.tuning.measure.time_shares import shares_of, time_shares

from . import timing
from .case import Case
from .check import reference
from .figures import COMPILE, OURS, Figures
from .ours import Compiled, arguments, compiled, imported
from .rows import Row

_EAGER = "torch"


@dataclass
class Alike:
    """What rows share whose module and shapes are the same: compiled code takes long to make.

    Attributes
    ----------
    ours : dict
        What this package compiled, by the form.
    failed : dict
        What became of forms that it did not compile.
    peer : callable or None
        What ``torch.compile`` made.
    """

    name: str
    ours: dict[str, Compiled] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    peer: Callable[..., Any] | None = None


def run(
    rows: Iterable[Row],
    device: str,
    target: Target,
    forms: Sequence[str],
    compile_peer: bool,
    bandwidth: float,
    dynamic: bool = False,
    turn: AbstractContextManager[Any] | None = None,
) -> Iterator[Figures]:
    """Check and time rows one by one.

    Parameters
    ----------
    device : str
        PyTorch's name of the device, ``"cuda"`` or ``"cpu"``.
    forms : sequence of str
        The forms of ours, of :data:`~.ours.OPTIONS`.
    compile_peer : bool
        Whether ``torch.compile`` is a peer as well; it takes seconds for each row.
    bandwidth : float
        Bytes per microsecond of a large copy.
    dynamic : bool, optional
        Whether sizes that vary are known at run time only, to ``torch.compile`` as well.
    turn : context manager, optional
        What is held while a row is timed or computes anything else on the device, so that nobody
        else does. Only what ``torch.compile`` does first is done without: it takes long.

    Raises
    ------
    ScatterError
        If the GPU does not answer any more, as after a fault.
    """
    if device == "cpu":
        share_threads()
    alike = Alike("")
    turn = turn or nullcontext()
    for row in rows:
        case = row.make()
        if alike.name != row.alike:
            alike = _made_alike(row, case, target, forms, compile_peer, dynamic)
        with torch.no_grad():
            with turn:
                case = replace(case.on(device), module=case.module.to(device))
                if dynamic:
                    _tell_what_varies(case)
            ready = _ready(row, case, alike, device, target, turn)
            with turn:
                _time(row, case, alike, ready, device, bandwidth)
        yield ready.figures
        del case
        if device == "cuda":
            _free(row)


def _tell_what_varies(case: Case) -> None:
    """Let ``torch.compile`` know the sizes that do not vary, such as the number of features."""
    for each, axes in zip(case.inputs, case.varying, strict=True):
        torch._dynamo.maybe_mark_dynamic(each, axes)


def _free(row: Row) -> None:
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError as error:
        raise ScatterError(
            f"bench: the GPU does not answer after {row.name!r}: {last_line(error)}."
        ) from error


def _made_alike(
    row: Row,
    case: Case,
    target: Target,
    forms: Sequence[str],
    compile_peer: bool,
    dynamic: bool,
) -> Alike:
    made = Alike(row.alike)
    mod = imported(case, dynamic=dynamic)
    for form in forms:
        try:
            made.ours[form] = compiled(mod, target, form)
        except Exception as error:  # the report shows it
            made.failed[f"{OURS}{form}"] = last_line(error)
    if compile_peer:
        torch._dynamo.reset()
        made.peer = torch.compile(case.module, dynamic=None if dynamic else False)
    return made


@dataclass
class _Ready:
    """Calls that were compiled and made once, and what is known of them."""

    figures: Figures
    ours: dict[str, Callable[[], Any]]
    peers: dict[str, Callable[[], Any]]
    order: Callable[[], Any] | None


def _ready(
    row: Row,
    case: Case,
    alike: Alike,
    device: str,
    target: Target,
    turn: AbstractContextManager[Any],
) -> _Ready:
    figures = Figures(row.name, failed=dict(alike.failed))
    with turn:
        ours = _checked(row, case, alike, figures)
        _wait(device)
    peers = _peers(case, alike, figures, device, turn)
    order = None
    if device == "cuda" and case.indices and not row.is_model:
        order = _order(case.indices, case.extent, device, target)
        with turn:
            order()
            _wait(device)
    return _Ready(figures, ours, peers, order)


def _wait(device: str) -> None:
    """Until the device has done all that it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def _time(row: Row, case: Case, alike: Alike, ready: _Ready, device: str, bandwidth: float) -> None:
    figures, peers = ready.figures, ready.peers
    spent = timing.times({**ready.ours, **peers}, device)
    figures.ours = {name: spent[name] for name in ready.ours}
    figures.peers = {name: spent[name] for name in peers}
    if device == "cuda":
        for name, peer in peers.items():
            figures.memory[name] = timing.peak_bytes(peer)
    if row.is_model:
        _split(case, alike, ready, device)
        return
    if ready.order is not None:
        figures.order = timing.times({"order": ready.order}, device)["order"]
    figures.floor = case.floor_bytes / bandwidth + figures.order


def _checked(row: Row, case: Case, alike: Alike, figures: Figures) -> dict[str, Callable[[], Any]]:
    """Our forms, ready to be called, each checked."""
    wanted = reference(case)
    found: dict[str, Callable[[], Any]] = {}
    for form, each in alike.ours.items():
        call = each.on(case.inputs)
        try:
            wanted.check(f"{row.name}: {form}", call())
            figures.memory[form] = each.planned_bytes(case.inputs)
        except Exception as error:  # the report shows it
            figures.failed[f"{OURS}{form}"] = last_line(error)
            continue
        found[form] = call
    return found


def _peers(
    case: Case,
    alike: Alike,
    figures: Figures,
    device: str,
    turn: AbstractContextManager[Any],
) -> dict[str, Callable[[], Any]]:
    """The peers' forms that can do it, each called once."""
    makers: dict[str, Callable[..., Any]] = {
        _EAGER: lambda *inputs: partial(case.module, *inputs),
        **case.prepared,
    }
    if alike.peer is not None:
        peer = alike.peer
        makers[COMPILE] = lambda *inputs: partial(peer, *inputs)
    found = {}
    for name, maker in makers.items():
        try:
            with nullcontext() if name == COMPILE else turn:
                call = maker(*case.inputs)
                call()
                _wait(device)
        except Exception as refusal:  # the report shows it
            figures.failed[name] = last_line(refusal)
            continue
        found[name] = call
    return found


def _split(case: Case, alike: Alike, ready: _Ready, device: str) -> None:
    """How the time of a whole model is spent."""
    figures = ready.figures
    for name, peer in ready.peers.items():
        figures.products[name] = timing.products_of(timing.profiled(peer, device))
    for name, form in ready.ours.items():
        if device == "cuda":
            kernels = timing.profiled(form, device)
            shares, spent = shares_of(kernels.items()), sum(kernels.values())
        else:
            shares = time_shares(alike.ours[name].executable, arguments(case.inputs))
            spent = figures.ours[name]
        figures.products[name] = shares["products"] * spent
        figures.shares[name] = shares


def _order(
    indices: Sequence[torch.Tensor], extent: int, device: str, target: Target
) -> Callable[[], Any]:
    """A call that orders the messages of each index, one after the other."""
    builder = relax.BlockBuilder()
    given = relax.Var("index", relax.TensorType(tuple(indices[0].shape), "int64"))
    with builder.function("main", [given]):
        builder.emit_func_output(builder.emit(tvm_scatter.order(given, extent)))
    executable = tvm.compile(builder.get(), target=target)
    function = relax.VirtualMachine(executable, tvm.device(device))["main"]
    known = arguments(indices)
    return lambda: [function(each) for each in known]


def last_line(error: BaseException) -> str:
    """The end of what an error says."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1][:200]
