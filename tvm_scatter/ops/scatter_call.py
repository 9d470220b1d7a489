"""A call of any scatter operator: what is asked of it, and the same with other operands.

Passes change operands and where a scatter writes. Everything else goes along here, so that no pass
need know it and none can lose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from tvm_scatter.errors import ScatterError

from .operators import PLACES, index_put, scatter_elements, scatter_nd

#: TVM's own.
STOCK_OPERATORS = ("relax.scatter_elements", "relax.scatter_nd", "relax.index_put")
#: Attributes in which scatters that become one may differ: what people call them, and what is known
#: of their indices, which is found anew for all of them.
_OWN = frozenset({"operator", "wrap_negative", "unique"})


def operator_name(call: relax.Call) -> str:
    """What people know the operator of a call by."""
    if isinstance(call.attrs, tvm.ir.DictAttrs) and "operator" in call.attrs:
        return str(call.attrs["operator"])
    return call.op.name.removeprefix("relax.").removeprefix("tvm_scatter.")


def as_ours(call: relax.Call) -> relax.Call:
    """A scatter by the operator of this package that TVM's equals."""
    if call.op.name not in STOCK_OPERATORS:
        return call
    data, indices, updates = call.args
    wrap: dict[str, Any] = {"wrap_negative": True, "operator": operator_name(call)}
    if call.op.name == "relax.scatter_elements":
        axis, reduction = int(call.attrs.axis), str(call.attrs.reduction)
        return scatter_elements(data, indices, updates, axis, reduction, **wrap)
    if call.op.name == "relax.scatter_nd":
        return scatter_nd(data, indices, updates, str(call.attrs.reduction), **wrap)
    reduction = "add" if call.attrs.accumulate else "update"
    return index_put(data, list(indices.fields), updates, None, reduction, **wrap)


def attributes(call: relax.Call) -> dict[str, Any]:
    """The attributes of a call of an operator of this package, by their names."""
    return {str(name): value for name, value in call.attrs.items()}


def rewritten(
    call: relax.Call,
    operands: Sequence[Any] | None = None,
    by: str | None = None,
    /,
    **changes: Any,
) -> relax.Call:
    """A scatter with what changes, and everything else as it is.

    Parameters
    ----------
    call : relax.Call
        A scatter by any operator.
    operands : sequence of relax.Expr, optional
        All operands of the new call; those of the old one by default.
    by : str, optional
        The operator of this package that does it from now on. Where it is another one, the
        attributes by which it says where it writes must be among the changes.
    **changes
        Attributes with other values.
    """
    call = as_ours(call)
    old, new = str(call.op.name), by or str(call.op.name)
    attrs = attributes(call)
    if new != old:
        attrs = {name: value for name, value in attrs.items() if name not in PLACES[old]}
        missing = [name for name in PLACES[new] if name not in changes]
        if missing:
            raise ScatterError(f"{new}: {', '.join(missing)} must say where it writes.")
    return relax.Call(
        Op.get(new),
        list(call.args) if operands is None else list(operands),
        attrs=tvm.ir.make_node("ir.DictAttrs", **(attrs | changes)),
    )


def requests(call: relax.Call) -> dict[str, str]:
    """What is asked for of a scatter: those that become one must agree in it."""
    call = as_ours(call)
    own = _OWN.union(PLACES[call.op.name])
    return {name: str(value) for name, value in attributes(call).items() if name not in own}
