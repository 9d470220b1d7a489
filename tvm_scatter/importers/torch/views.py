"""Views and repetitions of symbolic sizes, which TVM's importer compares or takes for numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te

from tvm_scatter.importers.shapes import shape_of

from .call import TorchCall


def view(call: TorchCall) -> Any:
    """``view`` to symbolic sizes; TVM compares them as numbers."""
    size = call["size"]
    return None if _are_numbers(size) else call.reshape(call["self"], size)


def repeat(call: TorchCall) -> Any:
    """``repeat`` as often as a symbolic size says."""
    data, repeats = call["self"], call["repeats"]
    if _are_numbers(repeats):
        return None
    added = len(repeats) - data.ty.ndim
    before = [1] * added + list(shape_of(data))
    shape = [times * size for times, size in zip(repeats, before, strict=True)]

    def repeated(data: te.Tensor, shape: Any) -> te.Tensor:
        def at(*place: Any) -> Any:
            inside = zip(place[added:], data.shape, strict=True)
            return data(*(position % size for position, size in inside))

        return te.compute(shape, at, name="repeated")

    return call.compute(repeated, data, shape, name="repeated")


def _are_numbers(sizes: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in sizes)


def transposed(call: TorchCall) -> Any:
    """``t``, which stays in programs that are not decomposed."""
    data = call["self"]
    return data if data.ty.ndim < 2 else call.emit(relax.op.permute_dims(data))
