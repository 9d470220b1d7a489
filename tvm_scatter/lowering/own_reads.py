"""Calls that read by index, as calls of this package's operators, which have more attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.ops import read_ops
from tvm_scatter.ops.read_forms import ByAxes, ByElements

from .reads import Read


def own_read(data: Any, indices: Sequence[Any], read: Read, **attributes: bool) -> relax.Call:
    """A read by an operator of this package.

    Parameters
    ----------
    read : Read
        How it is read.
    **attributes
        ``wrap_negative``, ``in_range`` and ``checked``, as :func:`~tvm_scatter.ops.read_ops.index`
        takes them.
    """
    form = read.form
    given: dict[str, Any] = {"operator": read.check.operator, **attributes}
    if isinstance(form, ByAxes):
        made = read_ops.index(data, indices, form.axes, **given)
    elif isinstance(form, ByElements):
        made = read_ops.gather_elements(data, indices[0], form.axis, **given)
    else:
        made = read_ops.gather_nd(data, indices[0], form.batch, **given)
    assert isinstance(made, relax.Call)
    return made
