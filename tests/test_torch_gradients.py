"""PyTorch's gradients that add up what several results were made of, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_harness import Case, check, check_all, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten
functional = torch.nn.functional
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def max_pool_case(shape: tuple[int, ...], *window: int, dtype: Any = torch.float32) -> Case:
    """The gradient of a max pool of any rank, with kernel, stride, padding and dilation."""
    axes = 3 if len(shape) == 5 else 2
    kernel, stride, padding, dilation = ([n] * axes for n in window)
    pool = getattr(functional, f"max_pool{axes}d")
    backward = getattr(aten, f"max_pool{axes}d_with_indices_backward")
    x = torch.randn(shape).to(dtype)
    result, at = pool(x, kernel, stride, padding, dilation, return_indices=True)

    def gradient(g: Any, x: Any, at: Any) -> Any:
        return backward(g, x, kernel, stride, padding, dilation, False, at)

    return f"{shape} {window} {dtype}", gradient, (torch.randn(result.shape).to(dtype), x, at)


def test_max_pool() -> None:
    x = torch.randn(2, 3, 5, 7)
    adaptive, at = functional.adaptive_max_pool2d(x, (3, 2), return_indices=True)
    v = torch.randn(2, 3, 4, 5)
    adaptive3, at3 = functional.adaptive_max_pool3d(v, (2, 3, 2), return_indices=True)
    check_all(
        [
            max_pool_case((2, 3, 8, 6), 2, 2, 0, 1),
            max_pool_case((3, 7, 7), 3, 1, 1, 1),
            max_pool_case((1, 2, 9, 9), 3, 2, 1, 2),
            max_pool_case((1, 1, 1, 1), 1, 1, 0, 1),
            max_pool_case((0, 2, 4, 4), 2, 2, 0, 1),
            max_pool_case((1, 2, 4, 4, 4), 2, 2, 0, 1),
            *(max_pool_case((1, 1, 4, 4), 2, 2, 0, 1, dtype=dtype) for dtype in HALVES),
            ("adaptive", aten.adaptive_max_pool2d_backward, (torch.randn_like(adaptive), x, at)),
            ("3-D", aten.adaptive_max_pool3d_backward, (torch.randn_like(adaptive3), v, at3)),
        ]
    )


def pool_gradient(axes: int, *how: Any) -> Callable[..., Any]:
    """The gradient of an average pool, with the arguments behind the tensors."""
    return lambda g, x: getattr(aten, f"avg_pool{axes}d_backward")(g, x, *how)


def avg_pool_case(shape: tuple[int, ...], *how: Any, dtype: Any = torch.float32) -> Case:
    axes = 3 if len(shape) == 5 else 2
    x = torch.randn(shape).to(dtype)
    result = getattr(aten, f"avg_pool{axes}d")(x, *how)
    return f"{shape} {how}", pool_gradient(axes, *how), (torch.randn(result.shape).to(dtype), x)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_avg_pool(every: int) -> None:
    x, v = torch.randn(2, 5, 7), torch.randn(1, 2, 3, 4, 5)
    cases: list[Case] = [
        avg_pool_case((1, 2, 7, 7), [3, 2], [], [1, 0], False, True, None),
        avg_pool_case((1, 2, 7, 1), [3, 1], [2, 1], [1, 0], False, False, None),
        avg_pool_case((2, 6, 8), [3, 3], [2, 2], [1, 1], True, True, None),
        avg_pool_case((2, 6, 8), [3, 3], [2, 2], [1, 1], True, False, None),
        avg_pool_case((1, 1, 5, 5), [2, 2], [3, 3], [0, 0], False, True, 7),
        avg_pool_case((0, 1, 5, 5), [2, 2], [3, 3], [0, 0], False, True, None),
        avg_pool_case((1, 2, 4, 4, 4), [2, 3, 2], [2, 1, 2], [0, 1, 0], False, False, None),
        avg_pool_case((1, 4, 4), [3, 3], [1, 1], [1, 1], False, True, None, dtype=HALVES[1]),
        ("adaptive", aten._adaptive_avg_pool2d_backward, (torch.randn(2, 3, 4), x)),
        ("to one", aten._adaptive_avg_pool2d_backward, (torch.randn(2, 1, 1), x)),
        ("to more", aten._adaptive_avg_pool2d_backward, (torch.randn(2, 8, 9), x)),
        ("3-D", aten._adaptive_avg_pool3d_backward, (torch.randn(1, 2, 2, 2, 3), v)),
    ]
    check_all(cases[::every])


def test_replication_pad() -> None:
    def case(shape: tuple[int, ...], *padding: int, dtype: Any = torch.float32) -> Case:
        backward = getattr(aten, f"replication_pad{len(padding) // 2}d_backward")
        x = torch.randn(shape).to(dtype)
        g = torch.randn_like(aten.replication_pad2d(x, padding) if len(padding) == 4 else
                             functional.pad(x, padding, "replicate"))  # fmt: skip
        return f"{shape} {padding}", lambda g, x: backward(g, x, padding), (g, x)

    check_all(
        [
            case((2, 5), 1, 3),
            case((2, 3, 1), 2, 2),
            case((2, 3, 6), -1, 2),
            case((1, 2, 4, 5), 1, 2, 3, 0),
            case((2, 4, 5), 0, -2, -1, 1),
            case((0, 2, 4, 5), 1, 2, 3, 0),
            case((1, 2, 3, 2, 4), 1, 0, 2, 1, 0, 3),
        ]
    )


def test_masked_scatter() -> None:
    g = torch.randn(2, 3)
    mask = torch.tensor([[True, False, True], [False, True, False]])

    def backward(*sizes: int) -> Callable[..., Any]:
        return lambda g, m: aten.masked_scatter_backward(g, m, sizes)

    check_all(
        [
            ("as many", backward(3), (g, mask)),
            ("more than true positions", backward(2, 2), (g, mask)),
            ("more than positions", backward(9), (g.double(), mask)),
            ("broadcast", backward(2, 3), (g, mask[:1])),
            ("nothing true", backward(2), (g.half(), mask & False)),
            ("no position", backward(2), (g[:0], mask[:0])),
            ("no element", backward(0), (g, mask & False)),
        ]
    )
    rows = torch.export.Dim("rows", max=100)
    check(backward(4), g, mask, dynamic=({0: rows}, {0: rows}))


NEAREST = (
    ("upsample_nearest1d_backward", (7,), (2, 3, 4), (None,)),
    ("upsample_nearest2d_backward", (8, 6), (2, 1, 4, 3), (2.0, 2.0)),
    ("upsample_nearest1d_backward", (5,), (1, 1, 4), (1.3,)),
    ("upsample_nearest1d_backward", (2,), (1, 2, 5), (None,)),
    ("upsample_nearest1d_backward", (3,), (1, 1, 1), (None,)),
    ("upsample_nearest3d_backward", (4, 3, 3), (1, 1, 2, 3, 2), (None, None, None)),
    ("_upsample_nearest_exact1d_backward", (5,), (2, 3, 7), (None,)),
    ("_upsample_nearest_exact3d_backward", (4, 3, 3), (1, 1, 2, 3, 2), (None, None, None)),
)
LINEAR = (
    ("upsample_linear1d_backward", (7,), (2, 3, 4), (None,)),
    ("upsample_bilinear2d_backward", (7, 6), (2, 1, 4, 3), (1.9, 2.0)),
    ("upsample_linear1d_backward", (1,), (1, 2, 5), (None,)),
    ("upsample_linear1d_backward", (3,), (1, 1, 1), (None,)),
    ("upsample_trilinear3d_backward", (4, 1, 3), (1, 1, 2, 1, 2), (None, None, None)),
    ("upsample_bicubic2d_backward", (7, 2), (2, 1, 4, 5), (None, None)),
    ("upsample_bicubic2d_backward", (6, 1), (1, 2, 4, 1), (1.7, 1.3)),
    ("_upsample_bilinear2d_aa_backward", (7, 2), (2, 1, 4, 5), (None, None)),
    ("_upsample_bilinear2d_aa_backward", (1, 3), (1, 1, 6, 7), (0.3, 0.4)),
    ("_upsample_bicubic2d_aa_backward", (3, 2), (1, 2, 9, 1), (None, None)),
)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_upsample(every: int) -> None:
    cases: list[Case] = []
    for name, wanted, shape, scales in NEAREST:
        how: list[Any] = [list(wanted), list(shape), *scales]
        g = torch.randn(*shape[:2], *wanted)
        cases.append((f"{name} {how}", lambda g, n=name, h=how: getattr(aten, n)(g, *h), (g,)))
    for name, wanted, shape, scales in LINEAR:
        for corners in (False, True):
            how = [list(wanted), list(shape), corners, *scales]
            g = torch.randn(*shape[:2], *wanted)
            cases.append((f"{name} {how}", lambda g, n=name, h=how: getattr(aten, n)(g, *h), (g,)))
    check_all(cases[::every])


def test_dynamic_batch() -> None:
    """The batch may vary; the sizes of planes must be known."""
    batch = torch.export.Dim("batch", max=64)
    _, max_pool, (g, x, at) = max_pool_case((3, 2, 6, 6), 3, 2, 1, 1)
    how = ([3, 3], [2, 2], [1, 1], False, True, None)

    def both(g: Any, x: Any, at: Any) -> Any:
        padded = aten.replication_pad2d_backward(x, g, [1, 2, 1, 2])
        return max_pool(g, x, at), aten.avg_pool2d_backward(g, x, *how), padded

    check(both, g, x, at, dynamic=({0: batch}, {0: batch}, {0: batch}))


def test_sizes_of_planes_must_be_known() -> None:
    width = torch.export.Dim("width", min=2, max=64)
    pool = pool_gradient(2, [1, 1], [1, 1], [0, 0], False, True, None)
    wide = export(pool, [torch.randn(1, 1, 4, 4)] * 2, dynamic=({3: width}, {3: width}))
    with pytest.raises(ScatterError, match="avg_pool2d_backward: the pooled axes must be of a"):
        from_exported_program(wide)


def test_on_a_gpu() -> None:
    _, max_pool, inputs = max_pool_case((2, 3, 8, 6), 2, 2, 0, 1)

    def both(g: Any, x: Any, at: Any) -> Any:
        padded = aten.replication_pad2d_backward(x, g, [1, 2, 2, 2])
        resized = aten.upsample_bilinear2d_backward(x, [8, 6], [2, 3, 4, 3], False)
        return max_pool(g, x, at), padded, resized

    check(both, *inputs, device="cuda")


def gradient_of(loss: Callable[..., Any], *inputs: Any) -> Callable[..., Any]:
    def gradient(x: Any, *others: Any) -> Any:
        x = x.requires_grad_()
        return torch.autograd.grad(loss(x, *others).square().sum(), x)[0]

    first, *others = inputs
    return make_fx(gradient)(first.clone(), *others)


@pytest.mark.parametrize(
    "names",
    [("1-D", "unpooled", "windows"), pytest.param(("2-D", "3-D"), marks=pytest.mark.exhaustive)],
    ids=["some", "others"],
)
def test_gradients_that_pytorch_decomposes(names: tuple[str, ...]) -> None:
    """Of reflected borders, of what was unpooled, and of windows."""
    x1, x2, x3 = torch.randn(2, 3, 8), torch.randn(1, 3, 6, 8), torch.randn(1, 2, 4, 6, 5)

    def reflected(*margins: int) -> Callable[..., Any]:
        return lambda x: functional.pad(x, margins, mode="reflect")

    def unpooled(x: Any) -> Any:
        return functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2)

    functions: dict[str, tuple[Callable[..., Any], Any]] = {
        "1-D": (reflected(2, 1), x1),
        "2-D": (reflected(2, 1, 1, 3), x2),
        "3-D": (reflected(2, 1, 1, 3, 1, 1), x3),
        "unpooled": (unpooled, x2),
        "windows": (lambda x: x.unfold(2, 3, 2), x1),
    }
    chosen = {name: functions[name] for name in names}
    check_all([(name, gradient_of(function, x), (x,)) for name, (function, x) in chosen.items()])


def test_bilinear() -> None:
    """What ``nn.Bilinear`` computes, of vectors and of rows, and its gradients."""
    rows, others = torch.randn(6, 3), torch.randn(6, 4)
    weight, bias = torch.randn(5, 3, 4), torch.randn(5)

    def gradients(*inputs: Any) -> Any:
        inputs = tuple(x.requires_grad_() for x in inputs)
        return torch.autograd.grad(functional.bilinear(*inputs).square().sum(), inputs)

    inputs = rows, others, weight, bias
    traced = make_fx(gradients)(*(x.clone() for x in inputs))
    check_all(
        [
            ("rows", functional.bilinear, inputs),
            ("vectors, no bias", functional.bilinear, (rows[0], others[0], weight)),
            ("gradients", traced, inputs),
        ]
    )


ENDED_LISTS = torch.tensor([[1, 0, -1, 2, 2], [3, -1, 0, 0, 0], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4]])


@pytest.mark.parametrize(
    "reduction",
    ["none", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("mean", "sum"))],
)
def test_margin_losses(reduction: str) -> None:
    scores, classes = torch.randn(4, 5), torch.tensor([1, 0, 4, 2])

    def of_lists(x: Any, y: Any) -> Any:
        return torch.nn.functional.multilabel_margin_loss(x, y, reduction=reduction)

    def of_classes(x: Any, y: Any, p: int = 1, weight: Any = None) -> Any:
        options = {"p": p, "margin": 0.7, "weight": weight, "reduction": reduction}
        return torch.nn.functional.multi_margin_loss(x, y, **options)

    def squares(x: Any, y: Any) -> Any:
        return of_classes(x, y, 2, torch.arange(5.0))

    calls: dict[str, tuple[Any, Any, Any]] = {
        "lists": (of_lists, scores, ENDED_LISTS),
        "a list": (of_lists, scores[0], ENDED_LISTS[0]),
        "classes": (of_classes, scores, classes),
        "squares": (squares, scores, classes),
    }
    check_all([(name, loss, inputs) for name, (loss, *inputs) in calls.items()])
    check_all([(name, gradient_of(*call), call[1:]) for name, call in calls.items()])
