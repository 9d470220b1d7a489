"""The ``FLegalize`` of means and deviations of 16-bit floats, computed in single precision.

TVM adds up in the type of the numbers and divides by their count in that type, too: 2048 is the
largest sum of ones in float16, and a count of 65536 is infinite there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, topi

from tvm_scatter.problem.reductions import HALVES

from .legalizations import put_in_front, stock

_NAMES = ("relax.mean", "relax.variance", "relax.std")


def install_legalizations() -> None:
    """Put the functions in front of TVM's. Calling it again changes nothing."""
    put_in_front(_NAMES, legalize)


def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit what TVM would, of the numbers in single precision, and round once."""
    dtype = str(call.args[0].ty.dtype)
    return stock[call.op.name](_Wide(bb, dtype) if dtype in HALVES else bb, call)


class _Wide:
    """Takes the place of a block builder: functions of a tensor get it in single precision."""

    def __init__(self, bb: relax.BlockBuilder, dtype: str) -> None:
        self._bb, self._dtype = bb, dtype

    def call_te(self, compute: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Emit a function of a tensor and what describes the reduction."""

        def wide(values: te.Tensor, *rest: Any) -> te.Tensor:
            return topi.cast(compute(topi.cast(values, "float32"), *rest), self._dtype)

        return self._bb.call_te(wide, *args, **more)
