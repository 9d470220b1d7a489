"""Layers of libraries, small, against PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from harness import device_of, target_of  # noqa: E402
from torch_harness import to_tvm  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402
from tvm_scatter.tuning.experiments.layer_forms import LAYERS, Draw  # noqa: E402
from tvm_scatter.tuning.experiments.layers import (  # noqa: E402
    compare,
    compiled,
    leaves,
    markdown,
)

pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = 500
#: Those of the layers that a default run tries.
FEW = ("RGCN, 4 bases", "BERT, embeddings")


def check(name: str, device: str) -> None:
    layer = LAYERS[name](Draw("cpu", SMALL))
    wanted = list(leaves(layer.function(*layer.inputs)))
    on = device_of(device)
    inputs = [to_tvm(each).copyto(on) for each in layer.inputs]
    for unknown in [False, True] if layer.unknown else [False]:
        call = compiled(layer, target_of(device), on, unknown)
        compare([each.copyto(device_of("llvm")) for each in leaves(call(*inputs))], wanted)


@pytest.mark.parametrize("name", FEW)
def test_a_few_layers(name: str, device: str) -> None:
    check(name, device)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, device: str) -> None:
    check(name, device)


def test_what_differs_is_said() -> None:
    with pytest.raises(ScatterError, match=r"layers: a result is off by 0\.5"):
        compare(torch.tensor([1.5, 2.0]), [torch.tensor([1.0, 2.0])])


def test_the_table() -> None:
    rows = [
        {"layer": "one", "known": 10.0, "unknown": 20.0, "torch": 80.0, "torch.compile": 40.0},
        {"layer": "other", "known": 40.0, "torch": 80.0, "torch.compile": 40.0},
        {"layer": "last", "known fails": "Error", "torch": 1.0},
    ]
    text = markdown({"machine": {"device": "a GPU"}, "rows": rows})
    assert "| one | 10.0 | 20.0 | 80.0 | 40.0 | 4.00 | 2.00 |" in text
    assert "| last | - | - | 1.0 | - | - | - |" in text
    assert "Sizes known: 2.00x of `torch.compile` in 2 layers." in text
    assert "Sizes unknown: 2.00x of `torch.compile` in 1 layers." in text
