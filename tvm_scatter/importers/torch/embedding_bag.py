"""``embedding_bag``: rows of a table, added up or compared per bag, and its gradients."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.segments import order_of_segments, sizes_of
from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.expectations import ASCENDING, AT_MOST, EQUAL
from tvm_scatter.ops.shapes import is_empty, same_shape

from .call import TorchCall
from .scatter import add_rows_of_words
from .segments import last_of, segment_of_each

_SUM, _MEAN, _MAX = range(3)
#: Of these PyTorch sums rows by functions of their own.
_FAST = ("float32", "float16", "bfloat16")
#: Behind every word.
_NOWHERE = tirx.max_value("int64")


def embedding_bag(call: TorchCall) -> Any:
    """``_embedding_bag`` and ``_embedding_bag_forward_only``.

    PyTorch leaves the sizes of bags undefined where its own gradient does not need them. Here they
    are computed where the model reads them.
    """
    weight, words, mode = call["weight"], call["indices"], call["mode"]
    if words.ty.ndim != 1 or call["offsets"].ty.ndim != 1 or weight.ty.ndim != 2:
        raise call.error(
            f"weight of shape {text(shape_of(weight))} must be a matrix, and indices of shape "
            f"{text(shape_of(words))} a vector, with a vector of offsets."
        )
    dtype, entries = str(weight.ty.dtype), shape_of(words)[0]
    bags = shape_of(call["offsets"])[0] - bool(call["include_last_offset"])
    offsets = _checked_offsets(call, entries)
    bag_of, order = _bag_of_each(call, offsets, entries, bags), _order(call, offsets, bags)
    kept = _not_padding(call, words)
    sizes = call.emit(relax.op.zeros((bags,), "int64"))
    if (mode != _SUM or _is_used(call, 2) or _is_used(call, 3)) and not is_empty(words):
        sizes = _sizes(call, sizes, bag_of, kept, order)
    result = _reduced(call, offsets, bag_of, bags, kept, order)
    greatest = sizes
    if mode == _MAX and _is_used(call, 3):
        greatest = _words_of_maxima(call, result, bag_of, kept, order)
    column = call.reshape(sizes, (bags, 1))
    if mode == _MEAN:
        least = call.emit(relax.op.maximum(column, relax.const(1, "int64")))
        result = call.emit(relax.op.divide(result, call.cast(least, dtype)))
    if mode == _MAX:
        empty = call.emit(relax.op.equal(column, relax.const(0, "int64")))
        result = call.emit(relax.op.where(empty, relax.const(0, dtype), result))
    index_dtype = str(words.ty.dtype)
    more = [call.cast(each, index_dtype) for each in (bag_of, sizes, greatest)]
    if _is_left_out(call, 1) or not _is_used(call, 1):
        size = 0 if _is_left_out(call, 1) else entries
        more[0] = call.emit(relax.op.zeros((size,), index_dtype))
    return call.emit(relax.Tuple([result, *more]))


def embedding_bag_dense_backward(call: TorchCall) -> Any:
    """``_embedding_bag_dense_backward`` and ``_embedding_bag_backward`` without sparse results."""
    gradient, words, mode = call["grad"], call["indices"], call["mode"]
    dtype, entries = str(gradient.ty.dtype), shape_of(words)[0]
    if call.get("sparse", False):
        raise call.error("sparse gradients are not supported; use sparse=False.")
    width = shape_of(gradient)[1]
    if is_empty(words) or is_empty(gradient):
        return call.emit(relax.op.zeros((call["num_weights"], width), dtype))
    if mode == _MAX:
        return _of_maxima(call, gradient)
    bag_of = call["offset2bag"]
    if is_empty(bag_of):
        offsets = call.cast(call["offsets"], "int64")
        bag_of = _bag_of_each(call, offsets, entries, shape_of(offsets)[0])
    rows = _rows(call, gradient, bag_of)
    if mode == _MEAN:
        sizes = _rows(call, call.reshape(call["bag_size"], (shape_of(gradient)[0], 1)), bag_of)
        rows = call.emit(relax.op.divide(rows, call.cast(sizes, dtype)))
    rows = _weighted(call, rows)
    return add_rows_of_words(
        call, words, rows, call["num_weights"], call["padding_idx"], call["scale_grad_by_freq"]
    )


def _rows_of_words(call: TorchCall, kept: Any) -> Any:
    """A row of the table for each word; padding has what changes no sum, or no maximum."""
    weight, words = call["weight"], call["indices"]
    rows = _weighted(call, _rows(call, weight, words))
    if call["padding_idx"] < 0:
        return rows
    column = call.reshape(kept, (shape_of(words)[0], 1))
    nothing = relax.const(_initial(call), str(weight.ty.dtype))
    return call.emit(relax.op.where(column, rows, nothing))


def _checked_offsets(call: TorchCall, entries: Any) -> Any:
    """Where bags begin, and where the last one ends if that is included."""
    offsets = call.cast(call["offsets"], "int64")
    if is_empty(call["indices"]):
        return offsets
    if not is_empty(offsets):
        first = call.compute(_first_of, offsets, name="first")
        offsets = call.expect_numbers("the first offset", offsets, first, EQUAL)
        last = call.compute(last_of, offsets, name="last")
        offsets = call.expect_numbers("the last offset", offsets, last, AT_MOST, entries)
    return call.expect_numbers("an offset", offsets, offsets, ASCENDING)


def _order(call: TorchCall, offsets: Any, bags: Any, to_end: bool = True) -> Any:
    """The order of the words by bag; the last one has all words behind it unless told otherwise."""
    words = call["indices"]
    if is_empty(words):
        return ()
    return order_of_segments(call.bb, offsets, shape_of(words)[0], bags, to_end=to_end)


def _sizes(call: TorchCall, none: Any, bag_of: Any, kept: Any, order: Any) -> Any:
    """How many words of each bag are no padding."""
    if call["padding_idx"] < 0 and order:
        # No word is.
        return call.compute(sizes_of, *order, name="sizes")
    return _added(call, none, bag_of, call.cast(kept, "int64"), "add", order)


def _first_of(offsets: te.Tensor) -> te.Tensor:
    return te.compute((1,), lambda _: offsets[0], name="first")


def _reduced(call: TorchCall, offsets: Any, bag_of: Any, bags: Any, kept: Any, order: Any) -> Any:
    """The rows of each bag added up, or their maximum."""
    weight, words = call["weight"], call["indices"]
    initial = call.full((bags, shape_of(weight)[1]), _initial(call), str(weight.ty.dtype))
    if is_empty(words):
        return initial
    ends_early = bool(call["include_last_offset"]) and _ends_early(call)
    if ends_early:
        # Words behind the last offset are of the bag behind the last one, which there is not.
        bag_of = _bag_of_each(call, offsets, shape_of(words)[0], bags + 1)
        order = _order(call, offsets, bags, to_end=False)
    reduction = "max" if call["mode"] == _MAX else "add"
    rows = _rows_of_words(call, kept)
    return _added(call, initial, bag_of, rows, reduction, order, ends_early)


def _initial(call: TorchCall) -> float:
    return float("-inf") if call["mode"] == _MAX else 0.0


def _words_of_maxima(call: TorchCall, maxima: Any, bag_of: Any, kept: Any, order: Any) -> Any:
    """The first word of each bag that has the maximum, for each column; 0 if there is none."""
    words = call["indices"]
    none = call.emit(relax.op.zeros(shape_of(maxima), "int64"))
    if is_empty(words):
        return none
    rows, entries = _rows_of_words(call, kept), shape_of(words)[0]

    def place(rows: te.Tensor, maxima: te.Tensor) -> te.Tensor:
        def first(i: Any, j: Any) -> Any:
            of_word = rows(i, j) != tirx.const(_initial(call), rows.dtype)
            chosen = tirx.all(of_word, rows(i, j) == maxima(i, j))
            return tirx.Select(chosen, i.astype("int64"), _NOWHERE)

        return te.compute(rows.shape, first, name="place")

    places = call.compute(place, rows, _rows(call, maxima, bag_of), name="place")
    nowhere = call.full(shape_of(maxima), int(_NOWHERE), "int64")
    first = _added(call, nowhere, bag_of, places, "min", order)
    found = call.emit(relax.op.less(first, call.scalar(entries, "int64")))
    words = _rows(call, words, call.emit(relax.op.where(found, first, none)))
    return call.emit(relax.op.where(found, call.cast(words, "int64"), none))


def _of_maxima(call: TorchCall, gradient: Any) -> Any:
    """The gradient of maxima: each is added to the word that it comes from, if there is any."""
    shape, dtype = shape_of(gradient), str(gradient.ty.dtype)
    sizes = call.reshape(call["bag_size"], (shape[0], 1))
    empty = call.emit(relax.op.equal(sizes, relax.const(0, str(sizes.ty.dtype))))
    added = ops.scatter_elements(
        call.emit(relax.op.zeros((call["num_weights"], shape[1]), dtype)),
        call.expect_shape("maximum_indices", call["maximum_indices"], shape),
        call.emit(relax.op.where(empty, relax.const(0, dtype), gradient)),
        0,
        "add",
        wrap_negative=False,
        operator=call.origin,
    )
    return call.emit(added)


def _bag_of_each(call: TorchCall, offsets: Any, entries: Any, count: Any) -> Any:
    """The bag of each word: the last of so many that begins at or before it."""
    return segment_of_each(call, _leading(call, offsets, count), entries, -1)


def _leading(call: TorchCall, offsets: Any, count: Any) -> Any:
    """The first offsets."""
    if same_shape(shape_of(offsets), (count,)):
        return offsets

    def leading(offsets: te.Tensor, count: Any) -> te.Tensor:
        return te.compute((count,), lambda i: offsets[i], name="leading")

    return call.compute(leading, offsets, count, name="leading")


def _ends_early(call: TorchCall) -> bool:
    """Whether the last offset ends the last bag, where there are words behind it.

    It does in PyTorch's fast functions for sums on CPUs. All others add these words to the last
    bag, and so do the sizes by which means are divided.
    """
    fast = call["mode"] != _MAX and str(call["weight"].ty.dtype) in _FAST
    return fast and call["padding_idx"] < 0


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


def _added(
    call: TorchCall,
    initial: Any,
    at: Any,
    rows: Any,
    reduction: str,
    order: tuple[Any, ...],
    leaves_out: bool = False,
) -> Any:
    return call.emit(
        ops.index_put(
            initial,
            [at],
            rows,
            [0],
            reduction,
            wrap_negative=False,
            leaves_out=leaves_out,
            ordering=order or None,
            operator=call.origin,
        )
    )


def _is_left_out(call: TorchCall, result: int) -> bool:
    """Whether PyTorch leaves a result empty that has elements here."""
    values = call.node.meta.get("val")
    return values is not None and tuple(values[result].shape) == (0,)


def _is_used(call: TorchCall, result: int) -> bool:
    return any(user.args[1:] == (result,) and user.users for user in call.node.users)
