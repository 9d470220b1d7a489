"""TVM's usual ways to compile a module serve modules that scatter as well."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
import tvm
import tvm_ffi
from harness import device_of, relax_function, target_of
from tvm import relax, tirx
from tvm.s_tir import meta_schedule as ms

from tvm_scatter import options
from tvm_scatter.ops import choose, index_put

ROWS, COLUMNS = 40, 4
COUNTS = (3, 5, 7)


def arguments():
    """Data, and an index and rows for each of several scatters, no two alike."""
    generator = np.random.default_rng(0)
    arrays = [generator.integers(-9, 9, (ROWS, COLUMNS)).astype("float32")]
    for count in COUNTS:
        arrays.append(generator.integers(0, ROWS, count))
        arrays.append(generator.integers(-9, 9, (count, COLUMNS)).astype("float32"))
    return arrays


def scatters(data, *operands):
    """One scatter after the other."""
    emit = relax.BlockBuilder.current().emit
    for index, updates in zip(operands[::2], operands[1::2], strict=True):
        data = emit(index_put(data, [index], updates, [0], "add"))
        data = emit(relax.op.nn.relu(data))
    return data


def expected():
    """What the scatters give."""
    data, *operands = arguments()
    for index, updates in zip(operands[::2], operands[1::2], strict=True):
        data = data.copy()
        np.add.at(data, index, updates)
        data = np.maximum(data, 0)
    return data


def module(build=scatters, arrays=None):
    """The module of one function."""
    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, arguments() if arrays is None else arrays)
    return builder.get()


def legalized(build=scatters, arrays=None, device="llvm"):
    with target_of(device):
        return relax.transform.LegalizeOps()(module(build, arrays))


def ran(executable, device, arrays=None):
    """What the compiled function returns."""
    on = device_of(device)
    arrays = arguments() if arrays is None else arrays
    machine = relax.VirtualMachine(executable, on)
    return machine["main"](*[tvm.runtime.tensor(array, on) for array in arrays]).numpy()


@pytest.mark.parametrize("bounds", ["raise", "drop"])
@pytest.mark.parametrize("flow", ["LegalizeOps", "zero"])
def test_many_scatters_after(flow, bounds, device, kind):
    """What one step of TVM leaves can be compiled by the next, though functions do the same."""
    first = relax.transform.LegalizeOps() if flow == "LegalizeOps" else relax.get_pipeline(flow)
    with options(bounds=bounds, bulk=False), target_of(device):
        executable = tvm.compile(first(module()), target_of(device))
    np.testing.assert_array_equal(ran(executable, device), expected())


def test_names_say_what_functions_do():
    functions = legalized().functions.items()
    names = {name.name_hint for name, function in functions if isinstance(function, tirx.PrimFunc)}
    for numbered in ("", "1", "2"):
        assert {f"check_indices{numbered}", f"scatter_add_sequential{numbered}"} <= names


CHOICE = [
    np.zeros((1, 6, 8), "float32"),
    np.arange(6, dtype="int32") - 1,
    np.ones((1, 3, 8), "float32"),
]


def choices(data, winners, source):
    """Two choices of rows."""
    emit = relax.BlockBuilder.current().emit
    once = emit(choose(data, winners, [source]))
    return emit(choose(once, winners, [source, source]))


def test_two_choices():
    """Two functions that choose rows are no clash either."""
    tvm.compile(legalized(choices, CHOICE, "cuda"), target_of("cuda"))


def functions(mod):
    """The functions of a module that are computed by no other."""
    return {
        name.name_hint: function
        for name, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }


@pytest.fixture
def quick_tuner(monkeypatch):
    """TVM's tuner without its tensor instructions: no scatter has them, and they load for ever."""
    name = "tvm.s_tir.tensor_intrin"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))


def designs(function, target):
    """What TVM's tuner would choose from."""
    kind = target.kind.name
    context = ms.TuneContext(
        mod=function,
        target=target,
        space_generator=ms.space_generator.PostOrderApply(None, kind, kind, kind),
        search_strategy="evolutionary",
        num_threads=1,
    )
    return context.mod, [design.mod for design in context.generate_design_space()]


@pytest.mark.parametrize("bounds", ["raise", "drop"])
def test_a_tuner_has_one_design(bounds, device, kind, quick_tuner):
    """What the strategy has chosen is what it is: no rule of TVM's tuner changes it."""
    target = target_of(device)
    if device == "llvm":
        target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    with options(bounds=bounds):
        made = functions(legalized(device=device))
    if device == "cuda":
        made |= functions(legalized(choices, CHOICE, device))
    ours = {name: each for name, each in made.items() if "tirx.is_scheduled" in each.attrs}
    assert any(name.startswith("scatter") for name in ours)
    for name, function in ours.items():
        before, found = designs(function, target)
        assert [tvm_ffi.structural_equal(each, before) for each in found] == [True], name
