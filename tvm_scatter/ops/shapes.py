"""Shapes of Relax tensors as plain tuples, with names for their symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.sym import Analyzer

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.signature import Dim


class SymbolTable:
    """Names for the symbolic sizes of one call, numbered in the order in which they appear."""

    def __init__(self) -> None:
        self._named: list[tuple[Any, str]] = []
        self._same: dict[str, Dim] = {}

    def shape(self, operator: str, tensor: Any) -> tuple[Dim, ...]:
        """The shape of a Relax expression: an ``int`` or a name for each dimension.

        Raises
        ------
        ScatterError
            If only the rank is known.
        """
        return tuple(self._dim(dim) for dim in known_shape(operator, tensor))

    @property
    def values(self) -> dict[str, Any]:
        """The expression behind each name."""
        return {name: value for value, name in self._named}

    def fits(self, small: Dim, large: Dim) -> bool:
        """Whether a size is certainly no larger than another."""
        if isinstance(small, int) and isinstance(large, int):
            return small <= large
        left, right = expressions([small, large], self.values)
        return bool(Analyzer().can_prove(left <= right))

    def take_for(self, name: str, dim: Dim) -> None:
        """Treat the symbolic size ``name`` as equal to ``dim``. The caller must check it."""
        self._same[name] = dim

    def _dim(self, dim: Any) -> Dim:
        found = self._name(dim)
        while isinstance(found, str) and found in self._same:
            found = self._same[found]
        return found

    def _name(self, dim: Any) -> Dim:
        if isinstance(dim, int | tirx.IntImm):
            return int(dim)
        for known, name in self._named:
            if same_size(known, dim):
                return name
        name = f"n{len(self._named)}"
        self._named.append((dim, name))
        return name


def static_shape(tensor: Any) -> list[Any] | None:
    """The sizes of a tensor, each a number or an expression; ``None`` if only its rank is known."""
    shape: Any = getattr(tensor.ty, "shape", None)
    return list(shape.values) if hasattr(shape, "values") else None


def plain_shape(tensor: Any) -> tuple[Any, ...] | None:
    """The sizes of a tensor: an ``int`` for what is known, an expression for others.

    ``None`` if only its rank is known.
    """
    sizes = static_shape(tensor)
    return None if sizes is None else tuple(map(plain_size, sizes))


def known_shape(operator: str, tensor: Any) -> list[Any]:
    """The sizes of a tensor, each a number or an expression.

    Raises
    ------
    ScatterError
        If only the rank is known.
    """
    sizes = static_shape(tensor)
    if sizes is None:
        raise ScatterError(
            f"{operator}: the shape of every operand must be known, at least symbolically; one has "
            f"only a rank of {tensor.ty.ndim}."
        )
    return sizes


def is_one(size: Any) -> bool:
    """Whether a size is certainly 1."""
    return isinstance(size, int | tirx.IntImm) and int(size) == 1


def is_empty(tensor: Any) -> bool:
    """Whether a tensor certainly has no element."""
    sizes = static_shape(tensor) or ()
    return any(isinstance(size, int | tirx.IntImm) and int(size) == 0 for size in sizes)


def same_size(left: Any, right: Any) -> bool:
    """Whether two sizes are certainly equal, such as ``n + 1`` and ``1 + n``."""
    numbers = [isinstance(size, int | tirx.IntImm) for size in (left, right)]
    if any(numbers):
        return all(numbers) and int(left) == int(right)
    return bool(tvm_ffi.structural_equal(left, right) or Analyzer().can_prove_equal(left, right))


def same_shape(left: Sequence[Any] | None, right: Sequence[Any] | None) -> bool:
    """Whether two shapes are known and certainly equal."""
    if left is None or right is None or len(left) != len(right):
        return False
    return all(map(same_size, left, right))


def number_of(shape: Sequence[Any]) -> Any:
    """The number of elements of a shape: an ``int`` or an expression."""
    number: Any = 1
    for size in map(plain_size, shape):
        if isinstance(size, int) and size == 0:
            return 0
        number = number * size
    return number


def common_shape(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """The common shape of shapes that broadcast; of several symbolic sizes it has the last."""
    rank = max(map(len, shapes))
    common: list[Any] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if not is_one(size):
                common[axis] = size
    return common


def fits(shape: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether a shape certainly broadcasts to another."""
    behind = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(
        is_one(size) or same_size(size, other) for size, other in zip(shape, behind, strict=True)
    )


def plain_size(size: Any) -> Any:
    """A size as an ``int`` if it is known."""
    return int(size) if isinstance(size, int | tirx.IntImm) else size


def expressions(shape: Sequence[Dim], symbols: dict[str, Any]) -> list[Any]:
    """The shape with the names replaced by their expressions."""
    return [symbols[dim] if isinstance(dim, str) else dim for dim in shape]


def broadcast(operator: str, shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    """The common shape of ``shapes`` under NumPy's rules.

    Raises
    ------
    ScatterError
        If two static sizes disagree, or a symbolic one meets a different size.
    """
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result: list[Dim] = []
    for dims in zip(*padded, strict=True):
        wide = sorted({dim for dim in dims if dim != 1}, key=str)
        if len(wide) > 1:
            raise ScatterError(
                f"{operator}: shapes {', '.join(map(str, shapes))} do not broadcast: {wide[0]} "
                f"against {wide[1]}."
            )
        result.append(wide[0] if wide else 1)
    return tuple(result)


def no_elements(type_: relax.TensorType) -> relax.Expr:
    """An empty tensor of a type, one of whose sizes is 0; the others may be symbolic.

    It is only allocated. TVM cannot store an empty constant.
    """
    return unwritten(type_)


def unwritten(type_: relax.TensorType) -> relax.Expr:
    """A tensor of a type that is only allocated, for who needs one and does not read it."""
    return relax.op.builtin.alloc_tensor(type_.shape, str(type_.dtype), 0)
