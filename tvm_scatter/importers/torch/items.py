"""``item``: numbers that a program computes, for sizes, for conditions, or for more numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx

from tvm_scatter.ops.host_numbers import on_host

from .arithmetic import is_integral, is_tensor
from .graphs import name_of, schema_of

_ASSERTION = "_assert_scalar.default"

#: Functions of numbers, of which one is a tensor. TVM's importer knows the others.
_OF_TENSORS: dict[str, Callable[..., Any]] = {
    "sym_float": lambda tensor: tensor,
    "sym_max": relax.op.maximum,
    "sym_min": relax.op.minimum,
    "sym_sqrt": relax.op.sqrt,
    "_sym_sqrt": relax.op.sqrt,
    "truediv": relax.op.divide,
    "mod": relax.op.floor_mod,
    "pow": relax.op.power,
}
#: Functions whose value is an integer: a size.
_ROUNDED: dict[str, Callable[..., Any]] = {
    name: getattr(relax.op, name) for name in ("ceil", "floor", "round", "trunc")
}


def item(node: Any, importer: Any) -> Any:
    """``item``: an integer is a size; a float stays a tensor, as does a flag that tensors read."""
    tensor = importer.env[node.args[0]]
    dtype = str(tensor.ty.dtype)
    read_by_tensors = all(schema_of(user) is not None for user in node.users)
    if not is_integral(dtype) or (dtype == "bool" and read_by_tensors):
        return importer.block_builder.emit(relax.op.reshape(tensor, ()))
    number = _read(node.name, tensor, importer.block_builder)
    return number if dtype != "bool" else number != tirx.IntImm("int64", 0)


def is_only_asserted(node: Any) -> bool:
    """Whether a number serves assertions alone, which PyTorch has used already."""
    return all(
        name_of(user) == _ASSERTION
        or (user.op == "call_function" and schema_of(user) is None and is_only_asserted(user))
        for user in node.users
    )


def of_tensors(node: Any, operands: Sequence[Any], importer: Any) -> Any:
    """A function of numbers, of which one is a 0-d tensor; ``None`` if TVM's importer knows it."""
    builder, name = importer.block_builder, name_of(node)
    if name in _ROUNDED:
        return _read(node.name, builder.emit(_ROUNDED[name](*operands)), builder)
    function = _OF_TENSORS.get(name)
    if function is None:
        return None
    dtype = next(str(each.ty.dtype) for each in operands if is_tensor(each))
    tensors = (each if is_tensor(each) else relax.const(float(each), dtype) for each in operands)
    return builder.emit(function(*tensors))


def _read(name: str, tensor: Any, builder: relax.BlockBuilder) -> Any:
    """The only element of a tensor, an integer, on the host."""
    number = builder.emit(relax.op.astype(builder.emit(relax.op.reshape(tensor, (1,))), "int64"))
    found = builder.emit(relax.op.tensor_to_shape(builder.emit(on_host(number))))
    size = tirx.Var(name, "int64")
    builder.match_cast(found, relax.ShapeType([size]))
    return size
