"""The models of the zoo compute what PyTorch does."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import tvm
from harness import device_of, target_of
from tvm import relax

from .preparing import prepare
from .trial import Prepared, load
from .zoo import entries

ENTRIES = {entry.name: entry for entry in entries()}
#: Every so many models are tried by default.
STEP = 24
SAMPLE = {name for i, name in enumerate(ENTRIES) if i % STEP == 0}

pytestmark = pytest.mark.filterwarnings("ignore")


@cache
def prepared(name: str) -> Prepared:
    """A model, imported once for all devices."""
    return prepare(ENTRIES[name])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SAMPLE else pytest.mark.exhaustive)
        for name in ENTRIES
    ],
)
@pytest.mark.parametrize("where", ["llvm", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_agrees_with_pytorch(name, where):
    difference = prepared(name).difference(target_of(where), device_of(where))
    assert difference <= ENTRIES[name].tolerance


@pytest.mark.parametrize(
    "name", ["FiLMConv", pytest.param("GPSConv", marks=pytest.mark.exhaustive)]
)
def test_sizes_of_masks_are_known_on_a_gpu(name):
    target = tvm.target.Target("nvidia/nvidia-h100")
    with target:
        relax.get_default_pipeline(target)(prepared(name).module)


def test_a_saved_model_is_the_same(tmp_path):
    name = "Histogram by scatter_add"
    prepared(name).save(tmp_path)
    assert load(tmp_path).difference(target_of("llvm"), device_of("llvm")) == 0
