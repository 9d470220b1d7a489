"""``embedding_bag``: rows of a table, added up or compared per bag, and its gradients."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.segments import order_in_place, sizes_of
from tvm_scatter.importers.shapes import same_shape, shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.expectations import ASCENDING, AT_MOST, EQUAL
from tvm_scatter.ops.shapes import is_empty

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
    bag_of, last = _bag_of_each(call, entries, bags), None
    if call["include_last_offset"] and not is_empty(words):
        last = call.compute(last_of, call.cast(call["offsets"], "int64"), name="last")
        bag_of = call.expect_numbers("the last offset", bag_of, last, AT_MOST, entries)
    kept = _not_padding(call, words)
    ones = call.cast(kept, "int64")
    none = call.emit(relax.op.zeros((bags,), "int64"))
    counts = mode != _SUM or _is_used(call, 2) or _is_used(call, 3)
    ordering, sizes = None, none
    if not is_empty(words):
        offsets = _checked_offsets(call, entries)
        to_end = order_in_place(call.bb, offsets, entries, bags, first=0, to_end=True)
        ends_early = call["include_last_offset"] and _ends_early(call)
        ordering = (
            order_in_place(call.bb, offsets, entries, bags, first=0) if ends_early else to_end
        )
        if counts:
            # No word is padding that none can be.
            is_known = call["padding_idx"] < 0
            sizes = (
                call.compute(sizes_of, *to_end, name="sizes")
                if is_known
                else _added(call, none, bag_of, ones, "add")
            )
    rows = _rows_of_words(call, kept, last if _ends_early(call) else None)
    result = _reduced(call, bag_of, bags, rows, ordering)
    greatest = sizes
    if mode == _MAX and _is_used(call, 3):
        greatest = _words_of_maxima(call, result, bag_of, rows)
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
        bag_of = _bag_of_each(call, entries, shape_of(call["offsets"])[0])
    rows = _rows(call, gradient, bag_of)
    if mode == _MEAN:
        sizes = _rows(call, call.reshape(call["bag_size"], (shape_of(gradient)[0], 1)), bag_of)
        rows = call.emit(relax.op.divide(rows, call.cast(sizes, dtype)))
    rows = _weighted(call, rows)
    return add_rows_of_words(
        call, words, rows, call["num_weights"], call["padding_idx"], call["scale_grad_by_freq"]
    )


def _rows_of_words(call: TorchCall, kept: Any, last: Any) -> Any:
    """A row of the table for each word; padding has what changes no sum, or no maximum.

    So have words behind the last bag, which ends at ``last``.
    """
    weight, words = call["weight"], call["indices"]
    if is_empty(words):
        return None
    rows = _weighted(call, _rows(call, weight, words))
    if last is not None:
        kept = call.compute(_before, last, shape_of(words)[0], name="before")
    if call["padding_idx"] >= 0 or last is not None:
        column = call.reshape(kept, (shape_of(words)[0], 1))
        nothing = relax.const(_initial(call), str(weight.ty.dtype))
        rows = call.emit(relax.op.where(column, rows, nothing))
    return rows


def _checked_offsets(call: TorchCall, entries: Any) -> Any:
    """Where bags begin, and where the last one ends if that is included."""
    offsets = call.cast(call["offsets"], "int64")
    if not is_empty(offsets):
        first = call.compute(_first_of, offsets, name="first")
        offsets = call.expect_numbers("the first offset", offsets, first, EQUAL)
        last = call.compute(last_of, offsets, name="last")
        offsets = call.expect_numbers("the last offset", offsets, last, AT_MOST, entries)
    return call.expect_numbers("an offset", offsets, offsets, ASCENDING)


def _first_of(offsets: te.Tensor) -> te.Tensor:
    return te.compute((1,), lambda _: offsets[0], name="first")


def _reduced(call: TorchCall, bag_of: Any, bags: Any, rows: Any, ordering: Any) -> Any:
    weight, mode = call["weight"], call["mode"]
    initial = call.full((bags, shape_of(weight)[1]), _initial(call), str(weight.ty.dtype))
    if rows is None:
        return initial
    return _added(call, initial, bag_of, rows, "max" if mode == _MAX else "add", ordering)


def _initial(call: TorchCall) -> float:
    return float("-inf") if call["mode"] == _MAX else 0.0


def _words_of_maxima(call: TorchCall, maxima: Any, bag_of: Any, rows: Any) -> Any:
    """The first word of each bag that has the maximum, for each column; 0 if there is none."""
    words = call["indices"]
    none = call.emit(relax.op.zeros(shape_of(maxima), "int64"))
    if rows is None:
        return none
    entries = shape_of(words)[0]

    def place(rows: te.Tensor, maxima: te.Tensor) -> te.Tensor:
        def first(i: Any, j: Any) -> Any:
            of_word = rows(i, j) != tirx.const(_initial(call), rows.dtype)
            chosen = tirx.all(of_word, rows(i, j) == maxima(i, j))
            return tirx.Select(chosen, i.astype("int64"), _NOWHERE)

        return te.compute(rows.shape, first, name="place")

    places = call.compute(place, rows, _rows(call, maxima, bag_of), name="place")
    nowhere = call.full(shape_of(maxima), int(_NOWHERE), "int64")
    first = _added(call, nowhere, bag_of, places, "min")
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


def _bag_of_each(call: TorchCall, entries: Any, bags: Any) -> Any:
    """The bag of each word: the last one that begins at or before it."""
    offsets = _leading(call, call.cast(call["offsets"], "int64"), bags)
    return segment_of_each(call, offsets, entries, -1)


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


def _before(last: te.Tensor, entries: Any) -> te.Tensor:
    """Whether each of some positions is less than the last one."""
    return te.compute((entries,), lambda i: i.astype("int64") < last[0], name="before")


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
    call: TorchCall, initial: Any, at: Any, rows: Any, reduction: str, ordering: Any = None
) -> Any:
    return call.emit(
        ops.index_put(
            initial,
            [at],
            rows,
            [0],
            reduction,
            wrap_negative=False,
            ordering=ordering,
            operator=call.origin,
        )
    )


def _is_left_out(call: TorchCall, result: int) -> bool:
    """Whether PyTorch leaves a result empty that has elements here."""
    values = call.node.meta.get("val")
    return values is not None and tuple(values[result].shape) == (0,)


def _is_used(call: TorchCall, result: int) -> bool:
    return any(user.args[1:] == (result,) and user.users for user in call.node.users)
