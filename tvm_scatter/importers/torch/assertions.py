"""Assertions about numbers that a program computes from data, such as ``torch._check``.

PyTorch has used assertions about sizes already, and the run time checks sizes where it must. An
assertion about data can fail at each call. What is asserted is computed where the data is. Nothing
reads the result of an assertion; so the next operator reads one of its operands through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.sym import Analyzer

from tvm_scatter.ops.expectations import ASSERTED, expect_numbers

from .arithmetic import is_integral, is_tensor
from .graphs import name_of
from .items import is_only_asserted
from .symbols import applied, sym_size, sym_storage_offset

_ITEMS = ("item.default", "_local_scalar_dense.default")
#: Numbers that follow from the type of a tensor.
_OF_TYPES = {"sym_size.int": sym_size, "sym_storage_offset.default": sym_storage_offset}
#: Placeholders of parameters, buffers and constants, which passes look for as they are.
_STATE = ("p_", "b_", "c_")
_WITHOUT_TEXT = "an assertion of the model does not hold"

#: By node, its value: an expression of a number, or a Relax tensor of one element.
_Values = dict[Any, Any]


def assertion(node: Any, importer: Any) -> Any:
    """``_assert_scalar``. Of sizes alone it is none: PyTorch has used that already."""
    condition = node.args[0]
    leaves = dict(_leaves(condition, importer))
    if any(name_of(leaf) in _ITEMS for leaf in leaves):
        _assert(node, importer, condition, leaves)
    return relax.Tuple([])


def assertion_of_tensor(node: Any, importer: Any) -> Any:
    """``_assert_async``, of a tensor of one element."""
    condition = node.args[0]
    _assert(node, importer, condition, {condition: importer.env[condition]})
    return relax.Tuple([])


def _assert(node: Any, importer: Any, condition: Any, leaves: _Values) -> None:
    """Check a condition at run time, before the next operator."""
    text = str(node.args[1]) if len(node.args) > 1 else _WITHOUT_TEXT
    operand = _next_operand(node, importer)
    if operand is None or _is_asserted(node, importer, condition, leaves):
        return
    holds = _as_number(condition, leaves, importer.block_builder)
    tensor = importer.env[operand]
    checked = expect_numbers(tensor, holds, ASSERTED, what=text, operator=name_of(node))
    checked = importer.block_builder.emit(checked)
    for other, value in list(importer.env.items()):
        if value is tensor:
            importer.env[other] = checked


def _is_asserted(node: Any, importer: Any, condition: Any, leaves: _Values) -> bool:
    """Whether a condition follows from those before it. PyTorch exports many of this kind."""
    scopes = importer.__dict__.setdefault("_tvm_scatter_asserted", {})
    variables, known = scopes.setdefault(node.graph, ({}, []))
    for leaf, value in leaves.items():
        if leaf not in variables:
            variables[leaf] = _variable(value) if is_tensor(value) else value
    holds = _truth(_evaluated(condition, variables))
    analyzer = Analyzer()
    with ExitStack() as stack:
        for each in known:
            stack.enter_context(analyzer.constraint_scope(each))
        proved = analyzer.can_prove(holds)
    known.append(analyzer.simplify(holds))
    return bool(proved)


def _variable(tensor: Any) -> Any:
    return tirx.Var("number", _host_type(str(tensor.ty.dtype)))


def _host_type(dtype: str) -> str:
    """The type of the host's numbers that the element of a tensor becomes."""
    return dtype if dtype == "bool" else "int64" if is_integral(dtype) else "float64"


def _as_number(condition: Any, leaves: _Values, builder: relax.BlockBuilder) -> Any:
    """1 if a condition holds, else 0: an expression of the host, or a tensor of one number."""
    if not any(map(is_tensor, leaves.values())):
        return _number(_evaluated(condition, leaves))

    def asserted(*values: Any) -> te.Tensor:
        elements = dict(zip(leaves, map(_element, values), strict=True))
        return te.compute((1,), lambda _: _number(_evaluated(condition, elements)), name="holds")

    return builder.emit_te(asserted, *leaves.values(), primfunc_name_hint="holds")


def _leaves(condition: Any, importer: Any) -> Iterator[tuple[Any, Any]]:
    """The nodes that a number is computed from, with their values."""
    if not hasattr(condition, "op"):
        return
    name = name_of(condition)
    if name in _OF_TYPES:
        yield condition, _OF_TYPES[name](condition, importer)
    elif name not in _ITEMS and condition.op == "call_function":
        for operand in condition.all_input_nodes:
            yield from _leaves(operand, importer)
    else:
        only_asserted = name in _ITEMS and is_only_asserted(condition)
        yield condition, importer.env[condition.args[0] if only_asserted else condition]


def _evaluated(condition: Any, leaves: _Values) -> Any:
    if not hasattr(condition, "op"):
        return condition
    if condition in leaves:
        return leaves[condition]
    return applied(name_of(condition), [_evaluated(each, leaves) for each in condition.args])


def _element(value: Any) -> Any:
    if not isinstance(value, te.Tensor):
        return value
    element, dtype = value(*(0 for _ in value.shape)), str(value.dtype)
    return element.astype(_host_type(dtype))


def _number(holds: Any) -> Any:
    return tirx.Select(_truth(holds), tirx.IntImm("int64", 1), tirx.IntImm("int64", 0))


def _truth(value: Any) -> Any:
    """Whether a number is not zero, as a condition."""
    if isinstance(value, bool | int | float):
        return tirx.const(bool(value), "bool")
    return value if str(value.ty) == "bool" else value != tirx.const(0, value.ty)


def _next_operand(node: Any, importer: Any) -> Any:
    """A node whose tensor is read behind an assertion; ``None`` if there is none."""
    needed, later = _needed(node.graph), node.next
    while later.op != "root":
        if later in needed:
            found = [each for each in later.all_input_nodes if _can_be_read(each, importer)]
            if found:
                return min(found, key=lambda each: each.name.startswith(_STATE))
        later = later.next
    return None


def _needed(graph: Any) -> set[Any]:
    """The nodes that the results of a graph depend on, and the node of the results."""
    needed: set[Any] = set()
    waiting = [node for node in graph.nodes if node.op == "output"]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    return needed


def _can_be_read(node: Any, importer: Any) -> bool:
    value = importer.env.get(node)
    constant = isinstance(value, tvm.ir.GenericConst)
    return is_tensor(value) and not constant and hasattr(value.ty.shape, "values")


ASSERTIONS = {
    "_assert_scalar.default": assertion,
    "_assert_async.default": assertion_of_tensor,
    "_assert_async.msg": assertion_of_tensor,
}
