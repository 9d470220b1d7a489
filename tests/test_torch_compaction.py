"""What PyTorch reads by masks, whose size only the run time knows, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import Case, assert_same, check, check_all, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

CUBE = torch.arange(60.0).reshape(3, 4, 5)
ROWS = torch.tensor([True, False, True, True])
TABLE = torch.tensor([[1, 0, 2], [0, 0, -3]])

CASES: list[Case] = [
    ("nonzero", torch.nonzero, (TABLE,)),
    ("nonzero of a mask", torch.nonzero, (ROWS,)),
    ("nonzero of floats", torch.nonzero, (torch.tensor([0.0, -0.0, float("nan"), 1e-40, 2]),)),
    ("nonzero of a number", torch.nonzero, (torch.tensor(3),)),
    ("nonzero of zero", torch.nonzero, (torch.tensor(0.0),)),
    ("nonzero of nothing", torch.nonzero, (torch.zeros(0, 2),)),
    ("no true entry", lambda m: torch.nonzero(m), (ROWS & ~ROWS,)),
    ("coordinates", lambda x: torch.stack(torch.nonzero(x, as_tuple=True)), (TABLE,)),
    ("where", lambda x: torch.stack(torch.where(x > 0)), (CUBE - 30,)),
    ("argwhere", torch.argwhere, (TABLE,)),
    ("masked_select", torch.masked_select, (CUBE, CUBE > 20)),
    ("masked_select, broadcast", torch.masked_select, (CUBE[0], ROWS[:, None])),
    ("masked_select, data broadcast", torch.masked_select, (CUBE[0, 0, :4], CUBE[:, :, 0] > 5)),
    ("masked_select of a number", torch.masked_select, (torch.tensor(2.0), ROWS)),
    ("rows", lambda x, m: x[m], (CUBE[0], ROWS)),
    ("columns", lambda x, m: x[:, m], (CUBE, ROWS)),
    ("last axis", lambda x, m: x[..., m], (CUBE.transpose(1, 2).contiguous(), ROWS)),
    ("two axes", lambda x, m: x[m], (CUBE, CUBE[:, :, 0] > 12)),
    ("last two axes", lambda x, m: x[:, m], (CUBE, CUBE[0] % 3 == 0)),
    ("all axes", lambda x, m: x[m], (CUBE, CUBE % 7 == 0)),
    ("beside an integer", lambda x, m: x[:, m, 2], (CUBE, ROWS)),
    ("beside an index of one", lambda x, m, i: x[i, m], (CUBE, ROWS, torch.tensor([2]))),
    ("used twice", lambda x, m: x[m] * 2 + x[m].flip(0), (CUBE[0], ROWS)),
    ("in two tensors", lambda x, y, m: x[m] + y[m], (CUBE[0], CUBE[1], ROWS)),
    ("none of the rows", lambda x, m: x[m], (CUBE[0], ROWS & ~ROWS)),
]  # fmt: skip


def test_cases(device: str) -> None:
    check_all(CASES, device=device)


def of_one_length(x: Any, y: Any, m: Any, k: Any) -> Any:
    x, y = x[m], y[k]
    torch._check(x.shape[0] == y.shape[0])
    return x * y


def of_a_known_length(x: Any, m: Any) -> Any:
    x = x[m]
    torch._check(x.shape[0] == 3)
    return x + torch.arange(15.0).reshape(3, 5)


def one_longer(x: Any, y: Any, m: Any, k: Any) -> Any:
    x, y = x[m], y[k]
    torch._check(y.shape[0] == x.shape[0] + 1)
    return torch.cat([x, x.new_zeros(1, 5)]) + y


def with_loops(edges: Any, nodes: Any) -> Any:
    edges = edges[:, edges[0] != edges[1]]
    return torch.cat([edges, torch.arange(4).repeat(2, 1)], 1)[nodes]


#: The sizes of masks, used in further sizes.
SIZES: list[Case] = [
    ("of one length", of_one_length, (CUBE[0], CUBE[1], ROWS, ROWS.flip(0))),
    ("of a known length", of_a_known_length, (CUBE[0], ROWS)),
    ("one longer", one_longer, (CUBE[0], CUBE[1], ROWS, ROWS | ~ROWS)),
    ("concatenated", lambda x, m, k: torch.cat([x[m], x, x[k]]), (CUBE[0], ROWS, ~ROWS)),
    ("loops", with_loops, (torch.tensor([[0, 1, 2, 2], [0, 3, 2, 1]]), torch.tensor([1, 0]))),
    ("zeros", lambda x, m: torch.zeros(x[m].shape[0] + 2), (CUBE[0], ROWS)),
    ("ones", lambda m: m.nonzero().new_ones(m.nonzero().shape[0], 2), (ROWS,)),
    ("arange", lambda x, m: torch.arange(x[m].shape[0]) * 2, (CUBE[0], ROWS)),
    ("one axis", lambda x, m: x[m].reshape(-1), (CUBE[0], ROWS)),
    ("product", lambda x, m: x[m] @ x.T, (CUBE[0], ROWS)),
    ("added", lambda x, m, i, v: x.index_add(0, i[m], v[m]),
     (CUBE[0], ROWS, torch.tensor([3, 0, 3, 1]), CUBE[2])),
    ("mask of a selection", lambda x, m: x[m][x[m][:, 0] > 5], (CUBE[0], ROWS)),
    ("gather by nonzero", lambda x, m: x[m.nonzero().squeeze(1)], (CUBE[0], ROWS)),
    ("nonzero, transposed", lambda x: x.nonzero().t().contiguous(), (TABLE,)),
    ("nonzero, unbound", lambda x: x[x.nonzero()[:, 0], x.nonzero()[:, 1]], (TABLE,)),
]  # fmt: skip


def test_sizes(device: str) -> None:
    check_all(SIZES, device=device)


def test_asserted_sizes_are_checked(device: str) -> None:
    inputs = [CUBE[0], CUBE[1], ROWS, ROWS.flip(0)]
    machine = compile_for(from_exported_program(export(of_one_length, inputs)), device)
    with pytest.raises(Exception, match=r"match_cast|expected to match"):
        run(machine, [*inputs[:3], ~ROWS], device)


def test_masks_of_a_dynamic_length(device: str) -> None:
    rows = torch.export.Dim("rows", max=1000)
    program = export(
        lambda x, m: torch.cat([x[m], x]), [CUBE[0], ROWS], dynamic=({0: rows}, {0: rows})
    )
    machine = compile_for(from_exported_program(program), device)
    for x, mask in (
        (CUBE[0], ROWS),
        (CUBE[0], ROWS & ~ROWS),
        (CUBE[0][:1], ROWS[:1]),
        (CUBE[0][:0], ROWS[:0]),
        (torch.randn(300, 5), torch.rand(300) > 0.5),
    ):
        (found,) = run(machine, [x, mask], device)
        assert_same(found, torch.cat([x[mask], x]))


@pytest.mark.on_cpu
def test_a_graph_without_its_own_loops(device: str) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    edges = torch.tensor([[0, 1, 2, 2, 3], [0, 3, 2, 1, 3]])
    check(nn.GCNConv(5, 2), CUBE[0], edges, device=device)


def test_a_scatter_by_a_mask_copies_nothing() -> None:
    def moved(x: Any, m: Any) -> Any:
        y, rows = x + 1, m.nonzero().squeeze(1)
        y[rows] = x[rows]
        return y.index_add(0, rows, x[m])

    imported = from_exported_program(export(moved, [torch.randn(400, 4), torch.rand(400) > 0.5]))
    plan = str(tvm_scatter.explain(imported, "llvm"))
    assert (plan.count("in_place=True"), plan.count("in_place=False")) == (2, 0)
