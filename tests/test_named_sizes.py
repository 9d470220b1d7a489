"""Tensors whose size is a sum, such as two tokens in front of a sequence of any length."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from harness import device_of, target_of  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

#: Two sizes that vary, none alike.
_LENGTHS = [(1, 5), (4, 2), (7, 9)]


def joined(x: Any, y: Any) -> Any:
    return torch.cat([x, y[:, :2]], 1)


def attended(x: Any, y: Any) -> Any:
    keys = joined(x, y)
    return torch.softmax(y[:, :2] @ keys.transpose(1, 2), -1) @ keys


def heads(x: Any, y: Any) -> Any:
    keys = joined(x, y)
    return keys.view(2, -1, 2, 2).transpose(1, 2).contiguous(), keys.permute(2, 1, 0).contiguous()


def multiples(x: Any, y: Any) -> Any:
    """``2 n + 4`` is a multiple of ``n + 2``: a reshape stays a view."""
    keys = joined(x, y)
    wide = keys.reshape(2, -1, 2)
    return wide.transpose(1, 2).contiguous(), wide + 1, keys.reshape(-1, 4).T.contiguous()


def several(x: Any, y: Any) -> Any:
    both = torch.cat([x, x, y, y[:, :1]], 1)
    odd = torch.cat([x, x, y[:, :1]], 1)
    return both.transpose(1, 2).contiguous(), odd.transpose(0, 1) * 2, odd[:, 1:].flip(1).mT + 0


def scattered(x: Any, y: Any) -> Any:
    keys = joined(x, y)
    rows = torch.zeros(2, x.shape[1] + 3, 4)
    place = (torch.arange(keys.shape[1]) * 3) % rows.shape[1]
    return rows.index_add(1, place, keys).transpose(1, 2).contiguous()


PROGRAMS = (attended, heads, multiples, several, scattered)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_results(program: Any, device: str, caplog: pytest.LogCaptureFixture) -> None:
    given = [torch.randn(2, 4, 4), torch.randn(2, 6, 4)]
    exported = export(program, given, ({1: Dim.AUTO}, {1: Dim.AUTO}))
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        built = compile_for(from_exported_program(exported), device)
    given_up = [each.getMessage() for each in caplog.records if each.name == "tvm_scatter"]
    assert not given_up
    for lengths in _LENGTHS:
        inputs = [torch.randn(2, length, 4) for length in lengths]
        expected = program(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for result, right in zip(run(built, inputs, device), expected, strict=True):
            assert_same(result, right.contiguous(), f"{lengths}")


def unshuffled(x: Any) -> Any:
    return torch.nn.functional.pixel_unshuffle(x, 2)


def patches(x: Any) -> Any:
    """Attention over the patches of an image and a token in front of them."""
    rows = x.reshape(x.shape[0], 2, x.shape[2] // 2, 2, x.shape[3] // 2, 2)
    rows = rows.permute(0, 2, 4, 1, 3, 5).reshape(x.shape[0], -1, 8)
    rows = torch.cat([rows[:, :1] * 2, rows], 1)
    return (rows @ rows.transpose(1, 2)).softmax(-1)[:, 1:] @ rows


def halves(x: Any) -> Any:
    """A transpose between reshapes to sizes that are quotients."""
    rows = x.reshape(x.shape[0], 2, x.shape[2] // 2, 2, x.shape[3] // 2, 2)
    return rows.permute(0, 3, 5, 1, 2, 4).reshape(-1, x.shape[2] // 2, x.shape[3] // 2)


# LLVM did not end before quotients had names, and unproved reshapes were views.
@pytest.mark.timeout(200)
@pytest.mark.turns(3)
@pytest.mark.parametrize("program", [unshuffled, halves, patches], ids=lambda each: each.__name__)
def test_quotients(program: Any, device: str) -> None:
    exported = export(
        program, [torch.randn(3, 2, 8, 12)], ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
    )
    module = from_exported_program(exported)
    pipeline = tvm_scatter.pipeline(target_of(device))
    executable = tvm.compile(module, target_of(device), relax_pipeline=pipeline)
    built = relax.VirtualMachine(executable, device_of(device))
    for shape in ((1, 2, 4, 8), (5, 2, 6, 4), (2, 2, 10, 14)):
        x = torch.randn(shape)
        assert_same(*run(built, [x], device), program(x).contiguous(), str(shape))
    with pytest.raises(ValueError, match="the model was exported for sizes with"):
        run(built, [torch.randn(2, 2, 5, 4)], device)
