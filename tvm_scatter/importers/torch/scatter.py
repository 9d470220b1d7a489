"""PyTorch's ``scatter`` and its kin, by element, and ``index_add`` and its kin, by row."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import differ, shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import is_empty, is_one, number_of

from .call import TorchCall, constant
from .scaling import times


def scatter(call: TorchCall, reduction: str = "update", include_self: bool = True) -> Any:
    """``scatter``, ``scatter_add`` and ``scatter_reduce``, with a tensor or a number as source."""
    data, index = call["self"], call["index"]
    if is_empty(index):
        return data
    axis = call.axis(call["dim"], data.ty.ndim)
    if "src" in call:
        source = call["src"]
        if source.ty.ndim == 0 and index.ty.ndim == 1 and not is_one(shape_of(index)[0]):
            raise call.error(
                f"index of shape {text(shape_of(index))} is larger than src of shape ()."
            )
    else:
        source = call.scalar(call["value"], str(data.ty.dtype))
    return call.emit(
        ops.scatter_elements(
            data,
            index,
            source,
            axis,
            reduction,
            include_self=include_self,
            operator=call.origin,
        )
    )


def scatter_add(call: TorchCall) -> Any:
    """``scatter_add``."""
    return scatter(call, "add")


def scatter_reduce(call: TorchCall) -> Any:
    """``scatter.reduce``, ``scatter.value_reduce`` and ``scatter_reduce.two``."""
    return scatter(call, call["reduce"], call.get("include_self", True))


def index_add(call: TorchCall) -> Any:
    """``index_add``, with ``alpha``."""
    source, alpha = call["source"], call["alpha"]
    if not isinstance(alpha, bool | int | float) or alpha != 1:
        source = _scale(call, source, alpha)
    return _rows(call, source, "add")


def scaled(call: TorchCall) -> Any:
    """The product of source and ``alpha`` in PyTorch's decomposition of ``index_add``."""
    return _scale(call, call["self"], call["other"])


def index_copy(call: TorchCall) -> Any:
    """``index_copy``."""
    return _rows(call, call["source"], "update")


def index_reduce(call: TorchCall) -> Any:
    """``index_reduce``."""
    return _rows(call, call["source"], call["reduce"], call["include_self"])


def index_fill(call: TorchCall) -> Any:
    """``index_fill`` with a number or a 0-d tensor."""
    value = call.scalar(call["value"], str(call["self"].ty.dtype))
    return _rows(call, value, "update", wrap_negative=True, fill=True)


def put(call: TorchCall) -> Any:
    """``put``: write elements at positions in the flattened data."""
    data, index, source = call["self"], call["index"], call["source"]
    call.expect_dtype("source", source, str(data.ty.dtype))
    count, given = number_of(shape_of(index)), number_of(shape_of(source))
    if differ(count, given):
        raise call.error(
            f"source of shape {text(shape_of(source))} and index of shape "
            f"{text(shape_of(index))} must have the same number of elements."
        )
    if is_empty(index):
        return call.expect_sizes("source", (given,), (count,), data)
    flat = call.reshape(data, (number_of(shape_of(data)),))
    source = call.expect_shape("source", call.reshape(source, (given,)), (count,))
    result = ops.scatter_elements(
        flat,
        call.reshape(index, (count,)),
        source,
        0,
        "add" if call["accumulate"] else "update",
        wrap_negative=True,
        operator=call.origin,
    )
    return call.reshape(call.emit(result), shape_of(data))


def embedding_dense_backward(call: TorchCall) -> Any:
    """``embedding_dense_backward``: add each row of the gradient to the row of its word."""
    gradient, words = call["grad_output"], call["indices"]
    count = number_of(shape_of(words))
    width = shape_of(gradient)[words.ty.ndim :]
    gradient = call.expect_shape("grad_output", gradient, (*shape_of(words), *width))
    return add_rows_of_words(
        call,
        call.reshape(words, (count,)),
        call.reshape(gradient, (count, *width)),
        call["num_weights"],
        call["padding_idx"],
        call["scale_grad_by_freq"],
    )


def add_rows_of_words(
    call: TorchCall, words: Any, rows: Any, vocabulary: Any, padding: int, by_frequency: bool
) -> Any:
    """Rows of gradients added up at their words, without those of the padding.

    ``by_frequency`` divides each by how often its word occurs.
    """
    dtype, index_dtype = str(rows.ty.dtype), str(words.ty.dtype)
    count, *width = shape_of(rows)
    zeros = call.emit(relax.op.zeros((vocabulary, *width), dtype))
    if is_empty(rows):
        return zeros
    column = (count, *(1 for _ in width))
    if by_frequency:
        ones = call.emit(relax.op.ones((count,), "float32"))
        none = call.emit(relax.op.zeros((vocabulary,), "float32"))
        occurrences = call.emit(ops.index_put(none, [words], ones, [0], "add", wrap_negative=False))
        frequency = call.emit(relax.op.take(occurrences, words, axis=0, mode="clip"))
        frequency = call.cast(call.reshape(frequency, column), dtype)
        rows = call.emit(relax.op.divide(rows, frequency))
    if padding >= 0:
        is_padding = call.emit(relax.op.equal(words, constant(padding, index_dtype)))
        rows = call.emit(relax.op.where(call.reshape(is_padding, column), constant(0, dtype), rows))
    return call.emit(
        ops.index_put(zeros, [words], rows, [0], "add", wrap_negative=False, operator=call.origin)
    )


def _scale(call: TorchCall, source: Any, alpha: Any) -> Any:
    if str(source.ty.dtype) == "bool":
        return call.emit(relax.op.logical_and(source, call.scalar(alpha, "bool")))
    return times(call, source, alpha)


def _rows(
    call: TorchCall,
    source: Any,
    reduction: str,
    include_self: bool = True,
    wrap_negative: bool = False,
    fill: bool = False,
) -> Any:
    """Write rows of ``source`` along one axis of the data, with one index for each row."""
    data, index = call["self"], call["index"]
    shape = shape_of(data)
    rank = len(shape)
    axis = call.axis(call["dim"], rank)
    call.expect_dtype("value" if fill else "source", source, str(data.ty.dtype))
    if index.ty.ndim > 1:
        raise call.error(
            f"index must be a vector or a scalar, but its shape is {text(shape_of(index))}."
        )
    data = call.reshape(data, shape or (1,))
    count = number_of(shape_of(index))
    index = call.reshape(index, (count,))
    if not fill:
        if rank < 2 and source.ty.ndim == 0:
            source = call.reshape(source, (1,))
        source = call.expect_shape("source", source, (*shape[:axis], count, *shape[axis + 1 :]))
    result = ops.index_put(
        data,
        [index],
        source,
        [axis],
        reduction,
        include_self=include_self,
        wrap_negative=wrap_negative,
        operator=call.origin,
    )
    return call.reshape(call.emit(result), shape)
