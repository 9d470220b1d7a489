"""The last passes over device functions, right before TVM writes CUDA of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm.tirx import compilation_pipeline as tvm_pipelines

from tvm_scatter.options import current_options

from .exact_doubles import ExactDoubles
from .floats_of_places import HideFloatsOfPlaces, ShowFloatsOfPlaces
from .named_choices import HideNamedChoices
from .narrow_infinities import WidenInfinities
from .narrow_integers import WrapNarrowIntegers

#: The pipeline that TVM builds functions with.
_PIPELINE = "s_tir"
_STOCK = "_tvm_scatter_stock"


def install_device_passes() -> None:
    """Let TVM run the passes. Calling it again changes nothing."""
    stock = _stock()

    def with_passes(*args: Any, **kwargs: Any) -> tuple[Any, Any, Callable[[], Any]]:
        lower, finalize_host, finalize_device = stock(*args, **kwargs)

        def finalize() -> tvm.transform.Pass:
            if not current_options().enabled:
                return finalize_device()
            first = [HideNamedChoices(), HideFloatsOfPlaces()]
            last = [ShowFloatsOfPlaces(), WrapNarrowIntegers(), WidenInfinities(), ExactDoubles()]
            return tvm.transform.Sequential([*first, finalize_device(), *last])

        return lower, finalize_host, finalize

    setattr(with_passes, _STOCK, stock)
    tvm_pipelines.PIPELINE_MAP[_PIPELINE] = with_passes


def uninstall_device_passes() -> None:
    """Restore TVM's own pipeline."""
    tvm_pipelines.PIPELINE_MAP[_PIPELINE] = _stock()


def _stock() -> Callable[..., Any]:
    # After a reload of this package, an older wrapper may be installed: unwrap it.
    installed = tvm_pipelines.PIPELINE_MAP[_PIPELINE]
    return getattr(installed, _STOCK, installed)
