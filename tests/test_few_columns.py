"""Products of any rows with matrices of fewer than 16 columns."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from cuda_cases import cuda_target  # noqa: E402
from machine_code import cuda, needs_nvrtc, ptx  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import check, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def some(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


@pytest.mark.turns(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [(1, 64, 8), (2, 4, 2), (9, 33, 3), (17, 256, 8), (40, 512, 15), (33, 7, 5), (70, 96, 12)],
)
def test_any_sizes(on_cuda, caplog, rows, terms, columns, transposed, unknown, dtype):
    right = (columns, terms) if transposed else (terms, columns)

    def product(x, y):
        return functional.relu(x @ (y.mT if transposed else y)) + 1

    dynamic = [{0: Dim.AUTO}, None] if unknown and rows > 1 else None
    inputs = [some(rows, terms, dtype=dtype), some(*right, dtype=dtype)]
    check(product, *inputs, dynamic=dynamic, device="cuda")
    assert not [each for each in caplog.records if "default schedule" in each.getMessage()]


CASES = {
    "batches": (lambda x, y: x @ y, [(3, 40, 32), (3, 32, 8)]),
    "batches that share a matrix": (lambda x, y: x @ y, [(3, 20, 64), (64, 8)]),
    "unknown terms": (lambda x, y: x.mT @ y, [(50, 40), (50, 4)]),
    "a bias": (lambda x, y, z: x @ y + z, [(40, 64), (64, 4), (4,)]),
    "a residual": (lambda x, y, z: (x @ y).sigmoid() * z, [(40, 64), (64, 8), (40, 8)]),
    "a slice": (lambda x, y: x[:, 3:35] @ y[1:33], [(40, 64), (50, 8)]),
    "computed": (lambda x, y: (x * 2).relu() @ y.exp(), [(40, 64), (64, 8)]),
    "a gate": (lambda x, y: (x.float() @ y.float()).softmax(-1), [(40, 64), (64, 8)]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("unknown", [False, True])
def test_what_is_around_them(on_cuda, name, unknown):
    function, shapes = CASES[name]
    axes = [{0: Dim.AUTO} if size[0] in (3, 40, 50) and len(size) > 1 else None for size in shapes]
    if name == "a slice":
        axes[1] = None
    dynamic = axes if unknown else None
    check(function, *(some(*shape) for shape in shapes), dynamic=dynamic, device="cuda")


def program(rows=2048, terms=512, columns=8, dtype=torch.float32):
    inputs = [torch.empty(rows, terms, dtype=dtype), torch.empty(terms, columns, dtype=dtype)]
    return from_exported_program(export(lambda x, y: x @ y, inputs))


def test_which_have_it():
    name = "sums_ptr"
    assert name in cuda(program()) and name in cuda(program(dtype=torch.bfloat16))
    assert name in cuda(program(columns=2)) and name in cuda(program(columns=15))
    others = [
        cuda(program(), products=False),
        *(cuda(program(*each)) for each in ((2048, 512, 16), (2048, 3, 8))),
    ]
    assert not any(name in each for each in others)


def test_explain_says_so():
    said = str(tvm_scatter.explain(program(), cuda_target("sm_90")))
    assert "products: main.lv reads each row once for 8 columns" in said


@needs_nvrtc
def test_rows_are_read_in_vectors():
    assert "ld.global.nc.v4" in ptx(cuda(program()))
