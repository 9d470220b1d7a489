"""One ATen call of an exported program: its arguments by name, and helpers that emit Relax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import differ, shape_of, text
from tvm_scatter.ops.expectations import expect_numbers, expect_sizes
from tvm_scatter.ops.shapes import is_empty, is_one, no_elements, number_of, same_shape

from .divisors import without_zero_divisors
from .graphs import original_name

_GREATEST_SINGLE = float(np.finfo("float32").max)


class TorchCall:
    """An ATen call as a converter sees it.

    Parameters
    ----------
    node : torch.fx.Node
        The call.
    importer : tvm.relax.frontend.torch.base_fx_graph_translator.BaseFXGraphImporter
        TVM's importer, which holds the Relax values of the nodes so far.
    """

    def __init__(self, node: Any, importer: Any) -> None:
        self.node = node
        self.importer = importer
        self.bb = importer.block_builder
        schema = node.target._schema
        self.name = schema.name.rpartition("::")[2].rstrip("_")
        self._arguments: dict[str, Any] = {}
        for position, argument in enumerate(schema.arguments):
            if position < len(node.args):
                value = node.args[position]
            elif argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            elif argument.has_default_value():
                value = argument.default_value
            else:
                raise ScatterError(f"{self.name}: argument {argument.name!r} is missing.")
            self._arguments[argument.name] = importer._retrieve_args(value)

    @property
    def origin(self) -> str:
        """The operator that the model called. PyTorch may have decomposed it into this call."""
        return original_name(self.node)

    def __getitem__(self, name: str) -> Any:
        return self._arguments[name]

    def __contains__(self, name: str) -> bool:
        return name in self._arguments

    def get(self, name: str, default: Any) -> Any:
        """An argument, or ``default`` if the overload has no such argument."""
        return self._arguments.get(name, default)

    def error(self, text: str) -> ScatterError:
        """An error that names the operator."""
        return ScatterError(f"{self.origin}: {text}")

    # Emitting

    def emit(self, expression: Any) -> Any:
        """Bind an expression to a variable."""
        return self.bb.emit(expression)

    def compute(self, function: Callable[..., Any], *arguments: Any, name: str) -> Any:
        """Emit a tensor expression as a function, which TVM may fuse.

        Sizes that the function uses must be passed as arguments, because symbolic sizes are
        different variables inside of the function.
        """
        return self.bb.emit_te(function, *arguments, primfunc_name_hint=name)

    def reshape(self, tensor: Any, shape: Sequence[Any]) -> Any:
        """The tensor in another shape, or itself if it has that shape already."""
        if same_shape(shape_of(tensor), shape):
            return tensor
        if is_empty(tensor):
            # TVM cannot schedule this reshape on GPUs. A size of -1 is none of the others'.
            sizes = [0 if isinstance(size, int) and size < 0 else size for size in shape]
            return self.emit(no_elements(relax.TensorType(sizes, tensor.ty.dtype)))
        return self.emit(relax.op.reshape(tensor, list(shape)))

    def cast(self, tensor: Any, dtype: str) -> Any:
        """The tensor in another type, or itself if it has that type already."""
        if str(tensor.ty.dtype) == dtype:
            return tensor
        return self.emit(relax.op.astype(tensor, dtype))

    def full(self, shape: Sequence[Any], value: bool | int | float, dtype: str) -> Any:
        """A tensor of one value, which may be infinite or "not a number"."""
        number = constant(value, dtype)
        if is_single(value):
            return self.emit(relax.op.full(list(shape), number, dtype))
        # TVM cannot legalize ``full`` of others.
        return self.emit(relax.op.broadcast_to(number, list(shape)))

    def scalar(self, value: Any, dtype: str) -> Any:
        """A 0-d tensor of the given type, from a number, a symbolic size or a 0-d tensor."""
        if isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType):
            if value.ty.ndim != 0 and number_of(shape_of(value)) != 1:
                raise self.error(
                    f"value must have one element, but its shape is {text(shape_of(value))}."
                )
            return self.reshape(self.cast(value, dtype), ())
        if isinstance(value, bool | int | float):
            return constant(value, dtype)

        def number(value: Any) -> te.Tensor:
            return te.compute((), lambda: without_zero_divisors(value).astype(dtype), name="number")

        return self.compute(number, value, name="number")

    # Checking

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front. A 0-d tensor counts as having one axis, as in PyTorch."""
        rank = max(rank, 1)
        if not -rank <= axis < rank:
            raise self.error(
                f"dim {axis} is out of range for data of rank {rank}; it must be in "
                f"[{-rank}, {rank - 1}]."
            )
        return axis % rank

    def expect_shape(self, what: str, tensor: Any, expected: Sequence[Any]) -> Any:
        """The tensor, after a check of its shape: here if the sizes are known, else at run time."""
        shape = shape_of(tensor)
        return self.expect_sizes(what, shape, expected, tensor, expected)

    def expect_sizes(
        self,
        what: str,
        shape: Sequence[Any],
        expected: Sequence[Any],
        tensor: Any,
        known: Sequence[Any] | None = None,
    ) -> Any:
        """``tensor``, after a check that ``shape`` equals ``expected``, here or at run time.

        ``known`` is the shape of the result if the check proves more than the tensor's type says.
        """
        if len(shape) != len(expected) or any(map(differ, shape, expected)):
            raise self.error(
                f"{what} of shape {text(shape)} does not match the expected shape {text(expected)}."
            )
        if same_shape(shape, expected):
            return tensor
        return self.emit(
            expect_sizes(tensor, shape, expected, shape=known, what=what, operator=self.origin)
        )

    def expect_at_least(self, least: int, tensor: Any, axes: Iterable[int]) -> Any:
        """``tensor``, after a check at run time of its symbolic sizes along some axes."""
        found, wanted = list(shape_of(tensor)), list(shape_of(tensor))
        for axis in axes:
            if not isinstance(found[axis], int):
                found[axis], wanted[axis] = tirx.min(found[axis], least), least
        return self.expect_sizes(
            f"self, of which {least} or more are needed,", found, wanted, tensor
        )

    def expect_numbers(
        self, what: str, tensor: Any, numbers: Any, rule: str, limit: Any = 0
    ) -> Any:
        """``tensor``, after a check at run time that each of some integers obeys a rule.

        The rules, such as "not negative", stand in :mod:`tvm_scatter.ops.expectations`.
        """
        return self.emit(
            expect_numbers(tensor, numbers, rule, limit=limit, what=what, operator=self.origin)
        )

    def broadcast_to(self, what: str, tensor: Any, shape: Sequence[Any]) -> Any:
        """The tensor broadcast to a shape. A symbolic size is assumed not to be 1."""
        own = shape_of(tensor)
        aligned = shape[len(shape) - len(own) :]
        expected = [a if is_one(a) else b for a, b in zip(own, aligned, strict=True)]
        tensor = self.expect_shape(what, tensor, expected)
        if same_shape(shape_of(tensor), shape):
            return tensor
        return self.emit(relax.op.broadcast_to(tensor, list(shape)))

    def expect_dtype(self, what: str, tensor: Any, dtype: str) -> None:
        """Raise if the tensor has another data type."""
        if str(tensor.ty.dtype) != dtype:
            raise self.error(
                f"{what} of type {tensor.ty.dtype} does not match data of type {dtype}."
            )

    def broadcast(self, *tensors: Any) -> tuple[Any, ...]:
        """The common shape of tensors under NumPy's rules."""
        shapes = [shape_of(tensor) for tensor in tensors]
        rank = max(map(len, shapes))
        common: list[Any] = [1] * rank
        for shape in shapes:
            for axis, dim in enumerate(shape, rank - len(shape)):
                if is_one(common[axis]):
                    common[axis] = dim
                elif not is_one(dim) and differ(dim, common[axis]):
                    raise self.error(
                        f"shapes {', '.join(map(text, shapes))} do not broadcast: {common[axis]} "
                        f"against {dim}."
                    )
        return tuple(common)


def is_single(value: float) -> bool:
    """Whether a number is within the finite numbers of single precision."""
    return abs(value) <= _GREATEST_SINGLE


def constant(value: bool | int | float, dtype: str) -> Any:
    """A 0-d constant, converted as PyTorch converts a Python number."""
    if dtype == "bool":
        return relax.const(np.array(bool(value)), "bool")
    if dtype.startswith(("int", "uint")):
        return relax.const(np.array(int(value)).astype(dtype), dtype)
    return relax.const(float(value), dtype)
