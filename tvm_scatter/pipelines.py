"""Compilation pipelines: TVM's own with the passes of this package in front.

``tvm.compile`` looks up its default pipeline in each call. So it is enough to replace the functions
that it finds there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import tvm
from tvm import relax
from tvm.relax import pipeline as tvm_pipelines
from tvm.relax.backend.utils import BackendDispatcher
from tvm.target import Target

from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.targets import to_target

from .errors import ScatterError
from .options import checked, current_options, options
from .passes import (
    BranchFunctions,
    DeferBoundsCheck,
    HostConstants,
    OwnLines,
    SizeBounds,
    last_passes,
    passes,
)
from .passes.check_exported_sizes import CheckExportedSizes
from .passes.check_extents import CheckExtents
from .passes.check_read_sizes import CheckReadSizes
from .passes.functions import called_functions
from .passes.living_constants import LivingConstants
from .passes.made_for import check_made_for
from .schedules.any_address import AnyAddress
from .schedules.cpu import scheduled_for_cpu
from .schedules.cpu.row_reductions import scheduled_row_reductions
from .schedules.empty_outputs import LeaveOutEmptyOutputs
from .schedules.initialised import InitialiseReductions
from .schedules.wide_reductions import WideReductions

#: TVM's pipelines that begin with legalization: names that are also functions of TVM's module.
#: ``tvm.compile`` uses the first on CPUs.
_NAMED = ("default", "default_build", "zero")
_FUNCTIONS = ("default_build_pipeline", "zero_pipeline")
_STOCK = "_tvm_scatter_stock"
#: The config entry with which TVM's own pipeline switches CUDA graphs on.
_TVM_CUDA_GRAPH = "relax.backend.use_cuda_graph"


def pipeline(target: Any = None, **switches: Any) -> tvm.transform.Pass:
    """TVM's default pipeline for a target plus the passes of this package.

    It works after :func:`tvm_scatter.uninstall`, too, when ``tvm.compile`` does not run the passes
    by itself.

    Parameters
    ----------
    target : tvm.target.Target or str, optional
        The target to compile for; by default the current target.
    **switches
        Options that hold while the pipeline runs, as :func:`tvm_scatter.options` takes them:
        ``fold_broadcast_index``, ``bulk``, ``in_place``, ``batch``, ``donate``, ``cuda_graph``,
        ``schedule`` and so on. Unlike in ``tvm.compile`` alone, ``schedule`` is on by default.

    Returns
    -------
    pipeline : tvm.transform.Pass
        For the ``relax_pipeline`` argument of ``tvm.compile``.

    Raises
    ------
    ScatterError
        If a switch or a value is unknown, the target is unknown, or CUDA graphs are asked for and
        the target has none.
    """
    switches = checked(switches)
    target = Target.current(allow_none=True) if target is None else to_target(target)
    if switches.get("cuda_graph") and target is not None and not _has_graphs(target):
        raise ScatterError(
            f"pipeline: cuda_graph=True: target {target.kind.name} has no CUDA graphs."
        )
    if target is not None and BackendDispatcher.is_gpu_target(target):
        stock = _stock(tvm_pipelines.get_default_pipeline)(target)
    else:
        stock = _stock(tvm_pipelines.PIPELINE_MAP["default"])()

    def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        with options(**switches), nullcontext() if target is None else target:
            return _run(mod, stock, schedules=True)

    return tvm.transform.module_pass(run, opt_level=0, name="TVMScatterPipeline")


def install_pipelines() -> None:
    """Put the passes in front of TVM's default pipelines. Calling it again changes nothing."""
    for name in _NAMED:
        tvm_pipelines.PIPELINE_MAP[name] = _with_passes(tvm_pipelines.PIPELINE_MAP[name])
    for name in _FUNCTIONS:
        setattr(tvm_pipelines, name, _with_passes(getattr(tvm_pipelines, name)))
    wrapped = _with_passes(tvm_pipelines.get_default_pipeline)
    tvm_pipelines.get_default_pipeline = relax.get_default_pipeline = wrapped
    tvm_pipelines.library_dispatch_passes = _passes_first(tvm_pipelines.library_dispatch_passes)


def uninstall_pipelines() -> None:
    """Restore TVM's own pipelines."""
    for name in _NAMED:
        tvm_pipelines.PIPELINE_MAP[name] = _stock(tvm_pipelines.PIPELINE_MAP[name])
    for name in _FUNCTIONS:
        setattr(tvm_pipelines, name, _stock(getattr(tvm_pipelines, name)))
    stock = _stock(tvm_pipelines.get_default_pipeline)
    tvm_pipelines.get_default_pipeline = relax.get_default_pipeline = stock
    tvm_pipelines.library_dispatch_passes = _stock(tvm_pipelines.library_dispatch_passes)


def _run(mod: tvm.IRModule, stock: tvm.transform.Pass, schedules: bool = False) -> tvm.IRModule:
    """Run the passes of the current options, then TVM's pipeline.

    Parameters
    ----------
    schedules : bool
        Whether CPUs get default schedules where the options leave that open.
    """
    wanted = current_options()
    mod = _rewrite(mod)
    if wanted.enabled:
        last = [WideReductions(), InitialiseReductions(), LeaveOutEmptyOutputs()]
        # The others add functions in front of which the first would put its own checks.
        last += [CheckExtents(), CheckReadSizes(), CheckExportedSizes(), LivingConstants()]
        stock = tvm.transform.Sequential([stock, *last])
    target = Target.current(allow_none=True)
    on_gpu = target is not None and BackendDispatcher.is_gpu_target(target)
    schedules = schedules if wanted.schedule is None else wanted.schedule
    if wanted.enabled:
        mod = scheduled_row_reductions(mod, target)
    mod = tvm.transform.Sequential(last_passes(wanted, on_gpu, schedules))(mod)
    if schedules:
        mod = scheduled_for_cpu(mod, target)
    if schedules and not on_gpu:
        stock = tvm.transform.Sequential([stock, AnyAddress()])
    if called_functions(mod):
        # With CUDA graphs, TVM would give a function and those that it calls the same memory.
        with _capturing(False):
            return stock(mod)
    if not wanted.captures or target is None or not _has_graphs(target):
        return stock(mod)
    with _capturing(True):
        return stock(mod)


def _has_graphs(target: Target) -> bool:
    return backend_of(target).captures_graphs


def _rewrite(mod: tvm.IRModule, _context: Any = None) -> tvm.IRModule:
    """Run the passes of the current options."""
    check_made_for(mod)
    last = [OwnLines(), BranchFunctions(), DeferBoundsCheck()]
    return tvm.transform.Sequential(
        [HostConstants(), SizeBounds(), *passes(current_options()), *last]
    )(mod)


def _capturing(captures: bool) -> tvm.transform.PassContext:
    """The current pass context, with CUDA graphs switched on or off."""
    current = tvm.transform.PassContext.current()
    return tvm.transform.PassContext(
        opt_level=current.opt_level,
        required_pass=current.required_pass,
        disabled_pass=current.disabled_pass,
        instruments=current.instruments,
        config={**dict(current.config), _TVM_CUDA_GRAPH: captures},
    )


def _stock(make: Callable[..., Any]) -> Callable[..., Any]:
    return getattr(make, _STOCK, make)


def _with_passes(make: Callable[..., Any]) -> Callable[..., Any]:
    # After a reload of this package, an older wrapper may be installed: unwrap it.
    stock = _stock(make)

    def make_with_passes(*args: Any, **kwargs: Any) -> tvm.transform.Pass:
        made = stock(*args, **kwargs)

        def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
            return _run(mod, made)

        return tvm.transform.module_pass(run, opt_level=0, name="TVMScatterPipeline")

    setattr(make_with_passes, _STOCK, stock)
    return make_with_passes


def _passes_first(make: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Put the passes in front of ``make``'s, for pipelines that users assemble from TVM's parts."""
    stock = _stock(make)

    def make_with_passes(*args: Any, **kwargs: Any) -> list[Any]:
        first = tvm.transform.module_pass(_rewrite, opt_level=0, name="TVMScatterPasses")
        return [first, *stock(*args, **kwargs)]

    setattr(make_with_passes, _STOCK, stock)
    return make_with_passes
