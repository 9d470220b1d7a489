"""Lets convolutions on a CPU read what was padded before, in place of asking at each element.

TVM computes the padding where a convolution reads it. Then the innermost loop has a branch, and is
no product that vectors could compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.ops.called import operator_of

from .analysis.bindings import Bindings
from .functions import Change, Emit, with_changes, with_values

_CONVOLUTIONS: dict[str, Callable[..., relax.Expr]] = {
    "relax.nn.conv1d": relax.op.nn.conv1d,
    "relax.nn.conv2d": relax.op.nn.conv2d,
    "relax.nn.conv3d": relax.op.nn.conv3d,
}
#: The letters of the axes that windows move along, in a layout such as ``NCHW``.
_MOVED = "DHW"


def PaddingApart() -> tvm.transform.Pass:
    """The pass."""

    def change(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda _, function: _changed(mod, function))

    return tvm.transform.module_pass(change, opt_level=0, name="PaddingApart")


def _changed(mod: tvm.IRModule, function: relax.Function) -> relax.Function | None:
    changes: dict[Any, Change] = {
        each.var: _padded_before(each.value)
        for each in Bindings(function)
        if operator_of(each.value) in _CONVOLUTIONS and _pads(each.value)
    }
    return with_values(mod, function, changes) if changes else None


def _pads(call: relax.Call) -> bool:
    """Whether a convolution pads, and axes are not split into blocks."""
    layout = str(call.attrs.data_layout)
    moved = [letter for letter in layout if letter in _MOVED]
    return layout.isalpha() and layout.isupper() and bool(moved) and any(call.attrs.padding)


def _padded_before(call: relax.Call) -> Change:
    def change(emit: Emit) -> relax.Expr:
        data, weight = call.args
        attrs, layout = call.attrs, str(call.attrs.data_layout)
        moved = [axis for axis, letter in enumerate(layout) if letter in _MOVED]
        padding = [int(each) for each in attrs.padding]
        before, after = padding[: len(moved)], padding[len(moved) :]
        widths = dict(zip(moved, zip(before, after, strict=True), strict=True))
        wide = [each for axis in range(len(layout)) for each in widths.get(axis, (0, 0))]
        return _CONVOLUTIONS[call.op.name](
            emit(relax.op.nn.pad(data, wide)),
            weight,
            strides=list(attrs.strides),
            padding=[0] * len(padding),
            dilation=list(attrs.dilation),
            groups=int(attrs.groups),
            data_layout=layout,
            kernel_layout=str(attrs.kernel_layout),
            out_layout=str(attrs.out_layout),
            out_dtype=attrs.out_dtype,
        )

    return change
