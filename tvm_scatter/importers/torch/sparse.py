"""Sparse tensors of coordinates: pairs of Relax tensors, the indices and the values.

Relax has no sparse types. A sparse tensor of the graph lives only between the call that makes it
and those that make a dense tensor of it: ``to_dense``, and products with dense matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tvm import relax, te

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.shapes import is_empty, no_elements

from .arithmetic import is_tensor
from .call import TorchCall
from .graphs import name_of
from .sparse_calls import has_sparse_layout
from .sparse_elementwise import cast, difference, negative, quotient, same, total
from .sparse_tensors import Sparse

StockConverter = Callable[[Any], Any]


def sparse_tensor(call: TorchCall) -> Sparse:
    """``sparse_coo_tensor`` of a known size."""
    indices, values, shape = call["indices"], call["values"], tuple(call["size"])
    axes, entries = shape_of(indices)
    held = shape_of(values)
    dense = shape[len(shape) - call["dense_dim"] :] if call["dense_dim"] else ()
    if axes != len(shape) - len(dense) or axes == 0:
        raise call.error(
            f"indices of shape {text(shape_of(indices))} must have a row for each sparse axis of "
            f"{text(shape)}."
        )
    values = call.expect_sizes("values", held, (entries, *dense), values, (entries, *dense))

    def row(axis: int) -> Any:
        if is_empty(indices):
            return call.emit(no_elements(relax.TensorType([entries], indices.ty.dtype)))

        def read(indices: te.Tensor) -> te.Tensor:
            return te.compute(indices.shape[1:], lambda i: indices(axis, i), name="coordinates")

        return call.compute(read, indices, name="coordinates")

    return Sparse(tuple(row(axis) for axis in range(axes)), values, shape)


def _to_dense(call: TorchCall) -> Any:
    """``to_dense``: a scatter that adds."""
    sparse, dtype = call["self"], call["dtype"]
    dense = _added(call, sparse.shape, sparse.indices, sparse.values)
    return dense if dtype is None else call.cast(dense, str(dtype).removeprefix("torch."))


def _permute(call: TorchCall) -> Sparse:
    """``permute``, and ``t``, of the sparse axes."""
    sparse = call["self"]
    if "dims" in call:
        order = [call.axis(dim, len(sparse.shape)) for dim in call["dims"]]
    else:
        order = list(reversed(range(len(sparse.shape))))
    axes = len(sparse.indices)
    if sorted(order[:axes]) != list(range(axes)) or order[axes:] != list(
        range(axes, len(sparse.shape))
    ):
        raise call.error(f"dims {order} must leave the dense axes where they are.")
    indices = tuple(sparse.indices[axis] for axis in order[:axes])
    return Sparse(indices, sparse.values, tuple(sparse.shape[axis] for axis in order))


def _multiply(call: TorchCall) -> Sparse:
    """``mul`` by a number, or by a dense tensor that is read where there are entries."""
    sparse, other = call["self"], call["other"]
    if not isinstance(sparse, Sparse):
        sparse, other = other, sparse
    if isinstance(other, Sparse):
        raise call.error("the product of two sparse tensors is not supported; make one dense.")
    # Integers times floats are floats.
    dtype = str(call.node.meta["val"].dtype).removeprefix("torch.")
    if is_tensor(other) and other.ty.ndim > 0:
        own = shape_of(other)
        if len(sparse.indices) != len(sparse.shape) or len(own) > len(sparse.shape):
            raise call.error(f"a factor of shape {text(own)} is not supported here.")
        full = call.broadcast_to("other", other, sparse.shape)
        factor = call.emit(
            read_ops.index(
                full,
                list(sparse.indices),
                list(range(len(sparse.shape))),
                wrap_negative=False,
                operator=call.origin,
            )
        )
    else:
        factor = call.scalar(other, dtype)
    factor = call.cast(factor, dtype)
    values = call.cast(sparse.values, dtype)
    return replace(sparse, values=call.emit(relax.op.multiply(values, factor)))


def _sum(call: TorchCall) -> Any:
    """``sum`` along some of the sparse axes."""
    sparse = call["self"]
    dims = call.get("dim", None)
    dims = [dims] if isinstance(dims, int) else dims
    axes = len(sparse.indices)
    summed = {call.axis(dim, len(sparse.shape)) for dim in dims or range(len(sparse.shape))}
    if axes != len(sparse.shape) or call.get("keepdim", False):
        raise call.error("sums of dense axes, and with keepdim, are not supported here.")
    kept = [axis for axis in range(axes) if axis not in summed]
    if not kept:
        raise call.error("the sum of all elements is not supported here; make the tensor dense.")
    indices = tuple(sparse.indices[axis] for axis in kept)
    shape = tuple(sparse.shape[axis] for axis in kept)
    # PyTorch decomposes a product with a vector, which is dense, into a sum.
    if _is_product(call.node):
        return _added(call, shape, indices, sparse.values)
    return Sparse(indices, sparse.values, shape)


def _product(call: TorchCall) -> Any:
    """``mm`` of a sparse and a dense matrix, in either order."""
    left, right = call["self"], call["mat2"]
    if isinstance(left, Sparse):
        return _times(call, left, right)
    return _transposed(call, _times(call, _swapped(right), _transposed(call, left)))


def _added_product(call: TorchCall) -> Any:
    """``addmm``: ``beta * self + alpha * (mat1 @ mat2)``."""
    left, right = call["mat1"], call["mat2"]
    if isinstance(call["self"], Sparse):
        raise call.error("a sparse matrix to add is not supported; make it dense.")
    if isinstance(left, Sparse):
        product = _times(call, left, right)
    else:
        product = _transposed(call, _times(call, _swapped(right), _transposed(call, left)))
    product = _scaled(call, product, call["alpha"])
    if call["beta"] == 0:
        return product
    return call.emit(relax.op.add(_scaled(call, call["self"], call["beta"]), product))


def _times(call: TorchCall, sparse: Sparse, matrix: Any) -> Any:
    """A row of the matrix for each entry, times its value, added up at the entry's row."""
    if isinstance(matrix, Sparse):
        raise call.error("the product of two sparse matrices is not supported; make one dense.")
    if len(sparse.indices) != 2 or len(sparse.shape) != 2:
        raise call.error("the sparse operand must be a matrix with two sparse axes.")
    rows, columns = sparse.indices
    matrix = call.expect_shape("the dense matrix", matrix, (sparse.shape[1], shape_of(matrix)[1]))
    call.expect_dtype("the dense matrix", matrix, str(sparse.values.ty.dtype))
    shape = (sparse.shape[0], shape_of(matrix)[1])
    if is_empty(sparse.values) or is_empty(matrix):
        return call.emit(relax.op.zeros(list(shape), matrix.ty.dtype))
    read = call.emit(
        read_ops.index(matrix, [columns], [0], wrap_negative=False, operator=call.origin)
    )
    factors = call.reshape(sparse.values, (*shape_of(sparse.values), 1))
    return _added(call, shape, [rows], call.emit(relax.op.multiply(read, factors)))


def _added(call: TorchCall, shape: Sequence[Any], indices: Sequence[Any], values: Any) -> Any:
    zeros = call.emit(relax.op.zeros(list(shape), values.ty.dtype))
    if is_empty(values) or is_empty(zeros):
        return zeros
    # A sum of booleans is their "or".
    reduction = "max" if str(values.ty.dtype) == "bool" else "add"
    axes = list(range(len(indices)))
    return call.emit(
        ops.index_put(
            zeros,
            list(indices),
            values,
            axes,
            reduction,
            wrap_negative=False,
            operator=call.origin,
        )
    )


def _swapped(sparse: Sparse) -> Sparse:
    return Sparse(sparse.indices[::-1], sparse.values, sparse.shape[::-1])


def _transposed(call: TorchCall, matrix: Any) -> Any:
    return call.emit(relax.op.permute_dims(matrix))


def _scaled(call: TorchCall, tensor: Any, factor: Any) -> Any:
    if isinstance(factor, int | float) and factor == 1:
        return tensor
    return call.emit(relax.op.multiply(tensor, call.scalar(factor, str(tensor.ty.dtype))))


#: Makes a sparse tensor of dense ones.
_MAKER = "_sparse_coo_tensor_with_dims_and_tensors.default"
#: Operators of sparse tensors.
_OPERATORS: dict[str, Callable[[TorchCall], Any]] = {
    "_to_dense.default": _to_dense,
    "_coalesce.default": same,
    "clone.default": same,
    "_to_copy.default": cast,
    "neg.default": negative,
    "div.Tensor": quotient,
    "add.Tensor": total,
    "sub.Tensor": difference,
    "permute.default": _permute,
    "t.default": _permute,
    "mul.Tensor": _multiply,
    "mul.Scalar": _multiply,
    "sum.default": _sum,
    "sum.dim_IntList": _sum,
    "_sparse_sum.default": _sum,
    "_sparse_sum.dim": _sum,
    "mm.default": _product,
    "addmm.default": _added_product,
    "_sparse_addmm.default": _added_product,
}
_IGNORED = {"_assert_tensor_metadata.default"}


def knowing_sparse_tensors(
    importer: Any, table: dict[str, StockConverter]
) -> dict[str, StockConverter]:
    """The converters of a table, each of which converts calls with sparse operands as well.

    Raises
    ------
    ScatterError
        On a call, if the operator is not among those of this file.
    """
    known = {**dict.fromkeys(_OPERATORS), **table}
    known[_MAKER] = lambda node: sparse_tensor(TorchCall(node, importer))
    return {name: partial(_convert, importer, name, converter) for name, converter in known.items()}


def _convert(importer: Any, name: str, converter: StockConverter | None, node: Any) -> Any:
    sparse = [each for each in node.all_input_nodes if _is_sparse(importer, each)]
    if not sparse and converter is not None:
        return converter(node)
    if not sparse or name in _IGNORED:
        return None
    return _OPERATORS[name](TorchCall(node, importer))


def refuse_sparse_operators(program: Any) -> None:
    """Check that there is a converter of this file for each operator with sparse tensors.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program.

    Raises
    ------
    ScatterError
        If there is none.
    """
    for node in program.graph.nodes:
        name = name_of(node)
        if node.op != "call_function" or name in {*_OPERATORS, *_IGNORED, _MAKER}:
            continue
        if any(map(_has_sparse_layout, (node, *node.all_input_nodes))):
            raise ScatterError(
                f"{name.partition('.')[0]}: sparse tensors are not supported here; make them dense "
                "with to_dense()."
            )


def refuse_sparse_ends(program: Any) -> None:
    """Check that no input, constant or result of a program is sparse.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program.

    Raises
    ------
    ScatterError
        If one is.
    """
    for node in program.graph.nodes:
        if node.op == "placeholder" and _has_sparse_layout(node):
            raise ScatterError(
                f"{node.name} is a sparse tensor; pass its indices and values, and make it by "
                "torch.sparse_coo_tensor within the model, or pass it dense."
            )
        if node.op == "output" and any(map(_has_sparse_layout, node.all_input_nodes)):
            raise ScatterError("a result of the model is a sparse tensor; return to_dense() of it.")


def _has_sparse_layout(node: Any) -> bool:
    if _is_product(node):
        return False
    return has_sparse_layout(node)


def _is_product(node: Any) -> bool:
    """Whether a sum is the last part of a product with a vector."""
    original = getattr(node.meta.get("original_aten"), "__name__", "")
    return original == "mv.default" and name_of(node).startswith("sum")


def _is_sparse(importer: Any, node: Any) -> bool:
    return isinstance(importer.env.get(node), Sparse)
