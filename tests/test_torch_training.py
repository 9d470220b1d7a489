"""Operators of training steps, which TVM's importer lacks, against PyTorch."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_harness import (  # noqa: E402
    Case,
    assert_same,
    check,
    check_all,
    compile_for,
    export,
    run,
)
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten
functional = torch.nn.functional


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gradients(function: Any, *inputs: Any) -> Case:
    """The gradients of a function with respect to all its inputs of floats, as a case."""
    floats = [i for i, each in enumerate(inputs) if each.is_floating_point()]

    def step(*tensors: Any) -> Any:
        result = function(*tensors)
        # Not the same gradient for all elements.
        weights = torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape).sin()
        return torch.autograd.grad((result * weights).sum(), [tensors[i] for i in floats])

    inputs = tuple(each.requires_grad_(i in floats) for i, each in enumerate(inputs))
    traced = make_fx(step)(*inputs)
    return getattr(function, "__name__", "step"), traced, [each.detach() for each in inputs]


CONVOLUTIONS = (
    # Shapes of input and weight, stride, padding, dilation, transposed, output padding, groups.
    ((2, 3, 7), (4, 3, 3), [2], [1], [1], False, [0], 1),
    ((2, 4, 6, 5), (6, 2, 3, 2), [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
    ((2, 4, 4, 3), (4, 3, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 0], 2),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), [1, 2, 1], [0, 1, 0], [1, 1, 1], False, [0, 0, 0], 1),
    ((3, 4, 5, 5), (4, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    ((2, 3, 5), (3, 4, 4), [3], [0], [2], True, [2], 1),
    ((1, 2, 3, 2, 2), (2, 1, 2, 2, 2), [2, 2, 2], [0, 0, 1], [1, 1, 1], True, [0, 1, 0], 1),
    ((0, 3, 7), (4, 3, 3), [2], [1], [1], False, [0], 1),
)


def convolution_case(case: Any, mask: Any = (True, True, True), dtype: Any = None) -> Case:
    shape, kernel, stride, padding, dilation, transposed, more, groups = case
    x, w = (torch.randn(each, dtype=dtype) for each in (shape, kernel))
    how = (stride, padding, dilation, transposed, more, groups)
    g = torch.randn_like(torch.convolution(x, w, None, *how))
    bias = [g.shape[1]]

    def backward(g: Any, x: Any, w: Any) -> Any:
        found = aten.convolution_backward(g, x, w, bias, *how, mask)
        return tuple(each for each, wanted in zip(found, mask, strict=True) if wanted)

    return f"{case}", backward, (g, x, w)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_convolution(every: int) -> None:
    cases = [convolution_case(case) for case in CONVOLUTIONS]
    masks = [mask for mask in itertools.product((True, False), repeat=3) if any(mask)]
    cases += [convolution_case(CONVOLUTIONS[i], mask) for i in (0, 2) for mask in masks]
    cases.append(convolution_case(CONVOLUTIONS[0], dtype=torch.float64))
    check_all(cases[::every])


def test_convolution_of_halves() -> None:
    _, backward, inputs = convolution_case(CONVOLUTIONS[1], dtype=torch.float16)
    check(backward, *inputs)


def test_convolution_of_any_batch() -> None:
    batch = torch.export.Dim("batch", max=64)
    for case in CONVOLUTIONS[1:3]:
        _, backward, inputs = convolution_case(case)
        check(backward, *inputs, dynamic=({0: batch}, {0: batch}, None))


MODES = list(itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection")))


@pytest.mark.parametrize("axes", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_grid_sample(axes: int, every: int) -> None:
    modes = MODES + [("bicubic", padding) for _, padding in MODES[:3] if axes == 2]
    cases = []
    for (mode, padding), corners in list(itertools.product(modes, (False, True)))[::every]:
        x = torch.randn(2, 3, *(4, 5, 3)[:axes])
        grid = torch.rand(2, *(3, 4, 2)[:axes], axes) * 5 - 2.5
        inputs = x.double(), grid.double()

        def sample(x: Any, grid: Any, how: Any = (mode, padding, corners)) -> Any:
            return functional.grid_sample(x, grid, *how)

        cases.append(gradients(sample, *inputs))
        if axes == 3:
            cases.append((f"{mode} {padding} {corners}", sample, inputs))
    check_all(cases)


def test_gradient_of_a_sampled_image_is_one_scatter() -> None:
    sample = functional.grid_sample
    _, step, inputs = gradients(sample, torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2))
    script = from_exported_program(export(step, inputs)).script()
    assert script.count("tvm_scatter.scatter_elements") == 1


def test_attention() -> None:
    attention = functional.scaled_dot_product_attention
    q, k, v = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 4)
    mask, seen = torch.randn(5, 6), torch.rand(5, 6) > 0.5
    seen[2] = False

    def seeing(q: Any, k: Any, v: Any) -> Any:
        """Of one row, nothing is seen."""
        return attention(q, k, v, attn_mask=seen)

    def causal(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, is_causal=True, scale=0.3)

    def masked(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, attn_mask=mask)

    def grouped(q: Any, k: Any, v: Any) -> Any:
        """Three heads of queries read one of keys."""
        return attention(q, k, v, enable_gqa=True)

    cases = [gradients(causal, q, k[:, :, :5], v[:, :, :5])]
    cases += [gradients(grouped, torch.randn(2, 6, 5, 4), k[:, :2], v[:, :2])]
    check_all([*cases, gradients(masked, q, k, v), gradients(seeing, q, k, v)])


def test_heads_of_attention_side_by_side() -> None:
    """How transformers call it: the heads of a row lie beside each other, and a view joins them."""

    def heads(x: Any, weight: Any) -> Any:
        q, k, v = (x @ weight).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        joined = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return joined.reshape(2, 5, 8) @ weight[:8, :8]

    check_all([gradients(heads, torch.randn(2, 5, 8), torch.randn(8, 24))])


NORMS = (
    lambda x: functional.layer_norm(x, x.shape[1:]),
    lambda x: functional.group_norm(x, 2),
    lambda x: functional.instance_norm(x),
    lambda x: functional.batch_norm(x, None, None, training=True),
)


def test_norms() -> None:
    """TVM's importer returns no statistics, which the gradients read."""
    check_all([gradients(norm, torch.randn(3, 4, 5)) for norm in NORMS])


ACTIVATIONS = ("silu", "mish", "gelu", "elu", "hardswish", "softplus", "logsigmoid", "hardtanh")


def test_activations() -> None:
    check_all([gradients(getattr(functional, name), torch.randn(7) * 3) for name in ACTIVATIONS])


def test_positions_of_volumes() -> None:
    def pool(x: Any) -> Any:
        return functional.max_pool3d(x, 3, 2, 1, 1, return_indices=True)

    check_all(
        [
            ("3-D", pool, (torch.randn(2, 3, 5, 4, 6),)),
            gradients(lambda x: functional.max_pool3d(x, 2), torch.randn(1, 2, 4, 4, 4)),
        ]
    )


@pytest.mark.parametrize(
    "norms",
    [
        (0.0, 1.5, float("inf")),
        pytest.param((1.0, 2.0, 3.0), marks=pytest.mark.exhaustive),
    ],
    ids=["some", "others"],
)
def test_distances(norms: tuple[float, ...]) -> None:
    x, y = torch.randn(2, 4, 3).double(), torch.randn(2, 5, 3).double()
    y[:, 0] = x[:, 0]
    cases = []
    for p in norms:

        def distances(x: Any, y: Any, p: float = p) -> Any:
            return torch.cdist(x, y, p)

        def of_pairs(x: Any, p: float = p) -> Any:
            return functional.pdist(x[0], p)

        cases += [(f"p={p}", distances, (x, y)), gradients(distances, x.clone(), y.clone())]
        cases += [gradients(of_pairs, x.clone()), gradients(of_pairs, x[:, :1].clone())]
    check_all(cases)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min"])
@pytest.mark.turns(4)
def test_segments(reduction: str) -> None:
    lengths, offsets = torch.tensor([2, 3]), torch.tensor([0, 2, 5])

    def by_lengths(x: Any) -> Any:
        return torch.segment_reduce(x, reduction, lengths=lengths, unsafe=True)

    def by_offsets(x: Any) -> Any:
        return torch.segment_reduce(x, reduction, offsets=offsets, unsafe=True)

    ties = torch.tensor([[1.0, 2.0], [1.0, -2.0], [3.0, 0.5], [3.0, 0.5], [-1.0, 0.5]])
    check_all([gradients(each, ties.clone()) for each in (by_lengths, by_offsets)])


def test_products_of_segments_are_refused() -> None:
    lengths = torch.tensor([1, 2])
    _, step, inputs = gradients(
        lambda x: torch.segment_reduce(x, "prod", lengths=lengths, unsafe=True), torch.rand(3)
    )
    with pytest.raises(ScatterError, match="segment_reduce: the gradient of 'prod'"):
        from_exported_program(export(step, inputs))


def test_strides_of_a_transposed_tensor() -> None:
    def parts(x: Any) -> Any:
        columns = x.T * 1
        read = columns.as_strided((3, 3), (2, 3), 1)
        return read, torch.as_strided_scatter(columns, read[:, :2], (3, 2), (4, 1), 2)

    check(parts, torch.randn(4, 6))


def test_words_with_weights() -> None:
    words, offsets = torch.tensor([1, 0, 3, 3, 2]), torch.tensor([0, 0, 3])

    def bags(table: Any, weights: Any) -> Any:
        return functional.embedding_bag(
            words, table, offsets, mode="sum", per_sample_weights=weights, padding_idx=0
        )

    check_all([gradients(bags, torch.randn(4, 3), torch.randn(5))])


def test_lists_of_tensors() -> None:
    """An optimiser's step on all parameters at once."""

    def step(a: Any, b: Any, c: Any, d: Any) -> Any:
        sums = torch._foreach_add([a, b], [c, d], alpha=0.5)
        scaled = torch._foreach_mul(sums, [2.0, 3.0])
        roots = torch._foreach_sqrt(torch._foreach_abs(scaled))
        torch._foreach_addcdiv_(sums, scaled, torch._foreach_add(roots, 1.0), value=-0.1)
        return *sums, *torch._foreach_norm(scaled), *torch._foreach_maximum([a, b], 0.0)

    check(step, *(torch.randn(shape) for shape in ((3,), (2, 2), (3,), (2, 2))))


def test_greatest_boolean() -> None:
    """The gradient of ``cumprod`` reads where the first zero is."""
    x = torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
    check_all(
        [
            ("max", lambda x: tuple(torch.max(x > 1, 1)), (x,)),
            gradients(lambda x: x.cumprod(1), x),
        ]
    )


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_upsampling_of_a_traced_graph(mode: str) -> None:
    """PyTorch does not decompose the operators that tracing yields."""

    def resized(x: Any) -> Any:
        return functional.interpolate(x, (5, 3), mode=mode)

    x = torch.randn(1, 2, 3, 2)
    check(make_fx(resized)(x), x)


def test_on_a_gpu() -> None:
    _, backward, inputs = convolution_case(CONVOLUTIONS[1], (True, True, False))
    check(backward, *inputs, device="cuda")


def test_the_example_of_the_docs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "exporting.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page.split("\n## ")[1], re.M | re.S)
    names: dict[str, Any] = {}
    exec(code, names)
    parameters = list(names["parameters"].values())
    words, classes = torch.randint(0, 10, (9,)), torch.randint(0, 5, (9,))
    loss, found = names["step"](names["parameters"], words, classes)
    actual = run(compile_for(names["mod"]), [*parameters, words, classes])
    for a, e in zip(actual, [loss, *found], strict=True):
        assert_same(a, e)
