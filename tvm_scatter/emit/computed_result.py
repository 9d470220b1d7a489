"""The result of a scatter that is computed from its own result where that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from .computed_updates import BRANCH, ComputedUpdates, Producer, function_name, loads_of


class ComputedResult(ComputedUpdates):
    """Each element of the result as an expression of the scatter's own, and of other tensors.

    Parameters
    ----------
    producer : Producer
        The function that computes the result. Its first leaf is the scatter's own result.
    leaves : sequence of buffer
        The other leaves in the function that is emitted: one-dimensional.
    symbols : mapping of str to expression
        The symbolic sizes in the function that is emitted.
    """

    def __init__(
        self, producer: Producer, leaves: Sequence[Any], symbols: Mapping[str, Any]
    ) -> None:
        self.own = tirx.decl_buffer((1,), producer.dtypes[0], "own")
        super().__init__(producer, [self.own, *leaves], symbols)
        self.value = _without_branches(self.value)
        self.leaves = list(leaves)
        self.dtype = str(producer.buffers[-1].dtype)

    @property
    def own_loads(self) -> list[Any]:
        """The loads of the element of the scatter's own result, which stands at the same place."""
        return [load for load in loads_of(self.value) if load.source.same_as(self.own)]


def _without_branches(value: Any) -> Any:
    """The expression with choices in place of branches: all that it reads is there."""

    def choice(call: Any) -> Any:
        return tirx.Select(*call.args) if function_name(call) == BRANCH else call

    return tvm_ffi.structural_map(value, (tvm.ir.Call, choice))
