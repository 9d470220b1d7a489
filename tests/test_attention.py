"""Attention of 16-bit floats is one kernel on a GPU, and no tensor of scores is written."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from cuda_cases import cuda_target
from machine_code import cubin, cuda

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as attend  # noqa: E402
from torch_harness import compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402
from tvm_scatter.importers.torch.attention import attention as decomposed  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
FUSED = "is attention in one kernel"
NONE = -math.inf


def some(*shape: int, dtype: Any = BRAIN) -> Any:
    return torch.randn(shape).to(dtype)


def heads(
    queries: int, keys: int, depth: int = 16, *, outer: Any = (1, 2), width: Any = None, **more: Any
) -> list[Any]:
    """Queries, keys and values."""
    sizes = ((queries, depth), (keys, depth), (keys, width or depth))
    return [some(*outer, *each, **more) for each in sizes]


def program(function: Callable[..., Any], inputs: Any, dynamic: Any = None) -> Any:
    return from_exported_program(export(function, inputs, dynamic))


def said(module: Any, arch: str = "sm_90", **options: Any) -> list[str]:
    with tvm_scatter.options(**options):
        notes = tvm_scatter.explain(module, cuda_target(arch)).notes
    return [each.text for each in notes if each.switch == "attention"]


def same(function: Callable[..., Any], *inputs: Any, dynamic: Any = None, fused: int = 1) -> None:
    """Compare with PyTorch in single precision, and see that the kernel is there."""
    module = program(function, inputs, dynamic)
    assert sum(FUSED in each for each in said(module)) == fused, said(module)
    wide = [each.float() if each.is_floating_point() else each for each in inputs]
    wanted = function(*wide)
    [found] = run(compile_for(module, "cuda"), inputs, "cuda")
    assert found.dtype == inputs[0].dtype
    torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.02, equal_nan=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize(
    ("queries", "keys", "depth", "width"),
    [(1, 1, 8, 8), (2, 3, 16, 24), (1, 130, 32, 32), (17, 64, 40, 16), (70, 65, 16, 16)],
)
@pytest.mark.turns(4)
def test_any_sizes(on_cuda, queries, keys, depth, width, dtype, causal):
    inputs = heads(queries, keys, depth, width=width, dtype=dtype)
    same(lambda q, k, v: attend(q, k, v, is_causal=causal), *inputs)


@pytest.mark.parametrize("depth", [64, pytest.param(128, marks=pytest.mark.exhaustive), 256])
def test_wide_heads(on_cuda, depth):
    same(lambda q, k, v: attend(q, k, v, is_causal=True), *heads(20, 40, depth, outer=(1, 1)))


def test_a_row_of_one_key_is_its_value(on_cuda):
    query, key, _ = heads(3, 1)
    value = torch.arange(32).reshape(1, 2, 1, 16).to(BRAIN)
    module = program(lambda q, k, v: attend(q, k, v), [query, key, value])
    [found] = run(compile_for(module, "cuda"), [query, key, value], "cuda")
    assert torch.equal(found, value.expand(1, 2, 3, 16))


def masked(function: Callable[..., Any]) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return function(q @ k.mT / 4, mask).softmax(-1).to(v.dtype) @ v

    return attention


def after(scores: Any) -> Any:
    """Which keys are behind each query."""
    rows, columns = (torch.arange(size) for size in scores.shape[-2:])
    return columns > rows[:, None]


def window(scores: Any, _: Any) -> Any:
    rows, columns = (torch.arange(size) for size in scores.shape[-2:])
    seen = (columns <= rows[:, None]) & (columns > rows[:, None] - 40)
    return torch.where(seen, scores.float(), NONE)


def sloped(scores: Any, _: Any) -> Any:
    rows, columns = (torch.arange(size) for size in scores.shape[-2:])
    slope = torch.tensor([0.5, 0.25])[:, None, None]
    return scores.float() - slope * (rows[:, None] - columns).abs()


#: By name, functions of queries, keys, values and a mask of truth values.
FORMS: dict[str, Callable[..., Any]] = {
    "truth values": lambda q, k, v, m: attend(q, k, v, m),
    "truth values of keys": lambda q, k, v, m: attend(q, k, v, m[1:2]),
    "a bias": lambda q, k, v, m: attend(q, k, v, m.to(q.dtype) * 2),
    "a bias for each head": lambda q, k, v, m: attend(q, k, v, (m * q[:, :, :, :1].sign())),
    "a scale": lambda q, k, v, m: attend(q, k, v, m, scale=0.7),
    "no scale": lambda q, k, v, m: attend(q / 4, k, v, scale=1.0),
    "a negative scale": lambda q, k, v, m: attend(q, k, v, m, scale=-0.3),
    "as decomposed for gpus": lambda q, k, v, m: decomposed(
        q, k, v, dropout_p=0.0, is_causal=False, bias=m
    ),
    "causal there": lambda q, k, v, m: decomposed(q, k, v, dropout_p=0.0, is_causal=True),
    "filled": masked(lambda s, m: s.masked_fill(~m, NONE)),
    "filled in single precision": masked(lambda s, m: s.float().masked_fill(~m, NONE)),
    "filled with the least number": masked(
        lambda s, m: s.float().masked_fill(~m, torch.finfo(SINGLE).min)
    ),
    "causal": masked(lambda s, m: s.float().masked_fill(after(s), NONE)),
    "causal of a triangle": masked(
        lambda s, m: s.float().masked_fill(torch.ones(s.shape[-2:]).tril() == 0, NONE)
    ),
    "a window": masked(window),
    "slopes": masked(sloped),
    "limited scores": masked(lambda s, m: (s.float() / 5).tanh() * 5),
    "einsum": lambda q, k, v, m: torch.einsum(
        "bhij,bhjd->bihd", (torch.einsum("bhid,bhjd->bhij", q, k) * 0.25).softmax(-1), v
    ),
    "three axes": lambda q, k, v, m: (q[0] @ k[0].mT / 4).softmax(-1) @ v[0],
    "two axes": lambda q, k, v, m: (q[0, 0] @ k[0, 0].mT / 4).softmax(-1) @ v[0, 0],
    "one batch of many heads": lambda q, k, v, m: attend(q.flatten(0, 1), k.flatten(0, 1), v[0]),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.turns(2)
def test_forms(on_cuda, name):
    mask = torch.rand(70, 90) > 0.4
    mask[3] = False
    same(FORMS[name], *heads(70, 90), mask)


def turned(function: Callable[..., Any]) -> Callable[..., Any]:
    """Heads that lie side by side for each token, as layers have them."""

    def layer(x: Any, *weights: Any) -> Any:
        def parts(each: Any) -> Any:
            return each.unflatten(-1, (-1, 16)).transpose(1, 2)

        return function(*map(parts, (x @ each for each in weights))).transpose(1, 2).flatten(2)

    return layer


def test_heads_in_place(on_cuda):
    """Nothing but products and attention: no tensor is turned."""
    layer = turned(lambda q, k, v: attend(q, k, v, is_causal=True, enable_gqa=True))
    inputs = [some(2, 30, 32), *(some(32, wide) / 5 for wide in (64, 32, 32))]
    same(layer, *inputs)
    assert kernels(program(layer, inputs)) == {"attention", "fused_matmul_cast"}


def test_parts_of_one_product(on_cuda):
    def layer(x: Any, weight: Any) -> Any:
        parts = (x @ weight).chunk(3, -1)
        heads = (each.unflatten(-1, (-1, 16)).transpose(1, 2) for each in parts)
        return attend(*heads).transpose(1, 2).flatten(2)

    inputs = [some(2, 30, 32), some(32, 96) / 5]
    same(layer, *inputs)
    assert kernels(program(layer, inputs)) == {"attention", "fused_matmul_cast"}


def kernels(module: Any) -> set[str]:
    """What the kernels of a module compute, but for the inputs in another shape."""
    names = re.findall(r"(\w+?)(?:_\d+)?_kernel\(", cuda(module))
    return {re.sub(r"\d", "", each) for each in names} - {"reshape"}


@pytest.mark.parametrize("causal", [False, True])
def test_shared_keys(on_cuda, causal):
    query, (key, value, _) = some(2, 6, 20, 16), heads(20, 20, outer=(2, 2))

    def shared(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, is_causal=causal, enable_gqa=True)

    def repeated(q: Any, k: Any, v: Any) -> Any:
        return attend(
            q, *(each[:, :, None].expand(2, 2, 3, 20, 16).flatten(1, 2) for each in (k, v))
        )

    same(shared, query, key, value)
    same(repeated, query, key, value)


FEW: dict[str, tuple[Callable[..., Any], int, int]] = {
    "a step": (lambda q, k, v, m: attend(q, k, v, m[:1]), 1, 2),
    "shared keys": (lambda q, k, v, m: attend(q, k, v, m[:1], enable_gqa=True), 1, 6),
    "a bias for each head": (
        lambda q, k, v, m: attend(
            q, k, v, m[:3] * torch.arange(6).reshape(6, 1, 1).to(q.dtype), enable_gqa=True
        ),
        3,
        6,
    ),
    "too many rows together": (lambda q, k, v, m: attend(q, k, v, enable_gqa=True), 6, 8),
    "causal": (lambda q, k, v, m: attend(q, k, v, is_causal=True, enable_gqa=True), 5, 6),
    "nothing seen": (lambda q, k, v, m: attend(q, k, v, m[5:6], enable_gqa=True), 1, 4),
    "not a number": (
        lambda q, k, v, m: (
            (q @ k.mT / 4).float().masked_fill(~m[4:6], NONE).softmax(-1).to(v.dtype) @ v
        ),
        2,
        2,
    ),
}


@pytest.mark.parametrize("name", FEW)
def test_few_queries(on_cuda, name):
    """Blocks share the keys, of which some see nothing."""
    function, queries, count = FEW[name]
    mask = torch.rand(6, 700) > 0.4
    mask[:, 120:400] = mask[5] = False
    query, (key, value, _) = some(2, count, queries, 16), heads(700, 700, outer=(2, 2))
    same(function, query, key, value, mask)
    parts = "attend_to_parts" in cuda(program(function, [query, key, value, mask]))
    assert parts


def test_steps_of_any_length(on_cuda):
    def step(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, enable_gqa=True)

    example = [some(2, 4, 1, 16), *heads(9, 9, outer=(2, 2))[:2]]
    module = program(step, example, [{0: Dim.AUTO}, *[{0: Dim.AUTO, 2: Dim.AUTO}] * 2])
    assert [each for each in said(module) if FUSED in each]
    machine = compile_for(module, "cuda")
    for batch, keys in ((2, 2), (3, 65), (2, 600)):
        inputs = [some(batch, 4, 1, 16), *heads(keys, keys, outer=(batch, 2))[:2]]
        [found] = run(machine, inputs, "cuda")
        wanted = step(*(each.float() for each in inputs))
        torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.02)


def some_mask(draw: random.Random, sizes: tuple[int, ...]) -> Any:
    """Truth values or a bias, which broadcasts to some sizes."""
    sizes = tuple(draw.choice([1, size]) for size in sizes)[draw.randrange(3) :]
    seen = torch.rand(sizes) > draw.choice([0.1, 0.5])
    forms = [seen, torch.randn(sizes).to(BRAIN), torch.where(seen, 0.0, NONE).to(BRAIN)]
    return draw.choice(forms)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(at, marks=pytest.mark.exhaustive) for at in range(4, 80))]
)
def test_random_programs(on_cuda, seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    batch, shared, group = (draw.choice([1, 2, 3]) for _ in range(3))
    queries, keys = (draw.choice([1, 2, 7, 16, 33, 64, 65, 150]) for _ in range(2))
    depth, width = (draw.choice([8, 16, 24, 32, 48]) for _ in range(2))
    inside = [draw.random() < 0.5 for _ in range(4)]

    def operand(heads: int, length: int, wide: int, is_inside: bool) -> Any:
        shape = (batch, length, heads, wide) if is_inside else (batch, heads, length, wide)
        return some(*shape)

    causal, masked_too = draw.random() < 0.4, draw.random() < 0.6
    inputs = [
        operand(shared * group, queries, depth, inside[0]),
        operand(shared, keys, depth, inside[1]),
        operand(shared, keys, width, inside[2]),
    ]
    if masked_too and not causal:
        inputs.append(some_mask(draw, (batch, shared * group, queries, keys)))
    scale = draw.choice([None, 0.25])

    def function(*given: Any) -> Any:
        heads = [
            x.transpose(1, 2) if turn else x for x, turn in zip(given[:3], inside, strict=False)
        ]
        q, k, v = heads[:3]
        mask = given[3] if len(given) > 3 else None
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(q.dtype)
        found = attend(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=True)
        return found.transpose(1, 2).flatten(2) if inside[3] else found

    same(function, *inputs)


@pytest.mark.parametrize("causal", [False, True])
def test_unknown_sizes(on_cuda, causal):
    layer = turned(lambda q, k, v: attend(q, k, v, is_causal=causal))
    example = [some(3, 9, 16), *(some(16, 32) / 4 for _ in range(3))]
    module = program(layer, example, [{0: Dim.AUTO, 1: Dim.AUTO}, None, None, None])
    assert [each for each in said(module) if FUSED in each]
    machine = compile_for(module, "cuda")
    for sizes in ((2, 2), (1, 70), (4, 65)):
        inputs = [some(*sizes, 16), *example[1:]]
        [found] = run(machine, inputs, "cuda")
        wanted = layer(*(each.float() for each in inputs))
        torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.02)


def test_what_is_not_finite(on_cuda):
    """Rows that see nothing, or what is no number, as when scores are in memory."""
    query, key, value = heads(20, 70, dtype=HALF)
    query[0, 0, 3, 1] = math.nan
    query[0, 0, 5, 2] = math.inf
    key[0, 1, 66, 0] = math.inf
    value[0, 1, 69, 7] = math.inf
    seen = torch.rand(20, 70) > 0.4
    seen[7] = False
    fill = masked(lambda s, m: s.float().masked_fill(~m, NONE))
    for function in (lambda q, k, v, m: attend(q, k, v, m), fill):
        inputs = (query, key, value, seen)
        module = program(function, inputs)
        [found] = run(compile_for(module, "cuda"), inputs, "cuda")
        with tvm_scatter.options(attention=False):
            [wanted] = run(compile_for(module, "cuda"), inputs, "cuda")
        torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02, equal_nan=True)


def test_keys_behind_all_queries_are_not_read(on_cuda):
    """PyTorch's kernels do not, either: what is there changes no result."""
    inputs = heads(130, 130)
    function = lambda q, k, v: attend(q, k, v, is_causal=True)  # noqa: E731
    machine = compile_for(program(function, inputs), "cuda")
    [wanted] = run(machine, inputs, "cuda")
    inputs[1][:, :, 128:] = math.nan
    [found] = run(machine, inputs, "cuda")
    assert torch.equal(found[:, :, :64], wanted[:, :, :64])


def test_keys_behind_a_position_are_not_read(on_cuda):
    """As the rest of a cache that a step compares with its position."""

    def step(q: Any, k: Any, v: Any, at: Any) -> Any:
        seen = torch.arange(k.shape[2]) <= at[:, None]
        return attend(q, k, v, seen, enable_gqa=True)

    query, (key, value, _) = some(1, 4, 1, 16), heads(700, 700, outer=(1, 2))
    module = program(step, [query, key, value, torch.tensor([3])])
    machine = compile_for(module, "cuda")
    for position in (0, 63, 64, 300, 699):
        inputs = [query, key.clone(), value, torch.tensor([position])]
        wanted = step(*(each.float() for each in inputs[:3]), inputs[3])
        inputs[1][:, :, (position // 64 + 1) * 64 :] = math.nan
        [found] = run(machine, inputs, "cuda")
        torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.02)


def test_positions_of_queries(on_cuda):
    """What is compared with differs from query to query, and does not rise."""

    def chunk(q: Any, k: Any, v: Any, at: Any) -> Any:
        return attend(q, k, v, torch.arange(k.shape[2]) <= at[:, None])

    same(chunk, *heads(70, 200), torch.randint(0, 200, (70,)))


def test_lengths_of_sequences(on_cuda):
    def padded(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        seen = torch.arange(k.shape[2]) < lengths[:, None]
        return attend(q, k, v, seen[:, None, None])

    same(padded, *heads(20, 200, outer=(3, 2)), torch.tensor([3, 1 << 40, -(1 << 40)]))


OTHERS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "single precision": (attend, heads(20, 20, dtype=SINGLE)),
    "scores that are returned": (
        lambda q, k, v: ((s := q @ k.mT).softmax(-1) @ v, s),
        heads(20, 20),
    ),
    "weights that are read": (
        lambda q, k, v: (w := (q @ k.mT).softmax(-1)) @ v + w.sum(-1, keepdim=True),
        heads(20, 20),
    ),
    "a result in single precision": (
        lambda q, k, v: (q.float() @ k.float().mT).softmax(-1) @ v.float(),
        heads(20, 20),
    ),
    "heads of 12": (attend, heads(20, 20, 12)),
    "heads of 264": (attend, heads(20, 20, 264)),
    "another softmax": (lambda q, k, v: (q @ k.mT).softmax(-2) @ v, heads(20, 20)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name):
    function, inputs = OTHERS[name]
    assert not any(FUSED in each for each in said(program(function, inputs)))


def test_where_it_stays():
    module = program(attend, heads(20, 20))
    assert said(module) and not said(module, "sm_75") and not said(module, attention=False)
    assert "multiply_matrices" in cuda(module)
    assert "multiply_matrices" not in cuda(module, attention=False)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_it_is_accepted_by_nvidias_compiler(arch):
    assert cubin(cuda(program(attend, heads(20, 20, 64)), arch), arch)
