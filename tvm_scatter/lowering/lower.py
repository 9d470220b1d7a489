"""Lowers a call to a problem and its operands. Nothing is emitted."""

from __future__ import annotations

from tvm_scatter.ops.names import COPY_RANGES, INDEX_PUT, SCATTER_ELEMENTS
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.options import Options
from tvm_scatter.selection.backend import backend_for

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
    bounds = "trust" if call.in_range else backend_for(target_kind).bounds_under(options)
    draft = Draft(call, options, bounds)
    if call.form == SCATTER_ELEMENTS:
        return lower_elements(draft)
    return lower_put(draft) if call.form == INDEX_PUT else lower_tuples(draft)
