"""Orders on a GPU: the sizes decide how they are made. Each way where it begins and ends."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_cases import cuda_target
from machine_code import cuda, needs_nvrtc, ptx
from test_costs import problem
from test_order import check, compiled, expected, run
from tvm import relax

import tvm_scatter
from tvm_scatter.selection.work import Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.machines import machine_of
from tvm_scatter.strategies.cuda.ordering import forms_from, time_of_order
from tvm_scatter.strategies.cuda.steps import order_by_buckets, order_by_owners

#: The most updates that all blocks look through, and destinations of one of them.
LOOKED_AT, EACH = order_by_owners._MOST_ITEMS[0], order_by_owners._MOST_EACH
THREADS = device_constant("bucket_order", "kBucketOrderThreads")
#: What a block orders, where buckets are small and where they are large.
SMALL, LARGE = 8 * THREADS, 16 * THREADS
PLACES = device_constant("bucket_order", "kBucketOrderPlaces")
FORMS = ("owners", "buckets", "radix")


def drawn(count, extent, skew=1.0, bad=True):
    """Destinations, some of which are negative, and some out of range."""
    generator = np.random.default_rng(count + extent)
    index = (generator.random(count) ** skew * extent).astype("int64")
    index = generator.permutation(extent)[index] if extent else index
    index[generator.random(count) < 0.1] -= extent
    if bad:
        index[generator.random(count) < 0.1] = extent + 5
        index[generator.random(count) < 0.05] = -extent - 1
    return index


def check_order(index, extent, form="owners", symbolic=False):
    with forms_from(form):
        machine = compiled(index.shape, str(index.dtype), extent, "cuda", symbolic, bounds="drop")
    check(run(machine, index, extent, "cuda", symbolic), expected(index, extent))


@pytest.fixture(autouse=True)
def on_a_gpu(device):
    if device == "llvm":
        pytest.skip("it has one form there")


@pytest.mark.turns(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("count", "extent"), [(0, 0), (0, 5), (1, 1), (1, 0), (2, 3), (700, 5000), (5000, 700)]
)
def test_small_ones(device, form, count, extent):
    check_order(drawn(count, extent), extent, form)


@pytest.mark.turns(4)
@pytest.mark.parametrize("extent", [1, 130, 131, 132, 133, 263, 264, 132 * EACH - 1, 132 * EACH])
def test_destinations_of_blocks(device, extent):
    """The last block has one place more, for updates that are dropped."""
    check_order(drawn(1500, extent), extent)


@pytest.mark.turns(4)
@pytest.mark.parametrize("count", [1023, 1025, 16 * 1024 - 1, LOOKED_AT, LOOKED_AT + 1])
def test_updates_that_all_blocks_look_through(device, count):
    check_order(drawn(count, 300), 300)


def test_all_updates_of_one_block(device):
    check_order(np.full(LOOKED_AT, 299), 300)
    check_order(np.full(LOOKED_AT, 300), 300)


@pytest.mark.parametrize(
    ("count", "extent"),
    [
        (SMALL, PLACES),
        (SMALL + 1, PLACES + 1),
        (LARGE, PLACES + 1),
        (LARGE + 1, PLACES),
        *(pytest.param(count, 1, marks=pytest.mark.exhaustive) for count in (SMALL, SMALL + 1)),
    ],
)
def test_all_updates_of_one_bucket(device, count, extent):
    """On one destination, and on one after the other."""
    check_order(np.full(count, extent - 1), extent, "buckets")
    check_order(np.arange(count) % extent, extent, "buckets")


@pytest.mark.parametrize("skew", [3.0, 30.0])
def test_skewed_destinations(device, skew):
    """Several buckets of which each has units of its own."""
    check_order(drawn(40000, 3000, skew), 3000, "buckets")


@pytest.mark.parametrize("bits", [5, 32])
@pytest.mark.parametrize(("count", "extent"), [(2 * LARGE + 1, 2), (40000, 3000)])
def test_all_buckets_are_cut(device, monkeypatch, bits, count, extent):
    """Also where an item and a place in a bucket take more bits than a word has."""
    monkeypatch.setattr(order_by_buckets, "_ONE_PASS", 0)
    monkeypatch.setattr(order_by_buckets, "_SOME_BUCKETS", 0)
    monkeypatch.setattr(order_by_buckets, "_ENOUGH_BUCKETS", 2)
    monkeypatch.setattr(order_by_buckets, "_WORD_BITS", bits)
    [word] = re.findall(r" count_units<\d+, \d+, (\w+)>", source_of(count, extent, "buckets"))
    assert word == ("uint64" if bits < 32 else "uint32")
    check_order(drawn(count, extent, 2.0), extent, "buckets")


@pytest.mark.parametrize("skew", [1.0, 20.0])
@pytest.mark.parametrize(
    ("count", "extent", "bits"), [(1100, 1500, 10), (14_000, 1500, 10), (14_000, 3000, 11)]
)
@pytest.mark.turns(4)
def test_more_places_than_threads(device, monkeypatch, count, extent, bits, skew):
    """Of whole buckets, and of some that are cut, where there would be too many otherwise."""
    monkeypatch.setattr(order_by_buckets, "_ENOUGH_BUCKETS", 1)
    monkeypatch.setattr(order_by_buckets, "_MOST_BUCKETS", 2)
    assert re.search(rf" order_bucket<P, \d+, {bits},", source_of(count, extent, "buckets"))
    check_order(drawn(count, extent, skew), extent, "buckets")


@pytest.mark.exhaustive
@pytest.mark.parametrize("skew", [1.0, 20.0])
def test_more_tiles_than_threads(device, monkeypatch, skew):
    """A block that gathers a bucket looks at as many tiles as it has threads at a time."""
    monkeypatch.setattr(order_by_buckets, "_ENOUGH_TILES", 1 << 20)
    count = 2 * THREADS * THREADS + 1000
    check_order(drawn(count, 3000, skew), 3000, "buckets")


def test_only_bad_indices(device):
    check_order(np.full(20000, 77), 77, "buckets")


def test_many_destinations(device):
    check_order(drawn(3000, 600 * PLACES + 3), 600 * PLACES + 3, "buckets")


SIZES = [
    *((0, 0), (0, 9), (1, 1), (1025, 2708), (LOOKED_AT, 40), (LOOKED_AT + 1, 40), (30000, 33000)),
    *((2000, 132 * EACH - 1), (2000, 132 * EACH), (20000, 1), (300, 300 * PLACES)),
]


def test_symbolic_sizes(device):
    """One module, which chooses when it runs."""
    machine = compiled((1,), "int64", 1, "cuda", symbolic=True, bounds="drop")
    for count, extent in SIZES:
        index = drawn(count, extent, 2.0)
        check(run(machine, index, extent, "cuda", symbolic=True), expected(index, extent))


@pytest.mark.turns(2)
@pytest.mark.parametrize("form", FORMS[1:])
def test_symbolic_sizes_of_the_other_forms(device, form):
    with forms_from(form):
        machine = compiled((1,), "int32", 1, "cuda", symbolic=True, bounds="drop")
    for count, extent in ((0, 3), (5, 2), (9000, 700)):
        index = drawn(count, extent).astype("int32")
        check(run(machine, index, extent, "cuda", symbolic=True), expected(index, extent))


def source_of(count, extent, form="owners", **target):
    """The CUDA of an order of so many updates by destinations."""
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([count], "int64"))
    with builder.function("main", [index]):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(tvm_scatter.order(index, extent)))
        builder.emit_func_output(output)
    with forms_from(form):
        return cuda(builder.get(), **target)


@pytest.mark.parametrize(
    ("count", "extent", "form"),
    [
        (2_000, 500, "order_by_owners"),
        (10_556, 2_708, "order_by_owners"),
        (16_384, 67_583, "order_by_owners"),
        (16_384, 67_584, "order_bucket"),
        (16_385, 500, "order_bucket"),
        (5_000_000, 100_000, "order_bucket"),
        (1_000_000, 64, "move_to_rank"),
        (10_000_000, 511, "move_to_rank"),
        (10_000_000, 512, "order_bucket"),
        (20_000_000, 100_000, "order_bucket"),
        (2**31 - 2, 100_000, "order_bucket"),
        (1_000_000, 4096 * PLACES, "order_bucket"),
        (1_000_000, 4096 * PLACES + 1, "move_to_rank"),
        (1_100_000, 4096 * PLACES + 1, "order_bucket"),
        (20_000_000, 3_000_000, "order_bucket"),
        (123_718_280, 2_449_029, "move_to_rank"),
        (20_000_000, 16384 * PLACES + 1, "move_to_rank"),
    ],
)
def test_which_form_is_chosen(device, count, extent, form):
    source = source_of(count, extent)
    calls = ("order_by_owners", "order_bucket", "move_to_rank")
    assert [name for name in calls if f" {name}<" in source] == [form]


@pytest.mark.parametrize(
    ("arch", "count", "extent", "form"),
    [
        ("sm_75", 10_556, 2_708, "order_bucket"),
        ("sm_86", 8_192, 2_708, "order_by_owners"),
        ("sm_86", 8_193, 2_708, "order_bucket"),
        ("sm_75", 5_000_000, 100_000, "order_bucket"),
        ("sm_75", 14_000_000, 717_000, "move_to_rank"),
        ("sm_86", 14_000_000, 717_000, "order_bucket"),
        ("sm_86", 30_000_000, 2_000_000, "move_to_rank"),
        ("sm_90", 30_000_000, 2_000_000, "order_bucket"),
    ],
)
@pytest.mark.each_device
def test_shared_memory_decides(device, arch, count, extent, form):
    """What is predicted is what is emitted."""
    source = source_of(count, extent, arch=arch)
    assert f" {form}<" in source
    posed = problem("add", "float32", (1, extent, count, 1), {})
    launches, _, _ = time_of_order(Work.of(posed, machine_of(cuda_target(arch)), "uniform"))
    assert launches == {"order_by_owners": 1, "order_bucket": 4}.get(form, 11)


@pytest.mark.turns(2)
@needs_nvrtc
@pytest.mark.parametrize(("count", "extent"), [(2_000, 500), (5_000_000, 100_000)])
def test_it_compiles(device, count, extent):
    assert ".entry" in ptx(source_of(count, extent))
