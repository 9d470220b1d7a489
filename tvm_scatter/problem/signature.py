"""The shapes in which a call passes the operands of a problem."""

from __future__ import annotations

from dataclasses import dataclass

Dim = int | str


@dataclass(frozen=True)
class Signature:
    """The shapes in which a call passes the operands of a problem.

    Parameters
    ----------
    operator : str
        The operator's name, for error messages.
    data, updates : tuple of (int or str)
        Shapes; a ``str`` names a symbolic size of the problem.
    indices : tuple of tuple of (int or str)
        One shape for each index tensor.
    epilogue : tuple of (int or str), optional
        The shape of the result; that of the data if it is ``None``.
    """

    operator: str
    data: tuple[Dim, ...]
    indices: tuple[tuple[Dim, ...], ...]
    updates: tuple[Dim, ...]
    epilogue: tuple[Dim, ...] | None = None

    @property
    def result(self) -> tuple[Dim, ...]:
        """The shape of the result."""
        return self.data if self.epilogue is None else self.epilogue

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic sizes, sorted."""
        shapes = (self.data, self.updates, *self.indices)
        return tuple(sorted({dim for shape in shapes for dim in shape if isinstance(dim, str)}))
