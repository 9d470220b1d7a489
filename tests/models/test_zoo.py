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
from .zoo import Entry, entries

#: What is tried by default: a model of each file that takes a second or a few.
SAMPLE = (
    "GCNConv on any graph",
    "Llama, a step with a static cache",
    "Masked autoencoder: patches kept and restored",
    "Training step of maxima of segments",
    "Counts of pairs of words",
    "box_area",
)

pytestmark = pytest.mark.filterwarnings("ignore")


@cache
def models() -> dict[str, Entry]:
    """All models. The libraries that they come from take seconds to load."""
    return {entry.name: entry for entry in entries()}


@cache
def prepared(name: str) -> Prepared:
    """A model, imported once for all devices."""
    return prepare(models()[name])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The sample, and the others where a run asks for what is exhaustive."""
    if metafunc.function is not test_agrees_with_pytorch:
        return
    sampled = "not exhaustive" in metafunc.config.getoption("markexpr")
    others = [] if sampled else [name for name in models() if name not in SAMPLE]
    marked = [pytest.param(name, marks=pytest.mark.exhaustive) for name in others]
    metafunc.parametrize("name", [*SAMPLE, *marked])


@pytest.mark.parametrize("where", ["llvm", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_agrees_with_pytorch(name, where):
    difference = prepared(name).difference(target_of(where), device_of(where))
    assert difference <= models()[name].tolerance


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
