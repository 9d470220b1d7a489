"""Compilation pipelines: TVM's own with the passes of this package in front.

``tvm.compile`` looks its pipeline up when it is called, so wrapping the places where it looks is
enough for a plain ``tvm.compile`` to run the passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax import pipeline as tvm_pipelines

from .passes import FoldBroadcastIndex

#: Pipelines by name that begin with legalization; the first is what ``tvm.compile`` takes on CPUs.
_NAMED = ("default", "default_build", "zero")
_STOCK = "_tvm_scatter_stock"


def passes() -> list[tvm.transform.Pass]:
    """The passes that run ahead of TVM's own."""
    return [FoldBroadcastIndex()]


def pipeline(target: Any = None) -> tvm.transform.Pass:
    """TVM's default pipeline for a target plus the passes of this package.

    It is the same whether the package is installed or not, so it serves those who leave TVM's own
    pipelines alone.

    Parameters
    ----------
    target : tvm.target.Target or str, optional
        What will be compiled for; by default the current target.

    Returns
    -------
    pipeline : tvm.transform.Pass
        For the ``relax_pipeline`` argument of ``tvm.compile``.
    """
    if target is None:
        target = tvm.target.Target.current(allow_none=True)
    elif not isinstance(target, tvm.target.Target):
        target = tvm.target.Target(target)
    if target is not None and "gpu" in target.keys:
        stock = _stock(tvm_pipelines.get_default_pipeline)(target)
    else:
        stock = _stock(tvm_pipelines.PIPELINE_MAP["default"])()
    return tvm.transform.Sequential([*passes(), stock])


def install_pipelines() -> None:
    """Put the passes in front of TVM's default pipelines; harmless when they are there already."""
    for name in _NAMED:
        tvm_pipelines.PIPELINE_MAP[name] = _with_passes(tvm_pipelines.PIPELINE_MAP[name])
    wrapped = _with_passes(tvm_pipelines.get_default_pipeline)
    tvm_pipelines.get_default_pipeline = relax.get_default_pipeline = wrapped


def uninstall_pipelines() -> None:
    """Give TVM its own pipelines back."""
    for name in _NAMED:
        tvm_pipelines.PIPELINE_MAP[name] = _stock(tvm_pipelines.PIPELINE_MAP[name])
    stock = _stock(tvm_pipelines.get_default_pipeline)
    tvm_pipelines.get_default_pipeline = relax.get_default_pipeline = stock


def _stock(make: Callable[..., Any]) -> Callable[..., Any]:
    return getattr(make, _STOCK, make)


def _with_passes(make: Callable[..., Any]) -> Callable[..., Any]:
    # After a reload of this package what is in force is an older wrapper of ours.
    stock = _stock(make)

    def make_with_passes(*args: Any, **kwargs: Any) -> tvm.transform.Pass:
        return tvm.transform.Sequential([*passes(), stock(*args, **kwargs)])

    setattr(make_with_passes, _STOCK, stock)
    return make_with_passes
