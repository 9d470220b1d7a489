"""Complex numbers between real ones, as rotary embeddings use them: pairs of Relax tensors.

Relax has no complex types. A complex tensor of the graph is held as its real and imaginary parts,
and operators that only move elements are converted for each part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import relax, te

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import shape_of

from .call import TorchCall

StockConverter = Callable[[Any], Any]
#: The type of the parts of a complex type.
_PART = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Complex:
    """A complex tensor: two Relax tensors of floats, of its shape. Or a number: two floats."""

    real: Any
    imaginary: Any

    def map(self, function: Callable[[Any], Any]) -> Complex:
        """The function applied to both parts."""
        return Complex(function(self.real), function(self.imaginary))


def polar(call: TorchCall) -> Any:
    """``polar``: from absolute values and angles."""
    size, angle = call["abs"], call["angle"]

    def part(function: Callable[[Any], Any]) -> Any:
        return call.emit(relax.op.multiply(size, call.emit(function(angle))))

    return Complex(part(relax.op.cos), part(relax.op.sin))


def complex_of(call: TorchCall) -> Any:
    """``complex``: from real and imaginary parts."""
    shape = call.broadcast(call["real"], call["imag"])
    return Complex(*(call.broadcast_to(part, call[part], shape) for part in ("real", "imag")))


def view_as_complex(call: TorchCall) -> Any:
    """``view_as_complex``: the last axis holds the parts."""

    def part(at: int) -> Any:
        def read(data: te.Tensor) -> te.Tensor:
            return te.compute(data.shape[:-1], lambda *i: data(*i, at), name="part")

        return call.compute(read, call["self"], name="part")

    return Complex(part(0), part(1))


def view_as_real(call: TorchCall) -> Any:
    """``view_as_real``: the parts become the last axis."""
    number = call["self"]
    shape = (*shape_of(number.real), 1)
    parts = [call.reshape(part, shape) for part in (number.real, number.imaginary)]
    return call.emit(relax.op.concat(parts, axis=len(shape) - 1))


def _multiply(call: TorchCall) -> Complex:
    left, right = call["self"], call["other"]
    if not isinstance(left, Complex):
        left, right = right, left
    if not isinstance(left, Complex):
        raise _refused(call.name)
    left = _promoted(call, left)
    if isinstance(right, complex):
        right = Complex(right.real, right.imag)
    if not isinstance(right, Complex):
        return left.map(lambda part: _apply(call, relax.op.multiply, part, right))
    product = partial(_apply, call, relax.op.multiply)
    return Complex(
        _apply(
            call,
            relax.op.subtract,
            product(left.real, right.real),
            product(left.imaginary, right.imaginary),
        ),
        _apply(
            call,
            relax.op.add,
            product(left.real, right.imaginary),
            product(left.imaginary, right.real),
        ),
    )


def _sum(operator: Callable[[Any, Any], Any], call: TorchCall) -> Complex:
    """Of two complex tensors. A real one has no imaginary part to add."""
    left, right = call["self"], call["other"]
    if not (isinstance(left, Complex) and isinstance(right, Complex)) or call["alpha"] != 1:
        raise _refused(call.name)
    left, right = _promoted(call, left), _promoted(call, right)
    parts = ((left.real, right.real), (left.imaginary, right.imaginary))
    return Complex(*(call.emit(operator(*each)) for each in parts))


def _promoted(call: TorchCall, number: Complex) -> Complex:
    """In the type of the result, to which PyTorch promotes."""
    dtype = _PART[_dtype(call.node)]
    return number.map(lambda part: call.cast(part, dtype))


def _full(call: TorchCall) -> Any:
    return _filled(call, call["size"])


def _full_like(call: TorchCall) -> Any:
    like = call["self"]
    return _filled(call, shape_of(like.real if isinstance(like, Complex) else like))


def _filled(call: TorchCall, shape: Any) -> Any:
    value, dtype = call["fill_value"], _dtype(call.node)
    if dtype in _PART and isinstance(value, int | float | complex):
        return Complex(*(call.full(shape, part, _PART[dtype]) for part in (value.real, value.imag)))
    if dtype not in _PART and isinstance(value, int | float):
        return call.full(shape, value, dtype)
    raise _refused(call.name)


def _conjugate(call: TorchCall) -> Complex:
    number = call["self"]
    return Complex(number.real, call.emit(relax.op.negative(number.imaginary)))


def _apply(call: TorchCall, operator: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    dtype = str(left.ty.dtype)
    return call.emit(
        operator(left, call.cast(right, dtype) if _is_tensor(right) else call.scalar(right, dtype))
    )


def _is_tensor(value: Any) -> bool:
    return isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)


#: Operators by which operands or a result are complex.
_OPERATORS: dict[str, Callable[[TorchCall], Any]] = {
    "polar.default": polar,
    "complex.default": complex_of,
    "view_as_complex.default": view_as_complex,
    "full.default": _full,
    "mul.Tensor": _multiply,
    "add.Tensor": partial(_sum, relax.op.add),
    "sub.Tensor": partial(_sum, relax.op.subtract),
    "full_like.default": _full_like,
    "_conj.default": _conjugate,
    "view_as_real.default": view_as_real,
}

#: Operators of several tensors, of which PyTorch may make a real one complex.
_JOINS = {"cat.default", "stack.default"}
#: Scatters, whose data and updates are both complex, or neither is.
_SCATTERS = {
    "index_add.default",
    "index_copy.default",
    "index_put.default",
    "scatter.src",
    "scatter_add.default",
}
#: Operators that do nothing or move elements, and so treat both parts alike.
_MOVES = {
    "_assert_tensor_metadata.default",
    "alias.default",
    "clone.default",
    "expand.default",
    "gather.default",
    "index.Tensor",
    "index_select.default",
    "permute.default",
    "reshape.default",
    "select.int",
    "slice.Tensor",
    "squeeze.dim",
    "squeeze.dims",
    "transpose.int",
    "unsqueeze.default",
    "view.default",
    *_JOINS,
    *_SCATTERS,
}


def knowing_complex_numbers(
    importer: Any, table: dict[str, StockConverter]
) -> dict[str, StockConverter]:
    """The converters of a table, each of which converts calls with complex operands as well.

    Raises
    ------
    ScatterError
        On a call, if the operator is not among those of this file.
    """
    known = {**dict.fromkeys(_OPERATORS), **table}
    return {name: partial(_convert, importer, name, converter) for name, converter in known.items()}


def _convert(importer: Any, name: str, converter: StockConverter | None, node: Any) -> Any:
    numbers = {
        operand: importer.env[operand]
        for operand in node.all_input_nodes
        if isinstance(importer.env.get(operand), Complex)
    }
    is_real = not numbers and not _is_complex(node)
    if is_real and converter is not None:
        return converter(node)
    if not is_real and name in _OPERATORS:
        return _OPERATORS[name](TorchCall(node, importer))
    mixed = name in _JOINS and len(numbers) < len(node.all_input_nodes)
    if converter is None or name not in _MOVES or mixed or not numbers:
        raise _refused(name.partition(".")[0])
    return _of_parts(importer, converter, node, numbers)


def _refused(name: str) -> ScatterError:
    return ScatterError(
        f"{name}: complex numbers are not supported here; compute with torch.view_as_real of them, "
        "or with their real and imaginary parts."
    )


def _of_parts(
    importer: Any, converter: StockConverter, node: Any, numbers: dict[Any, Complex]
) -> Complex:
    """Convert a call for each part, as if the graph held that part only."""
    try:
        parts = []
        for part in ("real", "imaginary"):
            importer.env.update({of: getattr(each, part) for of, each in numbers.items()})
            parts.append(converter(node))
        return Complex(*parts)
    finally:
        importer.env.update(numbers)


def refuse_complex_ends(program: Any) -> None:
    """Check that no input, constant or result of a program is complex.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program.

    Raises
    ------
    ScatterError
        If one is.
    """
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op == "placeholder" and _is_complex(node):
            raise ScatterError(
                f"{targets.get(node.name) or node.name} is a tensor of type {_dtype(node)}; pass "
                "or keep torch.view_as_real of it, and use torch.view_as_complex within the model."
            )
        if node.op == "output" and any(map(_is_complex, node.all_input_nodes)):
            raise ScatterError(
                "a result of the model is a tensor of complex numbers; return torch.view_as_real "
                "of it."
            )


def _is_complex(node: Any) -> bool:
    return _dtype(node).startswith("complex")


def _dtype(node: Any) -> str:
    return str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch.")
