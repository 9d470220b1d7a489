"""A softmax over the updates of each destination is computed in the scatter that it weights."""

from __future__ import annotations

import functools
import zlib
from random import Random

import numpy as np
import pytest
import tvm
from cuda_cases import cuda_target, in_one_source
from harness import called, compiled_with, target_of
from machine_code import cubin, needs_nvrtc
from softmax_programs import Attention
from tvm import relax

import tvm_scatter
from tvm_scatter.options import current_options
from tvm_scatter.passes import passes
from tvm_scatter.passes.analysis.bindings import Bindings

OPTIONS = {"fuse": True, "bounds": "drop"}
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-13}


def machine(module, device, **options):
    return compiled_with(module, device, **{**OPTIONS, **options})


def explained(module, device, **options):
    with tvm_scatter.options(**{**OPTIONS, **options}):
        return tvm_scatter.explain(module, target_of(device))


def is_fused(module, device, **options):
    return any(each.problem.softmax for each in explained(module, device, **options))


def check(kind, device, arrays=None, **options):
    module = kind.module()
    [explanation] = explained(module, device, **options)
    assert explanation.problem.softmax
    arrays = kind.arrays() if arrays is None else arrays
    compare(called(machine(module, device, **options), device, arrays), kind, arrays)


def compare(result, kind, arrays):
    tolerance = TOLERANCE[kind.dtype]
    wanted = kind.expected(arrays)
    found = result.astype("float64")
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=10 * tolerance)


#: Of known and of symbolic sizes: on GPUs few updates of known sizes need no order.
each_size = pytest.mark.parametrize("symbolic", [False, True])
#: Where others try what is symbolic, which takes several implementations and so long to compile.
known_sizes = pytest.mark.parametrize(
    "symbolic", [False, pytest.param(True, marks=pytest.mark.exhaustive)]
)


@pytest.mark.turns(2)
@each_size
def test_by_eye(device, symbolic):
    kind = Attention(nodes=3, edges=3, heads=(), columns=(2,), symbolic=symbolic)
    logits = np.array([0, np.log(3), 5], "float32")
    values = np.array([[4, 8], [8, 16], [1, 2]], "float32")
    index = np.array([2, 2, 0])
    result = called(machine(kind.module(), device), device, [logits, values, index, logits])
    # 2 gets a quarter of the first and three quarters of the second; 0 gets the third.
    np.testing.assert_allclose(result, [[1, 2], [0, 0], [7, 14]], rtol=1e-6)


SHAPES = [
    Attention(),
    Attention(heads=(), columns=(3,), tiny=None),
    Attention(heads=(), columns=(1,)),
    Attention(heads=(3,), columns=(16,), view="reshape"),
    Attention(heads=(2, 2), columns=(2, 4), view="broadcast_to"),
    Attention(heads=(4,), columns=()),
    Attention(heads=(2,), columns=(1100,), edges=9),
    Attention(nodes=1, edges=1),
    Attention(nodes=3, edges=0),
    Attention(nodes=0, edges=3, heads=(), columns=(3,)),
    Attention(nodes=0, edges=0),
    Attention(symbolic=True),
    Attention(ordered=True),
]


TURNS = 8


@functools.cache
def of_some_shapes(device, turn):
    """One module for a turn, since compiling is what takes the time."""
    functions = {
        f"shape{at}": SHAPES[at].module()["main"].with_attr("global_symbol", f"shape{at}")
        for at in range(turn, len(SHAPES), TURNS)
    }
    return machine(tvm.IRModule(functions), device)


@pytest.mark.turns(TURNS)
@pytest.mark.parametrize("at", range(len(SHAPES)), ids=map(str, SHAPES))
def test_shapes(device, at):
    kind, arrays = SHAPES[at], SHAPES[at].arrays()
    result = called(of_some_shapes(device, at % TURNS), device, arrays, f"shape{at}")
    if kind.edges == 0 or kind.nodes == 0:
        assert result.shape[0] == kind.nodes and not result.any()
        return
    [explanation] = explained(kind.module(), device)
    assert explanation.problem.softmax
    compare(result, kind, arrays)


def tried(device, seeds, **options):
    """Random programs in one module, with special logits now and then."""
    dtypes = ["float32", "float32", "float64"] + ["float16"] * (device == "cuda")
    kinds = {f"seed{seed}": Attention.draw(Random(seed), dtypes) for seed in seeds}
    functions = {
        name: kind.module()["main"].with_attr("global_symbol", name) for name, kind in kinds.items()
    }
    compiled = machine(tvm.IRModule(functions), device, **options)
    for name, kind in kinds.items():
        random, arrays = Random(name), kind.arrays(zlib.crc32(name.encode()))
        if random.random() < 0.3:
            special = random.choice([np.nan, np.inf, -np.inf])
            arrays[0].reshape(-1)[random.randrange(arrays[0].size)] = special
        result = called(compiled, device, arrays, name)
        tolerance = 2000 * TOLERANCE[kind.dtype] if kind.dtype == "float64" else 1e-5
        tolerance = 4e-3 if kind.dtype == "float16" else tolerance
        wanted = kind.expected(arrays)
        found = result.astype("float64")
        np.testing.assert_allclose(found, wanted, tolerance, tolerance, err_msg=f"{name}: {kind}")


@pytest.mark.turns(2)
@pytest.mark.parametrize("bounds", ["drop", "raise", "trust"])
def test_random_programs(device, bounds):
    tried(device, range(4 if device == "llvm" else 2), bounds=bounds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(100, 300, 20))
def test_many_random_programs(device, first):
    tried(device, range(first, first + 20), fill=first % 40 == 0)


@pytest.mark.turns(2)
@known_sizes
@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_other_types(device, dtype, symbolic):
    kind = Attention(dtype=dtype, symbolic=symbolic)
    if dtype == "bfloat16":
        assert is_fused(kind.module(), device)
        return
    check(kind, device)


@pytest.mark.turns(2)
@each_size
@pytest.mark.parametrize("fill", [False, True])
def test_long_and_short_lists(device, fill, symbolic):
    """Of one destination thousands: sums of chunks, and of chunks of chunks."""
    kind = Attention(nodes=5, edges=9000, columns=(2,), symbolic=symbolic)
    arrays = kind.arrays()
    arrays[2] = np.where(np.arange(9000) < 8700, 3, arrays[2])
    arrays[0][100] += 40
    check(kind, device, arrays, fill=fill)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("dtype", "columns"), [("float32", 32), ("bfloat16", 64), ("float32", 27)])
def test_a_block_shares_its_longer_rows(device, dtype, columns):
    """Among many rows with few edges: rows of 10 to 140, each by itself and some side by side."""
    kind = Attention(nodes=17000, edges=20000, columns=(columns,), dtype=dtype)
    lengths = np.array([*range(10, 71), 64, 128, 129, 140, *[40] * 20])
    long = np.concatenate([np.arange(61) * 211, np.arange(14000, 14024)])
    arrays = kind.arrays()
    index = np.repeat(long, lengths)
    arrays[2][: len(index)] = index
    arrays[2] = np.random.default_rng(0).permutation(arrays[2])
    [found] = explained(kind.module(), device)
    assert found.implementation == "ordered"
    check(kind, device, arrays)


@pytest.mark.turns(4)
@known_sizes
@pytest.mark.parametrize("among", [1, 100])
@pytest.mark.parametrize(
    "special", [-np.inf, np.nan, pytest.param(np.inf, marks=pytest.mark.exhaustive)]
)
def test_special_logits(device, special, among, symbolic):
    """All of a destination's, one among others, and one at the place of the last or the first."""
    kind = Attention(nodes=6, edges=6 * among, heads=(), columns=(3,), symbolic=symbolic)
    logits, values, index, like = kind.arrays()
    index = np.arange(kind.edges) % 6
    logits[index == 0] = special
    own = np.flatnonzero(index == 1)
    logits[own[-1]] = special
    logits[np.flatnonzero(index == 2)[0]] = special
    check(kind, device, [logits, values, index, like])


@pytest.mark.turns(2)
@each_size
def test_special_values(device, symbolic):
    """A value that is none spoils its own column and no other."""
    kind = Attention(edges=40, symbolic=symbolic)
    arrays = kind.arrays()
    arrays[1][3, 0, 1] = np.nan
    arrays[1][5, 1, 2] = np.inf
    check(kind, device, arrays)


@pytest.mark.turns(2)
@known_sizes
@pytest.mark.parametrize("wraps", [False, True])
def test_bad_indices(device, wraps, symbolic):
    kind = Attention(wraps=wraps, symbolic=symbolic)
    arrays = kind.arrays()
    arrays[2][4] = kind.nodes
    arrays[2][6] = -kind.nodes - 1
    check(kind, device, arrays)
    compiled = machine(kind.module(), device, bounds="raise")
    with pytest.raises(IndexError, match=f"index {kind.nodes} "):
        called(compiled, device, arrays)
    arrays[2][4] = 0
    arrays[2][6] = -1
    if not wraps:
        return
    result = called(machine(kind.module(), device), device, arrays)
    arrays[2][6] = kind.nodes - 1
    np.testing.assert_allclose(result, kind.expected(arrays), rtol=1e-5, atol=1e-5)


def test_layers_share_one_order(device):
    kind = Attention(layers=3)
    module = kind.module()
    # All layers have the same operands, and so would be one.
    options = {"share_values": False}
    found = explained(module, device, **options)
    assert [each.implementation for each in found] == ["ordered"] * 3
    with tvm_scatter.options(**OPTIONS, **options), target_of(device):
        text = tvm.transform.Sequential(passes(current_options()))(module).script()
    assert text.count("tvm_scatter.order(") == 1
    arrays = kind.arrays()
    result = called(machine(module, device, **options), device, arrays)
    np.testing.assert_allclose(result, kind.expected(arrays), rtol=1e-5, atol=1e-5)


def test_an_order_that_is_given_is_taken(device):
    with tvm_scatter.options(**OPTIONS), target_of(device):
        module = Attention(ordered=True).module()
        text = tvm.transform.Sequential(passes(current_options()))(module).script()
    assert text.count("tvm_scatter.order(") == 1
    assert is_fused(module, device)


def test_shares_are_in_no_tensor(device):
    """Neither the greatest logits nor powers nor shares nor messages."""
    module = Attention(edges=61).module()
    with tvm_scatter.options(**OPTIONS), target_of(device):
        module = tvm.transform.Sequential(passes(current_options()))(module)
        module = relax.transform.LegalizeOps()(module)
    made = [str(binding.var.ty) for binding in Bindings(module["main"])]
    assert made
    assert not any("61, 2" in each for each in made)


@pytest.mark.parametrize(
    "kind",
    [
        Attention(tiny=1e-3),
        Attention(tiny=-1e-16),
    ],
    ids=str,
)
def test_what_is_another_sum(device, kind):
    """What is added to the sums must be lost by rounding."""
    assert not is_fused(kind.module(), device)
    assert is_fused(Attention().module(), device)


def test_one_implementation_that_is_asked_for(device):
    name = "sequential"
    assert not is_fused(Attention().module(), device, implementation=name)


def test_off_leaves_it_alone(device):
    assert not is_fused(Attention().module(), device, fuse=False)


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        (Attention(), "owned_softmax"),
        (Attention(edges=1 << 14), "owned_softmax"),
        (Attention(edges=1 << 14, nodes=3), "ordered"),
        (Attention(edges=(1 << 14) + 1), "ordered"),
        (Attention(symbolic=True), "ordered"),
        (Attention(ordered=True), "ordered"),
        (Attention(edges=1 << 13, columns=(1024,)), "ordered"),
        (Attention(layers=2), "owned_softmax"),
        (Attention(layers=3), "ordered"),
    ],
    ids=str,
)
def test_few_updates_need_no_order(kind, chosen):
    """Each block looks through them; but an order is worth it if several share it."""
    found = explained(kind.module(), "cuda", share_values=False)
    assert [each.implementation for each in found] == [chosen] * kind.layers


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "dtypes"),
    [("owned_softmax", ("bfloat16", "float32")), ("ordered", ("float16", "float64"))],
)
@pytest.mark.exhaustive
def test_it_compiles(name, dtypes):
    target, functions = cuda_target("sm_90"), {}
    for dtype in dtypes:
        with tvm_scatter.options(**OPTIONS, fill=dtype == "float32"), target:
            module = Attention(dtype=dtype, edges=9000, symbolic=name == "ordered").module()
            module = tvm.transform.Sequential(passes(current_options()))(module)
            module = relax.transform.LegalizeOps()(module)
        functions |= {
            f"{each.name_hint}_{dtype}": function
            for each, function in module.functions.items()
            if name in each.name_hint
        }
    assert len(functions) == len(dtypes)
    assert len(cubin(in_one_source(functions, target).source)) > 0
