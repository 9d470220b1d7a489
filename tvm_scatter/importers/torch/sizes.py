"""Sizes that only the run time knows, under the names that PyTorch has for them.

PyTorch writes ``u0`` for a size that depends on values, and knows which of them are equal: two
masks with as many true entries have one name. So that Relax knows it as well, a size of that name
becomes the variable that stands for it already.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from tvm import relax, tirx

from tvm_scatter.ops.host_numbers import on_host

from .call import TorchCall
from .graphs import name_of


def read_size(call: TorchCall, tensor: Any, axis: int = 0) -> Any:
    """Read a size back from a tensor.

    Parameters
    ----------
    call : TorchCall
        The operator.
    tensor : relax.Expr
        The size: int64 of shape (1,).
    axis : int
        The axis of the operator's result that has this size.

    Returns
    -------
    size : int or expression
        The size; the run time checks it if PyTorch knows it by another name already.
    """
    size = expected_size(call, axis)
    found = call.emit(relax.op.tensor_to_shape(call.emit(on_host(tensor))))
    call.bb.match_cast(found, relax.ShapeType([size]))
    return size


def expected_size(call: TorchCall, axis: int) -> Any:
    """The size of an axis of the result, in known variables if possible, or a new variable.

    An error that the size is out of range names the variable, which begins with the operator.
    """
    found = known_size(call, axis)
    if found is not None:
        return found
    expected = _expected(call, axis)
    symbol = str(expected) if str(expected).isidentifier() and expected is not None else "size"
    return tirx.Var(f"{call.node.name}_{symbol}", "int64")


def known_size(call: TorchCall, axis: int) -> Any:
    """The size of an axis of the result in known variables, or ``None``."""
    expected = _expected(call, axis)
    if isinstance(expected, int):
        return expected
    formula = _formula(expected)
    # The first value of a size wins: where a size is new, it is a variable.
    known = dict(reversed(list(_known_sizes(call.importer))))
    equal = [formula, *_equal_to(formula, call.node.graph)]
    sizes = (_in_variables(each, known) for each in equal)
    return next((size for size in sizes if size is not None), None)


def is_one(described: Any, size: Any) -> bool:
    """Whether an axis has one element. PyTorch can tell from a formula and the range of its sizes.

    Parameters
    ----------
    described : int or torch.SymInt
        The size as PyTorch has it.
    size : int or expression
        The size as TVM has it.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return (isinstance(size, int) and size == 1) or bool(statically_known_true(described == 1))


def _equal_to(formula: Any, graph: Any) -> Iterator[Any]:
    """What a size is equal to by the assertions of a program."""
    for node in graph.nodes:
        if name_of(node) != "_assert_scalar.default":
            continue
        asserted = node.args[0]
        if getattr(asserted, "target", None) is not operator.eq:
            continue
        sides = [_formula(getattr(side, "meta", {}).get("val")) for side in asserted.args]
        for side, other in (sides, sides[::-1]):
            if side is not None and side == formula:
                yield other


def _expected(call: TorchCall, axis: int) -> Any:
    value = call.node.meta.get("val")
    return value.shape[axis] if hasattr(value, "shape") else None


def _formula(size: Any) -> Any:
    """The SymPy expression of a size of PyTorch's, or ``None`` if it has none."""
    return getattr(getattr(size, "node", None), "expr", None)


#: SymPy's and PyTorch's functions of sizes.
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "FloorDiv": tirx.floordiv,
    "CleanDiv": tirx.floordiv,
    "Mod": tirx.floormod,
    "PythonMod": tirx.floormod,
    "Max": tirx.max,
    "Min": tirx.min,
}


def _in_variables(formula: Any, known: dict[str, Any]) -> Any:
    """A SymPy expression in Relax variables; ``None`` if one is unknown, or for other functions."""
    if formula is None:
        return None
    if formula.is_Integer:
        return tirx.IntImm("int64", int(formula))
    if formula.is_Symbol:
        return known.get(str(formula))
    function = _FUNCTIONS.get(type(formula).__name__)
    parts = [_in_variables(part, known) for part in formula.args]
    if function is None or any(part is None for part in parts):
        return None
    return reduce(function, parts)


def _known_sizes(importer: Any) -> Iterator[tuple[str, Any]]:
    """The sizes of the values so far that PyTorch has a name for, and what stands for them."""
    for node, value in importer.env.items():
        meta = getattr(node, "meta", {}).get("val")
        for named, size in _pairs(meta, value):
            formula = _formula(named)
            if formula is not None:
                yield from _symbols(formula, size)


def _symbols(formula: Any, size: Any) -> Iterator[tuple[str, Any]]:
    """What stands for the symbols of a size. TVM names the variables of inputs after them."""
    if formula.is_Symbol:
        yield str(formula), size
        return
    names = {str(symbol) for symbol in formula.free_symbols}
    for variable in tirx.analysis.undefined_vars(tirx.Evaluate(size)):
        if variable.name in names:
            yield variable.name, variable


def _pairs(meta: Any, value: Any) -> Sequence[tuple[Any, Any]]:
    """The sizes in PyTorch's description of a value, each with what Relax has for it."""
    if not hasattr(meta, "shape"):
        return [(meta, value)] if isinstance(value, tirx.Var) else []
    shape: Any = getattr(getattr(value, "ty", None), "shape", None)
    return list(zip(meta.shape, shape.values, strict=False)) if hasattr(shape, "values") else []
