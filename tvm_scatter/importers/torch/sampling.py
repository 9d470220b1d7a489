"""Sampling an image at the positions of a grid."""

from __future__ import annotations

from typing import Any

from tvm import relax

from .call import TorchCall


def grid_sampler(call: TorchCall) -> Any:
    """``grid_sampler_2d``. TVM takes the coordinates in front of the output's height and width."""
    padding = ("zeros", "border", "reflection")[call["padding_mode"]]
    return call.emit(
        relax.op.image.grid_sample(
            call["input"],
            call.emit(relax.op.permute_dims(call["grid"], [0, 3, 1, 2])),
            method=("bilinear", "nearest", "bicubic")[call["interpolation_mode"]],
            layout="NCHW",
            padding_mode=padding,
            align_corners=call["align_corners"],
        )
    )
