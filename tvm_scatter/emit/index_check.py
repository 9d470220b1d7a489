"""What is checked of index tensors, whether an operator writes by them or reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.ops.shapes import Dim


@dataclass(frozen=True)
class IndexCheck:
    """Index tensors to be checked against the extents of the data that they address.

    Attributes
    ----------
    operator : str
        What errors call the operator.
    data : relax.Expr
        What is addressed.
    data_shape : tuple of Dim
        Its shape.
    data_dtype : str
        Its type.
    indices : list of relax.Expr
        As the operator was given them.
    shapes : tuple
        Their shapes.
    extents : tuple of Dim
        The extent that each component addresses.
    interleaved : bool
        Whether the last axis of the single index tensor runs over the components.
    wrap_negative : bool
        Whether negative indices count from the end.
    index_dtypes : tuple of str
        Their types.
    flattened : bool
        Whether the model has them in another shape.
    """

    operator: str
    data: Any
    data_shape: tuple[Dim, ...]
    data_dtype: str
    indices: Sequence[Any]
    shapes: tuple[tuple[Dim, ...], ...]
    extents: tuple[Dim, ...]
    interleaved: bool
    wrap_negative: bool
    index_dtypes: tuple[str, ...]
    flattened: bool = False

    @property
    def has_no_entries(self) -> bool:
        """Whether there certainly is no index."""
        shapes = [shape[:-1] if self.interleaved else shape for shape in self.shapes]
        return any(0 in shape for shape in shapes)
