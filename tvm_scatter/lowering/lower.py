"""Lowers a call to a problem and its operands. Nothing is emitted."""

from __future__ import annotations

from tvm_scatter.ops.names import COPY_RANGES, INDEX_PUT, SCATTER_ELEMENTS
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.options import Options
from tvm_scatter.selection.backend import Backend, backend_for

from .copy_ranges import as_index_put
from .draft import Draft, Lowered
from .elements import lower_elements
from .put import lower_put
from .tuples import lower_tuples


def lower(call: ScatterCall, options: Options, target_kind: str) -> Lowered:
    """Lower a call of any scatter operator.

    Raises
    ------
    ScatterError
        If the shapes, types, axis or reduction are not valid together.
    """
    if call.form == COPY_RANGES:
        # All positions are known to lie inside the data.
        return lower_put(Draft(as_index_put(call), options, bounds="trust"))
    draft = Draft(call, options, _bounds(call, backend_for(target_kind), options))
    if call.form == SCATTER_ELEMENTS:
        return lower_elements(draft)
    return lower_put(draft) if call.form == INDEX_PUT else lower_tuples(draft)


def _bounds(call: ScatterCall, backend: Backend, options: Options) -> str:
    """The policy for bad indices of a call, given what is known of them."""
    if call.in_range:
        return "trust"
    if call.leaves_out:
        return "drop"
    if call.checked and not (call.in_place and not call.temporary):
        return backend.bounds_once_checked(options)
    # Before a caller's tensor is overwritten, the host must know that all indices are good.
    return backend.bounds_under(options)
