"""A module that TVM has legalized is compiled for the target that it was legalized for."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tvm
from harness import relax_function
from tvm import relax
from tvm.target import Target

import tvm_scatter

H100 = Target("nvidia/nvidia-h100")
INDEX = np.zeros((8, 4), "int64")
ROWS = np.zeros((8, 4), "float32")


def legalized(reads: bool, target: Target | None = None) -> tvm.IRModule:
    """A scatter or a read, as TVM legalizes it by itself."""

    def build(x: Any, i: Any) -> Any:
        return relax.op.gather_elements(x, i) if reads else relax.op.scatter_elements(x, i, x)

    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, [ROWS, INDEX])
    with nullcontext() if target is None else target:
        return relax.transform.LegalizeOps()(builder.get())


@pytest.mark.parametrize("target", [Target("c"), H100], ids=["c", "cuda"])
@pytest.mark.parametrize("reads", [False, True], ids=["scatter", "read"])
def test_another_target_is_refused(reads: bool, target: Target) -> None:
    kind = target.kind.name
    message = f"check_indices: .* legalized for llvm .* compiled for {kind}; name the target"
    with pytest.raises(tvm_scatter.ScatterError, match=message) as raised:
        tvm.compile(legalized(reads), target)
    assert "\n" not in str(raised.value)


def test_what_is_made_for_a_gpu_is_refused_on_a_cpu() -> None:
    with pytest.raises(tvm_scatter.ScatterError, match=r"for cuda and cannot be compiled for llvm"):
        tvm.compile(legalized(False, H100), "llvm")


@pytest.mark.parametrize("reads", [False, True], ids=["scatter", "read"])
def test_the_same_target_is_not(reads: bool) -> None:
    assert tvm.compile(legalized(reads), "llvm")
    for target in (Target("c"), H100):
        assert tvm.compile(legalized(reads, target), target)
