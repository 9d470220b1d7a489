"""Which operands the result of a call may share memory with.

TVM does not say which operators return an operand. So only the operators listed here are known; any
other may return an operand, or memory with an unknown owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_scatter.lowering.batched import is_batch, scatters_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.compaction import TRUE_POSITIONS
from tvm_scatter.ops.expectations import NAMES as EXPECTATIONS
from tvm_scatter.ops.host_numbers import ON_HOST
from tvm_scatter.ops.names import COPY_RANGES, SELECT_ROWS
from tvm_scatter.ops.ordering import ORDER
from tvm_scatter.ops.read_ops import NAMES as READS
from tvm_scatter.ops.scatter_call import is_scatter
from tvm_scatter.ops.shapes import static_shape

from .created import ALLOCATION, CREATION
from .effects import CALL_TIR_INPLACE, may_write
from .known_values import numbers


def _relax(names: str) -> frozenset[str]:
    return frozenset(f"relax.{name}" for name in names.split())


#: Operators that always write a new tensor.
_FRESH = (
    CREATION
    | {ALLOCATION, ORDER, TRUE_POSITIONS}
    | _relax(
        """
    cos erf exp log matmul negative nonzero rsqrt sigmoid sin sqrt square tanh
    nn.attention nn.conv1d nn.conv2d nn.gelu nn.layer_norm nn.relu nn.rms_norm nn.silu nn.softmax
    """
    )
)
_CHOICES = _relax("maximum minimum where")
#: The number that leaves the other operand as it is.
_NEUTRAL = {"relax.add": 0, "relax.subtract": 0, "relax.multiply": 1, "relax.divide": 1}
#: Operators that write a new tensor, unless an operand is neutral, as in ``x + 0``.
_ARITHMETIC = _CHOICES | _NEUTRAL.keys()
#: Operators that write a new tensor, unless TVM simplifies one to a view of an operand: a
#: permutation of axes of size 1, a slice of everything.
_COMPUTING = _ARITHMETIC | _relax(
    """
    abs acos acosh asin asinh atan atan2 atanh ceil clip cosh floor log_add_exp power round sign
    sinh tan trunc floor_divide floor_mod mod
    bitwise_and bitwise_not bitwise_or bitwise_xor left_shift right_shift
    equal greater greater_equal isfinite isinf isnan less less_equal not_equal
    logical_and logical_not logical_or logical_xor
    argmax argmin argsort cumprod cumsum max mean median min prod sort std sum topk variance
    astype broadcast_to bucketize collapse_sum_like collapse_sum_to concat dequantize
    dynamic_strided_slice einsum expand_dims eye_like flatten flip gather_elements gather_nd
    hamming_window index_tensor layout_transform meshgrid one_hot outer permute_dims quantize
    repeat reshape reverse_sequence slice_scatter split squeeze stack strided_slice take tile
    tril triu
    grad.avg_pool2d_backward grad.max_pool2d_backward grad.nll_loss_backward grad.take_backward
    image.affine_grid image.grid_sample image.resize2d image.resize3d
    nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.attention_bias
    nn.attention_var_len nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.batch_flatten nn.batch_norm
    nn.conv1d_transpose nn.conv2d_transpose nn.conv3d nn.conv3d_transpose
    nn.cross_entropy_with_logits nn.dropout nn.gelu_tanh nn.group_norm nn.instance_norm
    nn.leakyrelu nn.log_softmax nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.nll_loss nn.pad
    nn.pixel_shuffle nn.prelu nn.selu nn.softplus
    vision.all_class_non_max_suppression vision.get_valid_counts vision.multibox_transform_loc
    vision.non_max_suppression vision.roi_align vision.roi_pool
    call_tir call_tir_with_grad
    """
)
#: Operators that neither keep nor return their operands.
_LOOKING = _relax("assert_op print shape_of shape_to_tensor size tensor_to_shape")
#: Operators that return their first operand, or a part or another view of it.
_VIEWS = _relax(
    """
    builtin.stop_lift_params grad.end_checkpoint grad.no_grad grad.start_checkpoint hint_on_device
    memory.ensure_zero_offset memory.view to_vdevice
    """
).union([ON_HOST, *EXPECTATIONS])


def shared_operands(
    result: Any, call: relax.Call, constants: Collection[Any] = ()
) -> list[Any] | None:
    """The operands that a result may share memory with.

    ``None`` if this is unknown. An external function may return its operands or memory that it
    keeps, and may keep its operands or its result.

    Parameters
    ----------
    result : relax.Expr
        The variable that the call is bound to, or any expression of its type.
    call : relax.Call
        The call.
    constants : collection of relax.Var
        Variables that may hold constants.
    """
    operands = list(leaves(call.args))
    if is_batch(call):
        return [each.data for each in scatters_of(call) if each.in_place]
    if is_scatter(call):
        return _shared_by_scatter(result, call)
    name = operator_of(call)
    if name == CALL_TIR_INPLACE:
        return overwritten_operands(call)
    if name in _VIEWS:
        return operands[:1]
    if name == SELECT_ROWS or name in _FRESH or name in _LOOKING:
        return []
    if name in _ARITHMETIC and _changes(call, constants):
        return []
    if name in _COMPUTING or name in READS:
        return [leaf for leaf in operands if _may_be_view(result, leaf)]
    return None


def overwritten_operands(call: relax.Call) -> list[Any]:
    """The operands that a ``call_tir_inplace`` overwrites and returns."""
    places = (int(place) for place in call.attrs.inplace_indices)
    return [call.args[1].fields[place] for place in places if place >= 0]


def leaves(values: Iterable[Any]) -> Iterable[Any]:
    """The values, with tuples replaced by their fields."""
    for value in values:
        if isinstance(value, relax.Tuple):
            yield from leaves(value.fields)
        else:
            yield value


def is_tensor(leaf: Any) -> bool:
    """Whether a leaf is a variable or a constant."""
    return isinstance(leaf, relax.Var | tvm.ir.GenericConst)


def _shared_by_scatter(result: Any, call: relax.Call) -> list[Any]:
    data, *others = leaves(call.args)
    shared = [data] if may_write(call) or _may_do_nothing(call) else []
    if call.op.name == COPY_RANGES:
        # If the whole output is copied from one source, the result is that source.
        shared += [leaf for leaf in others if _may_be_view(result, leaf)]
    return shared


def _may_do_nothing(call: relax.Call) -> bool:
    """Whether a scatter may have nothing to write, and so may be lowered to its data."""
    shapes = [static_shape(leaf) or [] for leaf in leaves(call.args)]
    return any(numbers([size]) == (0,) for shape in shapes for size in shape)


def _changes(call: relax.Call, constants: Collection[Any]) -> bool:
    """Whether an arithmetic operator certainly does not return one of its operands."""
    *_, left, right = call.args
    if call.op.name in _CHOICES and left.same_as(right):
        return False
    neutral = _NEUTRAL.get(call.op.name)
    return not any(_may_be_neutral(operand, neutral, constants) for operand in call.args)


def _may_be_neutral(operand: Any, neutral: int | None, constants: Collection[Any]) -> bool:
    """Whether an operand may be the neutral number; without one, a truth or an extreme."""
    if isinstance(operand, relax.Var):
        return operand in constants
    if isinstance(operand, tvm.ir.GenericConst):
        value = np.asarray(operand.value.numpy())
    elif isinstance(operand, tirx.IntImm | tirx.FloatImm):
        value = np.asarray(operand.value)
    else:
        return True
    if value.size != 1:
        return False
    number = value.item()
    if neutral is not None:
        return bool(number == neutral)
    limits = np.iinfo(value.dtype) if value.dtype.kind in "iu" else None
    extreme = limits is not None and number in (limits.min, limits.max)
    return extreme or number in (0, 1) or not np.isfinite(number)


def _may_be_view(result: Any, operand: Any) -> bool:
    """Whether TVM might replace a result by a view of an operand."""
    if not is_tensor(operand):
        return False
    results = _tensor_types(result.ty)
    operands = _tensor_types(operand.ty)
    if results is None or operands is None:
        return True
    return any(_same_content(left, right) for left in results for right in operands)


def _tensor_types(type_: Any) -> list[Any] | None:
    if isinstance(type_, relax.TensorType):
        return [type_]
    if not isinstance(type_, relax.TupleType):
        return None
    fields = [_tensor_types(field) for field in type_.fields]
    return [each for field in fields for each in (field or [type_])]


def _same_content(left: Any, right: Any) -> bool:
    if not isinstance(left, relax.TensorType) or not isinstance(right, relax.TensorType):
        return True
    if str(left.dtype) != str(right.dtype):
        return False
    sizes = [numbers(getattr(each.shape, "values", None)) for each in (left, right)]
    if sizes[0] is None or sizes[1] is None:
        return True
    return bool(np.prod(sizes[0], dtype=np.int64) == np.prod(sizes[1], dtype=np.int64))
