"""Products of 16-bit floats, which tensor cores of GPUs multiply."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
import tvm_ffi
from cuda_cases import cuda_target
from harness import at_its_address, device_of
from machine_code import cubin, cuda

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import check, compile_for, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402
from tvm_scatter.passes.analysis import fragment_tiles  # noqa: E402
from tvm_scatter.passes.analysis.fragment_tiles import fragment_tile  # noqa: E402

HALF, BRAIN = torch.float16, torch.bfloat16


def some(*shape, dtype=BRAIN):
    return torch.randn(*shape).to(dtype)


@pytest.fixture
def in_groups(monkeypatch):
    """Small products are multiplied by four warps together too, where GPUs can."""
    tiles = [each._replace(fewest=1) for each in fragment_tiles._CANDIDATES]
    monkeypatch.setattr(fragment_tiles, "_CANDIDATES", tiles)


@pytest.mark.turns(4)
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [(16, 17, 16), (40, 32, 48), (70, 33, 65), (33, 64, 24), (130, 200, 129), (300, 80, 64)],
)
def test_any_sizes(on_cuda, rows, terms, columns, transposed, unknown, dtype):
    right = (columns, terms) if transposed else (terms, columns)

    def product(x, y):
        return functional.relu(x @ (y.mT if transposed else y))

    inputs = [some(rows, terms, dtype=dtype), some(*right, dtype=dtype)]
    dynamic = [{0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO}] if unknown else None
    check(product, *inputs, dynamic=dynamic, device="cuda")


@pytest.mark.turns(8)
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("transposed", ["", "left", "right", "both"])
@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [(16, 65, 16), (64, 128, 64), (70, 136, 130), (130, 200, 72), (129, 321, 260)],
)
def test_any_sizes_by_four_warps(
    on_cuda, in_groups, rows, terms, columns, transposed, unknown, dtype
):
    sides = {"left": (rows, terms), "right": (terms, columns)}
    turned = {name for name in sides if transposed in (name, "both")}

    def product(x, y):
        return (x.mT if "left" in turned else x) @ (y.mT if "right" in turned else y)

    inputs = [
        some(*(shape[::-1] if name in turned else shape), dtype=dtype)
        for name, shape in sides.items()
    ]
    dynamic = [{0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO}] if unknown else None
    check(product, *inputs, dynamic=dynamic, device="cuda")


CASES = {
    "batches": (lambda x, y: x @ y, [(3, 40, 32), (3, 32, 48)]),
    "one matrix for all batches": (lambda x, y: x @ y, [(3, 5, 40, 32), (32, 48)]),
    "the left one transposed": (lambda x, y: x.mT @ y, [(32, 40), (32, 48)]),
    "both transposed": (lambda x, y: x.mT @ y.mT, [(32, 40), (48, 32)]),
    "concatenated": (lambda x, y, z: torch.cat([x, y], 1) @ z, [(40, 16), (40, 24), (40, 32)]),
    "sliced": (lambda x, y: x[:, 8:40] @ y[3:35], [(40, 64), (50, 48)]),
    "computed": (lambda x, y: (x * 2).relu() @ y.exp(), [(40, 32), (32, 48)]),
    "a bias and more": (
        lambda x, y, z: functional.gelu(functional.linear(x, y, z)) * 2,
        [(40, 32), (48, 32), (48,)],
    ),
    "a residual": (lambda x, y, z: x @ y + z, [(40, 32), (32, 40), (40, 40)]),
    "attention": (lambda x, y, z: (x @ y.mT).softmax(-1) @ z, [(2, 3, 40, 32)] * 3),
    "a convolution": (lambda x, y: functional.conv2d(x, y), [(2, 32, 8, 8), (16, 32, 1, 1)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_around_them(on_cuda, name):
    function, shapes = CASES[name]
    check(function, *(some(*shape) for shape in shapes), device="cuda")


OF_MORE_TERMS = {
    "batches": (lambda x, y: x @ y, [(3, 40, 72), (3, 72, 48)]),
    "concatenated": (lambda x, y, z: torch.cat([x, y], 1) @ z, [(40, 56), (40, 24), (80, 32)]),
    "sliced": (lambda x, y: x[:, 8:80] @ y[3:75], [(40, 96), (90, 48)]),
    "the first of rows": (lambda x, y: x[:, :75] @ y[:75], [(40, 96), (90, 48)]),
    "computed": (lambda x, y: (x * 2).relu() @ y.exp(), [(40, 72), (72, 48)]),
    "a bias and more": (
        lambda x, y, z: functional.gelu(functional.linear(x, y, z)) * 2,
        [(40, 72), (48, 72), (48,)],
    ),
    "a residual": (lambda x, y, z: x @ y + z, [(40, 72), (72, 40), (40, 40)]),
    "one behind another": (lambda x, y, z: (x @ y) @ z, [(70, 72), (72, 80), (80, 70)]),
}


@pytest.mark.parametrize("name", OF_MORE_TERMS)
def test_what_is_around_them_by_four_warps(on_cuda, in_groups, name):
    function, shapes = OF_MORE_TERMS[name]
    check(function, *(some(*shape) for shape in shapes), device="cuda")


CONVOLUTIONS = {
    "of points": (functional.conv2d, [(2, 32, 7, 9), (32, 32, 1, 1)], [{0: Dim.AUTO}, {}]),
    "of points, all unknown": (
        functional.conv2d, [(2, 72, 7, 9), (32, 72, 1, 1)],
        [{0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}, {}],
    ),
    "of neighbours": (
        lambda x, y: functional.conv2d(x, y, padding=1), [(2, 16, 16, 16), (16, 16, 3, 3)],
        [{0: Dim.AUTO}, {}],
    ),
    "along one axis": (
        functional.conv1d, [(2, 32, 70), (32, 32, 1)], [{0: Dim.AUTO, 2: Dim.AUTO}, {}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_unknown_sizes(on_cuda, name):
    """Their channels are columns, which are not neighbours in the result."""
    function, shapes, dynamic = CONVOLUTIONS[name]
    check(function, *(some(*shape) for shape in shapes), dynamic=dynamic, device="cuda")


def test_results_in_single_precision(on_cuda):
    """Of whole numbers, whose sums neither type rounds."""
    x, y = (some(*shape).round() for shape in ((40, 64), (64, 48)))
    check(lambda x, y: (x @ y).float(), x, y, device="cuda")


@pytest.mark.parametrize("dtype", [BRAIN, torch.float32])
def test_a_matrix_and_itself(on_cuda, dtype):
    def product(x):
        return functional.relu(x @ x)

    check(product, some(3, 40, 40, dtype=dtype), dynamic=[{0: Dim.AUTO}], device="cuda")
    generated = cuda(program(product, torch.empty(64, 64, dtype=dtype)), "sm_80")
    assert "__shared__" in generated and "red_buf" not in generated


def test_rows_that_are_read_by_index(on_cuda):
    rows = torch.randint(0, 100, (70,))
    check(lambda x, i, y: x[i] @ y, some(100, 32), rows, some(32, 64), device="cuda")


def test_single_precision_that_is_rounded_first(on_cuda):
    def product(x, y):
        return x.to(BRAIN) @ y.to(BRAIN)

    check(product, torch.randn(40, 32), torch.randn(32, 48), device="cuda")


WIDENED = {
    "as they are": (lambda x, y: x.float() @ y.float(), [(40, 32), (32, 48)]),
    "transposed": (lambda x, y: x.float() @ y.float().mT, [(2, 40, 32), (2, 48, 32)]),
    "in another shape": (
        lambda x, y: x.float().reshape(40, 32) @ y.float().mT.expand(2, 32, 48),
        [(2, 20, 32), (48, 32)],
    ),
    "repeated": (
        lambda x, y: x.float() @ y.float()[:, None].expand(2, 3, 32, 48).flatten(0, 1),
        [(6, 40, 32), (2, 32, 48)],
    ),
}


@pytest.mark.parametrize("name", WIDENED)
def test_what_was_only_widened(on_cuda, name):
    function, shapes = WIDENED[name]
    inputs = [some(*shape) for shape in shapes]
    assert "tvm_scatter_multiply_fragments" in cuda(program(function, *inputs))
    check(function, *inputs, device="cuda")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.float() @ (y.float() * 3),
        lambda x, y: x.float() @ y.to(HALF).float(),
        lambda x, y: x.float() @ y.float()[:, :8],
    ],
)
def test_what_is_not_only_widened(function):
    module = program(function, some(40, 32), some(32, 48))
    assert "tvm_scatter_multiply_fragments" not in cuda(module)


def test_tensors_that_begin_anywhere(on_cuda):
    """Copies of 16 bytes need factors that begin at a multiple of these."""
    left, right = some(40, 64, dtype=HALF), some(64, 48, dtype=HALF)
    machine = compile_for(program(lambda x, y: x @ y, left, right), on_cuda)
    wanted = (left.float() @ right.float()).numpy()
    for shift in (0, 1, 4):
        found = machine["main"](*(beside(each.numpy(), shift) for each in (left, right)))
        found = found[0] if isinstance(found, tvm_ffi.Array) else found
        np.testing.assert_allclose(found.numpy().astype("float32"), wanted, 0.02, 0.05)


def beside(array, shift):
    """A tensor that begins so many elements behind the begin of its memory."""
    whole = tvm.runtime.empty((array.size + shift,), "float16", device_of("cuda"))
    view = at_its_address(whole._create_view(array.shape, "float16", 2 * shift))
    view.copyfrom(array)
    return view


def program(function, *inputs):
    return from_exported_program(export(function, inputs))


def source(rows=2048, terms=512, columns=1024, dtype=BRAIN, arch="sm_90", **options):
    inputs = [torch.empty(rows, terms, dtype=dtype), torch.empty(terms, columns, dtype=dtype)]
    return cuda(program(lambda x, y: x @ y, *inputs), arch, **options)


def test_explain_says_so():
    inputs = [torch.empty(2048, 512, dtype=HALF), torch.empty(512, 1024, dtype=HALF)]
    mod = program(lambda x, y: x @ y, *inputs)
    said = str(tvm_scatter.explain(mod, cuda_target("sm_90")))
    assert "is computed in tiles of 128 x 128 by tensor cores" in said
    assert "tensor cores" not in str(tvm_scatter.explain(mod, cuda_target("sm_75")))


def test_which_are_multiplied_so():
    name = "tvm_scatter_multiply_fragments"
    assert name in source(arch="sm_80") and name in source(dtype=HALF, arch="sm_80")
    assert name in source(16, 17, 16)
    others = [
        source(products=False),
        source(dtype=torch.float32),
        source(arch="sm_75"),
        *(source(*sizes) for sizes in ((15, 64, 64), (64, 16, 64), (64, 64, 15))),
    ]
    assert not any(name in each for each in others)


def test_which_are_multiplied_by_four_warps():
    name = "tvm_scatter_multiply_group_128_bfloat16_0_1("
    assert name in source(arch="sm_90a")
    assert name.replace("bfloat16", "float16") in source(arch="sm_90a", dtype=HALF)
    few_tiles, few_terms = source(100, arch="sm_90a"), source(terms=64, arch="sm_90a")
    for other in (source(arch="sm_80"), source(arch="sm_100a"), few_tiles, few_terms):
        assert "multiply_group" not in other and "multiply_fragments" in other


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_it_is_accepted_by_nvidias_compiler(arch):
    assert cubin(source(arch=arch), arch)


def test_products_of_several_tiles_in_one_module():
    def function(x, y, z):
        return (x @ y).relu() @ z

    shapes = [(16_384, 512), (512, 4096), (4096, 64)]
    inputs = [torch.empty(*shape, dtype=BRAIN) for shape in shapes]
    generated = cuda(program(function, *inputs), "sm_90a")
    for columns in (256, 64):
        assert f"tvm_scatter_multiply_group_{columns}_" in generated
    assert cubin(generated, "sm_90a")


def test_tiles():
    def tile(*sizes):
        found = fragment_tile(*sizes)
        return found.rows, found.columns, found.depth, found.stages

    assert tile(1, 4096, 4096, 4096) == (128, 128, 64, 2)
    assert tile(1, None, 128, None) == (128, 128, 64, 2)
    assert tile(1, 100_000, 64, 256) == (128, 64, 64, 3)
    assert tile(1, 2048, 512, 1024) == (128, 64, 64, 3)
    assert tile(1, 512, 512, 512) == (32, 32, 64, 4)
    assert tile(1, 512, 512, 64) == (32, 32, 32, 2)
    assert tile(1, 512, 512, 96) == (32, 32, 32, 3)
    assert tile(1, 512, 512, 17) == (32, 32, 16, 2)


def test_tiles_of_four_warps_and_more():
    def tile(*sizes):
        found = fragment_tile(*sizes, by_group=True)
        return found.rows, found.columns, found.stages, found.by_group

    assert tile(1, 4096, 4096, 4096) == (128, 256, 4, True)
    assert tile(8, 2048, 1408, 4096) == (128, 128, 3, True)
    assert tile(1, 2048, 512, 1024) == (128, 64, 4, True)
    assert tile(1, 512, 512, 512) == (64, 64, 4, True)
    assert tile(1, None, 64, None) == (128, 64, 4, True)
    assert tile(1, 256, 256, 512) == (32, 32, 4, False)
    assert tile(1, 4096, 4096, 64) == (128, 128, 2, False)


def test_shared_memory_suits_the_gpus_of_these_tiles():
    """227 KB are what a block may have of compute capability 9.0."""
    for tile, *_ in fragment_tiles._CANDIDATES:
        factors = 2 * tile.stages * (tile.rows + tile.columns) * tile.depth
        sums = 4 * tile.rows * (tile.columns + 8)
        assert tile.stages > 2 and max(factors, sums) <= 227 * 1024


def test_shared_memory_suits_small_gpus():
    """99 KB are what a block may have from compute capability 8.6 on."""
    for sizes in ((1, 4096, 4096, 4096), (1, 9999, 64, 999), (1, 999, 999, 999), (1, 99, 99, 999)):
        tile = fragment_tile(*sizes)
        factors = 2 * tile.stages * (tile.rows + tile.columns) * (tile.depth + 8)
        by_term = 2 * tile.stages * tile.depth * (tile.rows + tile.columns + 16)
        sums = 4 * tile.rows * (tile.columns + 8)
        assert max(factors, by_term, sums) <= 99 * 1024


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_transposed_factors_are_read_where_they_lie(dtype):
    """A copy of a table of words in the other order takes as long as a small product."""

    def names(function, *shapes):
        mod = program(function, *(torch.empty(*shape, dtype=dtype) for shape in shapes))
        kernels = re.findall(r"void __launch_bounds__\(\d+\) (\w+)_kernel\w*\(", cuda(mod))
        return {each for each in kernels if not each.startswith("reshape")}

    assert len(names(lambda x, y: x @ y.T, (64, 96), (200, 96))) == 1
    assert len(names(lambda x, y: x.mT @ y.mT, (3, 96, 64), (3, 200, 96))) == 1
    # Neighbours are of several products here.
    assert len(names(lambda x, y: x.permute(2, 0, 1) @ y, (64, 96, 8), (8, 96, 48))) == 2


@pytest.mark.parametrize("unknown", [False, True])
def test_factors_in_any_order(on_cuda, unknown):
    rows, batch = {0: Dim.AUTO}, {1: Dim.AUTO}
    dynamic = [rows, None] if unknown else None
    check(lambda x, y: x @ y.T, some(40, 96), some(33, 96), dynamic=dynamic, device="cuda")
    dynamic = [batch, rows] if unknown else None
    inputs = some(40, 3, 32), some(3, 32, 48)
    check(lambda x, y: x.transpose(0, 1) @ y, *inputs, dynamic=dynamic, device="cuda")
    inputs = some(40, 32, 3), some(3, 48, 32)
    check(lambda x, y: x.permute(2, 0, 1) @ y.mT, *inputs, device="cuda")
