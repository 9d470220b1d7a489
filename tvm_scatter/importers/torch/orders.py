"""Operators that compare elements with each other, in PyTorch's order of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import distances, extremes, scans, searching, sorting, unique, windows
from .call import TorchCall

_EXTREMES: dict[str, Callable[[TorchCall], Any]] = {
    **{
        f"clamp{name}": extremes.clamp
        for name in (".default", ".Tensor", "_min.default", "_min.Tensor", "_max.default")
    },
    "clamp_max.Tensor": extremes.clamp,
    "hardtanh.default": extremes.clamp,
    "relu.default": extremes.relu,
    **{
        name: partial(converter, greatest)
        for converter, names in {
            extremes.larger: ("maximum.default", "minimum.default"),
            extremes.larger_number: ("fmax.default", "fmin.default"),
            extremes.reduced: ("amax.default", "amin.default"),
            extremes.position: ("argmax.default", "argmin.default"),
            extremes.along: ("max.dim", "min.dim"),
        }.items()
        for name, greatest in zip(names, (True, False), strict=True)
    },
    **{
        f"{name}.{overload}": partial(converter, name == "max")
        for name in ("max", "min")
        for overload, converter in {"default": extremes.reduced, "other": extremes.larger}.items()
    },
}

ORDERS: dict[str, Callable[[TorchCall], Any]] = {
    **_EXTREMES,
    "sort.default": sorting.sort,
    "sort.stable": sorting.sort,
    "argsort.default": sorting.argsort,
    "argsort.stable": sorting.argsort,
    "topk.default": sorting.topk,
    "kthvalue.default": sorting.kthvalue,
    "median.default": sorting.median,
    "median.dim": sorting.median,
    "nanmedian.default": sorting.median,
    "nanmedian.dim": sorting.median,
    "mode.default": sorting.mode,
    "searchsorted.Tensor": searching.search_sorted,
    "searchsorted.Scalar": searching.search_sorted,
    "bucketize.Tensor": searching.bucketize,
    "bucketize.Scalar": searching.bucketize,
    "repeat_interleave.Tensor": searching.repeat_interleave,
    "cummax.default": partial(scans.running_extreme, True),
    "cummin.default": partial(scans.running_extreme, False),
    "logcumsumexp.default": scans.running_log_sum,
    "_unique2.default": unique.unique,
    "unique_dim.default": unique.unique_slices,
    "unique_consecutive.default": unique.unique_consecutive,
    "unfold.default": windows.unfold,
    "adaptive_max_pool2d.default": windows.adaptive_max_pool,
    "adaptive_max_pool3d.default": windows.adaptive_max_pool,
    "_cdist_forward.default": distances.cdist,
    "_pdist_forward.default": distances.pdist,
}
