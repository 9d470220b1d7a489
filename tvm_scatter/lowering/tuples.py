"""One tuple of indices for each update row: ``scatter_nd``."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_scatter.bounds.agreement import Agreement
from tvm_scatter.bounds.size_check import Place
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import check_dtypes
from tvm_scatter.problem.signature import Dim
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .draft import Draft, Lowered, dtype_of
from .operands import Operand


def lower_tuples(draft: Draft) -> Lowered:
    """Lower a call of ``scatter_nd``."""
    call, operator = draft.call, draft.operator
    data, index, updates = map(draft.operand, call.tensors)
    check_dtypes(operator, call.reduction, dtype_of(data), dtype_of(index), dtype_of(updates))
    data_shape, index_shape, update_shape = map(draft.shape, (data, index, updates))
    components = index_shape[-1] if index_shape else None
    if not isinstance(components, int) or not 0 <= components <= len(data_shape):
        raise ScatterError(
            f"{operator}: the last dimension of indices of shape {index_shape} must be a static "
            f"number from 0 to the rank of data of shape {data_shape}."
        )
    data, index, updates = _agreeing(draft, data, index, updates, components)
    data_shape, index_shape, update_shape = map(draft.shape, (data, index, updates))
    expected = index_shape[:-1] + data_shape[components:]
    if update_shape != expected:
        raise ScatterError(
            f"{operator}: updates of shape {update_shape} must have shape {expected} for data "
            f"of shape {data_shape} and indices of shape {index_shape}."
        )
    if components == 0:
        return _into_all(draft, data, updates, index_shape[:-1])
    check = draft.index_check(data, [index], data_shape[:components], interleaved=True)
    index = draft.signed(index)
    problem = draft.problem(
        batch=SymbolicSize(),
        extents=tuple(SymbolicSize.product([dim]) for dim in data_shape[:components]),
        slice=SymbolicSize.product(data_shape[components:]),
        count=SymbolicSize.product(index_shape[:-1]),
        index_dtype=dtype_of(index),
        interleaved=True,
        wrap_negative=call.wrap_negative,
    )
    return draft.lowered(problem, data, [index], updates, check)


def _agreeing(
    draft: Draft, data: Operand, index: Operand, updates: Operand, components: int
) -> list[Operand]:
    """The operands, after a check of the symbolic sizes that must be equal.

    From then on these sizes have one name.
    """
    tensors = {"data": data, "indices": index, "updates": updates}
    agreement = Agreement(draft.operator, draft.symbols, tensors)
    expected = [Place("indices", d) for d in range(index.ty.ndim - 1)]
    expected += [Place("data", d) for d in range(components, data.ty.ndim)]
    if updates.ty.ndim == len(expected):
        for d, place in enumerate(expected):
            agreement.expect_equal(Place("updates", d), place)
    return list(draft.after(agreement.check(), tensors).values())


def _into_all(draft: Draft, data: Operand, updates: Operand, shape: Sequence[Dim]) -> Lowered:
    """Lower tuples without a component, for which each update goes to all of the data.

    The data is treated as one row, and all indices are zero.
    """
    draft.bounds = "trust"
    zeros = draft.zeros((*shape, 1), "int64", "full")
    problem = draft.problem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(),),
        slice=SymbolicSize.product(draft.shape(data)),
        count=SymbolicSize.product(shape),
        index_dtype="int64",
        interleaved=True,
    )
    check = draft.index_check(data, [zeros], (1,), interleaved=True)
    return draft.lowered(problem, data, [zeros], updates, check, is_index=False)
