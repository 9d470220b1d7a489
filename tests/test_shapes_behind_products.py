"""What follows a product of tensors of higher rank, computed in the product's own shape."""

from __future__ import annotations

import pytest
from cuda_cases import cuda_target

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch_harness import check, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

HALF = torch.bfloat16

#: By name, a function of rows, a matrix and a bias, and how many operators go with the product.
CASES = {
    "a bias": (lambda x, y, z: x @ y + z, 1),
    "a residual": (lambda x, y, z: x + x @ y, 1),
    "both, one after the other": (lambda x, y, z: (x @ y + z).relu() + x, 4),
    "widened and narrowed again": (lambda x, y, z: (x @ y).float().sigmoid().to(HALF) * 2, 4),
    "widened for a norm": (lambda x, y, z: functional.layer_norm(x @ y + x, (48,)), 1),
    "widened for the result": (lambda x, y, z: (x @ y).float() * 2, 0),
    "broadcast rows": (lambda x, y, z: x @ y + x[:1], 0),
}


@pytest.mark.parametrize("name", CASES)
def test_what_goes_with_the_product(device, name):
    function, count = CASES[name]
    shapes = (3, 20, 48), (48, 48), (48,)
    inputs = [torch.randint(-2, 3, shape).to(HALF) for shape in shapes]
    check(function, *inputs, device=device)
    module = from_exported_program(export(function, inputs))
    lines = str(tvm_scatter.explain(module, cuda_target("sm_90"))).splitlines()
    said = [line.partition(": lv")[2] for line in lines if "in its own shape" in line]
    assert sum(text.count(",") + 1 for text in said) == count, lines


@pytest.mark.parametrize("shape", [(2, 0, 8), (0, 3, 8), (2, 3, 0)])
def test_tensors_of_no_elements(on_cuda, shape):
    """TVM takes a zero in a new shape for the size at that place."""
    inputs = [torch.ones(shape).to(HALF), torch.ones(shape[-1], 16).to(HALF)]
    check(lambda x, y: torch.relu(x @ y) + 1, *inputs, device="cuda")


@pytest.mark.parametrize("shape", [(1, 2, 5, 0), (1, 2, 0, 5), (1, 0, 5, 5)])
def test_attention_of_no_elements(on_cuda, shape):
    batches, heads, queries, keys = shape
    inputs = [torch.ones(batches, heads, size, 16).to(HALF) for size in (queries, keys, keys)]
    check(lambda q, k, v: (q @ k.mT / 4).softmax(-1) @ v, *inputs, device="cuda")
