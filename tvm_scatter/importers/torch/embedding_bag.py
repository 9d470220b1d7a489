"""``embedding_bag``: rows of a table, added up or compared per bag, and its gradients."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.shapes import is_empty

from .call import TorchCall
from .scatter import add_rows_of_words
from .segments import segment_of_each

_SUM, _MEAN, _MAX = range(3)


def embedding_bag(call: TorchCall) -> Any:
    """``_embedding_bag`` and ``_embedding_bag_forward_only``.

    PyTorch leaves the bag of each word, or the sizes of bags, empty where its own gradient does not
    need them. Here they are always computed, but not the words that each maximum comes from.
    """
    weight, words, mode = call["weight"], call["indices"], call["mode"]
    if words.ty.ndim != 1 or call["offsets"].ty.ndim != 1 or weight.ty.ndim != 2:
        raise call.error(
            f"weight of shape {text(shape_of(weight))} must be a matrix, and indices of shape "
            f"{text(shape_of(words))} a vector, with a vector of offsets."
        )
    if mode == _MAX and _is_used(call, 3):
        raise call.error("the gradient of mode 'max' is not supported; use 'sum' or 'mean'.")
    dtype, entries = str(weight.ty.dtype), shape_of(words)[0]
    bags = shape_of(call["offsets"])[0] - bool(call["include_last_offset"])
    bag_of = _bag_of_each(call, entries)
    kept = _not_padding(call, words)
    ones = call.cast(kept, "int64")
    none = call.emit(relax.op.zeros((bags,), "int64"))
    sizes = none if is_empty(words) else _added(call, none, bag_of, ones, "add")
    result = _reduced(call, bag_of, bags, kept)
    column = call.reshape(sizes, (bags, 1))
    if mode == _MEAN:
        least = call.emit(relax.op.maximum(column, relax.const(1, "int64")))
        result = call.emit(relax.op.divide(result, call.cast(least, dtype)))
    if mode == _MAX:
        empty = call.emit(relax.op.equal(column, relax.const(0, "int64")))
        result = call.emit(relax.op.where(empty, relax.const(0, dtype), result))
    index_dtype = str(words.ty.dtype)
    sizes = call.cast(sizes, index_dtype)
    bag_of = call.cast(bag_of, index_dtype)
    return call.emit(relax.Tuple([result, bag_of, sizes, sizes]))


def embedding_bag_dense_backward(call: TorchCall) -> Any:
    """``_embedding_bag_dense_backward`` and ``_embedding_bag_backward`` without sparse results."""
    gradient, words, mode = call["grad"], call["indices"], call["mode"]
    dtype, entries = str(gradient.ty.dtype), shape_of(words)[0]
    if call.get("sparse", False):
        raise call.error("sparse gradients are not supported; use sparse=False.")
    if mode == _MAX:
        raise call.error("the gradient of mode 'max' is not supported; use 'sum' or 'mean'.")
    width = shape_of(gradient)[1]
    if is_empty(words) or is_empty(gradient):
        return call.emit(relax.op.zeros((call["num_weights"], width), dtype))
    bag_of = _bag_of_each(call, entries) if "offsets" in call else call["offset2bag"]
    rows = _rows(call, gradient, bag_of)
    if mode == _MEAN:
        sizes = _rows(call, call.reshape(call["bag_size"], (shape_of(gradient)[0], 1)), bag_of)
        rows = call.emit(relax.op.divide(rows, call.cast(sizes, dtype)))
    rows = _weighted(call, rows)
    return add_rows_of_words(
        call, words, rows, call["num_weights"], call["padding_idx"], call["scale_grad_by_freq"]
    )


def _reduced(call: TorchCall, bag_of: Any, bags: Any, kept: Any) -> Any:
    weight, words, mode = call["weight"], call["indices"], call["mode"]
    dtype, width = str(weight.ty.dtype), shape_of(weight)[1]
    nothing = float("-inf") if mode == _MAX else 0.0
    initial = call.full((bags, width), nothing, dtype)
    if is_empty(words):
        return initial
    rows = _weighted(call, _rows(call, weight, words))
    if call["padding_idx"] >= 0:
        column = call.reshape(kept, (shape_of(words)[0], 1))
        rows = call.emit(relax.op.where(column, rows, relax.const(nothing, dtype)))
    return _added(call, initial, bag_of, rows, "max" if mode == _MAX else "add")


def _bag_of_each(call: TorchCall, entries: Any) -> Any:
    """The bag of each word: the last one that begins at or before it."""
    offsets = call.cast(call["offsets"], "int64")
    return segment_of_each(call, offsets, entries, -1)


def _not_padding(call: TorchCall, words: Any) -> Any:
    padding = relax.const(call["padding_idx"], str(words.ty.dtype))
    return call.emit(relax.op.not_equal(words, padding))


def _rows(call: TorchCall, table: Any, at: Any) -> Any:
    return call.emit(read_ops.index(table, [at], [0], wrap_negative=False, operator=call.origin))


def _weighted(call: TorchCall, rows: Any) -> Any:
    weights = call["per_sample_weights"]
    if weights is None:
        return rows
    return call.emit(relax.op.multiply(rows, call.reshape(weights, (shape_of(rows)[0], 1))))


def _added(call: TorchCall, initial: Any, at: Any, rows: Any, reduction: str) -> Any:
    return call.emit(
        ops.index_put(
            initial, [at], rows, [0], reduction, wrap_negative=False, operator=call.origin
        )
    )


def _is_used(call: TorchCall, result: int) -> bool:
    return any(user.args[1:] == (result,) and user.users for user in call.node.users)
