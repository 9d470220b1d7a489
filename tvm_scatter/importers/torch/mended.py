"""Operators beside scatters, which TVM's importer for PyTorch answers wrongly or lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax

from . import (
    activations,
    arithmetic,
    bits,
    boxes,
    common_divisors,
    convolution,
    creation,
    grouped_product,
    joining,
    norms,
    padding,
    pooled_values,
    pooling_indices,
    quotients,
    reductions,
    resizing,
    sampling,
    slicing,
    smoothing,
    special,
    views,
    windows,
)
from .call import TorchCall
from .elementwise import ELEMENTWISE
from .orders import ORDERS

#: Returns ``None`` where TVM's own converter is right.
Mended = Callable[[TorchCall], Any]

_COMPARISONS = {
    "eq": relax.op.equal,
    "ge": relax.op.greater_equal,
    "gt": relax.op.greater,
    "le": relax.op.less_equal,
    "lt": relax.op.less,
}

_ARITHMETIC: dict[str, Mended] = {
    "add": arithmetic.add,
    "sub": arithmetic.subtract,
    "rsub": arithmetic.subtract_from,
    "mul": special.multiply,
    "div": quotients.divide,
    "remainder": quotients.remainder,
    "fmod": quotients.truncated_remainder,
    **{
        f"bitwise_{name}": partial(arithmetic.binary, getattr(relax.op, f"bitwise_{name}"), None)
        for name in ("and", "or", "xor")
    },
    **{name: partial(arithmetic.compare, op) for name, op in _COMPARISONS.items()},
    "ne": arithmetic.differ,
}

_SHIFTS: dict[str, Mended] = {
    name: partial(arithmetic.shift, operator)
    for operator, names in {
        relax.op.left_shift: (
            "__lshift__.Scalar",
            "__lshift__.Tensor",
            "bitwise_left_shift.Tensor",
            "bitwise_left_shift.Tensor_Scalar",
            "shift_left.default",
        ),
        relax.op.right_shift: (
            "__rshift__.Scalar",
            "__rshift__.Tensor",
            "bitwise_right_shift.Tensor",
            "bitwise_right_shift.Tensor_Scalar",
            "shift_right_arithmetic.default",
        ),
    }.items()
    for name in names
}

_UPSAMPLING: dict[str, Mended] = {
    **{
        f"{name}{axes}d.default": resizing.upsample_nearest
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for axes in (1, 2, 3)
    },
    "upsample_nearest2d.vec": resizing.upsample_nearest,
    "upsample_bilinear2d.vec": resizing.upsample_bilinear,
}

_CONVOLUTIONS = (
    *("convolution.default", "conv1d.default", "conv2d.default", "conv3d.default"),
    *("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input"),
)

#: These converters are used in every graph.
MENDED: dict[str, Mended] = {
    **{
        f"{name}.{overload}": converter
        for name, converter in _ARITHMETIC.items()
        for overload in ("Tensor", "Scalar")
    },
    **_SHIFTS,
    **_UPSAMPLING,
    **ORDERS,
    **ELEMENTWISE,
    **special.SPECIAL,
    "div.Tensor_mode": quotients.divide,
    "div.Scalar_mode": quotients.divide,
    "floor_divide.default": quotients.floor_divide,
    "remainder.default": quotients.remainder,
    "pow.Scalar": arithmetic.power,
    "pow.Tensor_Scalar": arithmetic.power,
    "pow.Tensor_Tensor": arithmetic.power,
    "neg.default": arithmetic.negative,
    "sign.default": arithmetic.sign,
    "gcd.default": common_divisors.greatest_common_divisor,
    "lcm.default": common_divisors.least_common_multiple,
    "sgn.default": arithmetic.sign,
    "where.self": arithmetic.where,
    "reciprocal.default": arithmetic.reciprocal,
    "full.default": creation.full,
    "full_like.default": creation.full_like,
    "scalar_tensor.default": creation.scalar_tensor,
    "empty.memory_format": creation.empty,
    "empty_like.default": creation.empty_like,
    "empty_permuted.default": creation.empty,
    "empty_strided.default": creation.empty,
    "new_empty_strided.default": creation.empty,
    "arange.default": creation.arange,
    "arange.start": creation.arange,
    "arange.start_step": creation.arange,
    "tril_indices.default": creation.triangle,
    "triu_indices.default": creation.triangle,
    "cumsum.default": partial(reductions.running, relax.op.cumsum),
    "cumprod.default": partial(reductions.running, relax.op.cumprod),
    "prod.default": reductions.prod,
    "prod.dim_int": reductions.prod,
    "mean.default": reductions.mean,
    "mean.dim": reductions.mean,
    "var.correction": reductions.variance,
    "var_mean.correction": reductions.variance_and_mean,
    "linalg_vector_norm.default": reductions.vector_norm,
    "unsqueeze.default": slicing.unsqueeze,
    **{f"squeeze.{form}": slicing.squeeze for form in ("default", "dim", "dims")},
    "diagonal.default": slicing.diagonal,
    "cat.default": joining.cat,
    "grouped_mm_fallback.default": grouped_product.grouped_mm_fallback,
    "_grouped_mm.default": grouped_product.grouped_mm,
    **dict.fromkeys(_CONVOLUTIONS, convolution.convolution),
    "convolution_backward.default": convolution.convolution_backward,
    "_native_batch_norm_legit_no_training.default": norms.batch_norm,
    "_native_batch_norm_legit.no_stats": norms.instance_norm,
    "layer_norm.default": norms.layer_norm,
    "native_layer_norm.default": norms.layer_norm,
    "silu_backward.default": activations.silu_backward,
    "mish_backward.default": activations.mish_backward,
    "leaky_relu.default": activations.leaky_relu,
    "rrelu_with_noise.default": activations.rrelu,
    "rrelu_with_noise_functional.default": activations.rrelu,
    **{f"avg_pool{axes}d.default": pooled_values.avg_pool for axes in (1, 2, 3)},
    **{
        f"{name}{axes}d.default": windows.adaptive_avg_pool
        for name in ("adaptive_avg_pool", "_adaptive_avg_pool")
        for axes in (1, 2, 3)
    },
    "max_pool2d_with_indices.default": pooling_indices.max_pool,
    "max_pool3d_with_indices.default": pooling_indices.max_pool,
    "_upsample_bilinear2d_aa.default": smoothing.upsample_smooth,
    "_upsample_bicubic2d_aa.default": smoothing.upsample_smooth,
    "split_with_sizes.default": slicing.split,
    "slice.Tensor": slicing.slice_tensor,
    "view.default": views.view,
    "view.dtype": bits.view_of_bits,
    "t.default": views.transposed,
    "constant_pad_nd.default": padding.constant_pad,
    "repeat.default": views.repeat,
    "roi_align.default": boxes.roi_align,
    "grid_sampler_2d.default": sampling.grid_sampler,
}
