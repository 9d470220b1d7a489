"""Programs that compute the same again and again give what PyTorch gives."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from harness import target_of  # noqa: E402
from repeated_programs import Program, inputs  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

#: The first of them is tried by default.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 200))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.on_cpu
def test_repeated_programs(device, seed, tally):
    model, tensors = Program(seed), inputs(seed)
    module = from_exported_program(export(model, tensors))
    with torch.no_grad():
        wanted = tree_leaves(model(*tensors))
    results = run(compile_for(module, device), tensors, device)
    for at, (found, right) in enumerate(zip(results, wanted, strict=True)):
        assert_same(found, right, f"result {at}")
    notes = tvm_scatter.explain(module, target_of(device)).notes
    tally(
        "values of repeated programs that are shared",
        sum(n.switch == "share_values" for n in notes),
    )
