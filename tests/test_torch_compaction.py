"""What PyTorch reads by masks, whose size only the run time knows, against PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_harness import Case, check_all  # noqa: E402

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
