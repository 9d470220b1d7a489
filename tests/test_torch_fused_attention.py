"""Attention in programs that were decomposed on a GPU, against PyTorch on a CPU.

Tensors are said to be on a GPU, without data, so that no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten
flash = aten._scaled_dot_product_flash_attention
efficient = aten._scaled_dot_product_efficient_attention
cudnn = aten._scaled_dot_product_cudnn_attention
overrideable = aten._scaled_dot_product_fused_attention_overrideable

#: Ways to call the kernels without a bias: all take ``is_causal`` and ``scale``.
KERNELS: dict[str, Callable[..., Any]] = {
    "flash": lambda q, k, v, causal, scale: flash(q, k, v, 0.0, causal, scale=scale),
    "efficient": lambda q, k, v, causal, scale: efficient(
        q, k, v, None, False, 0.0, causal, scale=scale
    ),
    "cudnn": lambda q, k, v, causal, scale: cudnn(q, k, v, None, False, 0.0, causal, scale=scale),
    "overrideable": lambda q, k, v, causal, scale: overrideable(
        q, k, v, None, 0.0, causal, scale=scale
    ),
}


def imported_from_gpu(
    function: Callable[..., Any], inputs: Sequence[Any], dynamic: Any = None
) -> Any:
    """What a function is imported as that was exported on a GPU, and decomposed there."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        there = [torch.empty(each.shape, dtype=each.dtype, device="cuda") for each in inputs]
        program = export(function, there, dynamic)
    return from_exported_program(program.run_decompositions())


def heads(*shape: int, dtype: Any = torch.float32) -> list[Any]:
    """Queries, keys and values."""
    return [torch.randn(shape).to(dtype) for _ in range(3)]


@pytest.mark.parametrize(("causal", "scale"), [(False, None), (True, 0.5)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels(kernel: str, causal: bool, scale: float | None) -> None:
    torch.manual_seed(0)
    inputs = heads(2, 3, 7, 8)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return KERNELS[kernel](q, k, v, causal, scale)[0]

    wanted = scaled_dot_product_attention(*inputs, is_causal=causal, scale=scale)
    [actual] = run(compile_for(imported_from_gpu(attention, inputs)), inputs)
    assert_same(actual, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_added_up_in_single_precision(dtype: Any) -> None:
    torch.manual_seed(0)
    inputs = heads(1, 2, 40, 16, dtype=dtype)
    wanted = scaled_dot_product_attention(*(each.float() for each in inputs)).to(dtype)
    module = imported_from_gpu(lambda q, k, v: flash(q, k, v)[0], inputs)
    [actual] = run(compile_for(module), inputs)
    torch.testing.assert_close(actual, wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-3)


def test_fewer_heads_of_keys() -> None:
    torch.manual_seed(0)
    query, (key, value, _) = torch.randn(2, 6, 5, 8), heads(2, 3, 7, 8)
    inputs = [query, key, value]
    wanted = scaled_dot_product_attention(*inputs, enable_gqa=True)
    [actual] = run(
        compile_for(imported_from_gpu(lambda q, k, v: flash(q, k, v)[0], inputs)), inputs
    )
    assert_same(actual, wanted)


@pytest.mark.parametrize("kernel", [efficient, cudnn])
@pytest.mark.parametrize("causal", [False, True])
def test_bias(kernel: Any, causal: bool) -> None:
    """A row that sees nothing has a result of zeros."""
    torch.manual_seed(0)
    bias = torch.randn(2, 3, 7, 7)
    bias[0, 0, 2] = -float("inf")
    inputs = [*heads(2, 3, 7, 8), bias]
    seen = bias.masked_fill(~torch.ones(7, 7, dtype=torch.bool).tril(), -float("inf"))
    wanted = scaled_dot_product_attention(*inputs[:3], attn_mask=seen if causal else bias)
    assert not wanted[0, 0, 2].any()

    def attention(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return kernel(q, k, v, bias, False, 0.0, causal)[0]

    [actual] = run(compile_for(imported_from_gpu(attention, inputs)), inputs)
    assert_same(actual, wanted)


def test_booleans() -> None:
    torch.manual_seed(0)
    seen = torch.rand(2, 3, 7, 7) > 0.4
    seen[0, 0, 2] = False
    inputs = [*heads(2, 3, 7, 8), seen]
    module = imported_from_gpu(lambda q, k, v, m: overrideable(q, k, v, m)[0], inputs)
    [actual] = run(compile_for(module), inputs)
    assert_same(actual, scaled_dot_product_attention(*inputs[:3], attn_mask=seen))


def test_view_of_joined_heads() -> None:
    """The kernel writes heads of one position side by side, which such a view needs."""
    torch.manual_seed(0)
    inputs = heads(2, 3, 7, 8)

    def joined(q: Any, k: Any, v: Any) -> Any:
        return efficient(q, k, v, None, False)[0].transpose(1, 2).view(2, 7, 24)

    wanted = scaled_dot_product_attention(*inputs).transpose(1, 2).reshape(2, 7, 24)
    [actual] = run(compile_for(imported_from_gpu(joined, inputs)), inputs)
    assert_same(actual, wanted)


def test_any_length() -> None:
    torch.manual_seed(0)
    length = {2: Dim("length", min=2, max=64)}
    module = imported_from_gpu(
        lambda q, k, v: flash(q, k, v, 0.0, True)[0], heads(2, 3, 7, 8), (length,) * 3
    )
    machine = compile_for(module)
    for rows in (2, 7, 19):
        inputs = heads(2, 3, rows, 8)
        [actual] = run(machine, inputs)
        assert_same(actual, scaled_dot_product_attention(*inputs, is_causal=True))


@pytest.mark.parametrize(
    ("kernel", "which", "name"), [("flash", 1, "logsumexp"), ("efficient", 1, "log_sumexp")]
)
def test_results_for_gradients_are_refused(kernel: str, which: int, name: str) -> None:
    def read(q: Any, k: Any, v: Any) -> Any:
        return KERNELS[kernel](q, k, v, False, None)[which] * 2

    with pytest.raises(ScatterError, match=f"{kernel}_attention: {name} is not imported"):
        imported_from_gpu(read, heads(2, 3, 7, 8))


def test_dropout_is_refused() -> None:
    with pytest.raises(ScatterError, match="flash_attention: random numbers are not imported"):
        imported_from_gpu(lambda q, k, v: flash(q, k, v, 0.5)[0], heads(2, 3, 7, 8))
