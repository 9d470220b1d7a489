"""TVM's usual ways to compile a module serve modules that scatter as well."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest
import tvm
import tvm_ffi
from harness import device_of, relax_function, target_of
from tvm import relax, tirx
from tvm.relax.dpl import is_op, wildcard
from tvm.s_tir import meta_schedule as ms

from tvm_scatter import ScatterError, options
from tvm_scatter.ops.operators import index_put, select_rows

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


@pytest.mark.turns(2)
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
    once = emit(select_rows(data, winners, [source]))
    return emit(select_rows(once, winners, [source, source]))


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
@pytest.mark.each_device
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


def net(data, index, updates, weights):
    """A scatter between other operators."""
    emit = relax.BlockBuilder.current().emit
    positive = emit(relax.op.nn.relu(data))
    sums = emit(index_put(positive, [index], updates, [0], "add"))
    return relax.op.matmul(sums, weights)


def net_arguments():
    generator = np.random.default_rng(0)
    shapes = {"data": (ROWS, COLUMNS), "updates": (5, COLUMNS), "weights": (COLUMNS, COLUMNS)}
    data, updates, weights = (
        generator.integers(-9, 9, shape).astype("float32") for shape in shapes.values()
    )
    return [data, generator.permutation(ROWS)[:5], updates, weights]


def net_expected():
    data, index, updates, weights = net_arguments()
    data = np.maximum(data, 0)
    np.add.at(data, index, updates)
    return data @ weights


def partitioned(pattern):
    """What a pattern takes, in functions of their own."""
    return relax.transform.FuseOpsByPattern([("nobody.pattern", pattern)], annotate_codegen=False)


def legalized_first(step):
    return tvm.transform.Sequential([relax.transform.LegalizeOps(), step])


def through_json(mod, _context=None):
    return tvm.ir.load_json(tvm.ir.save_json(mod))


JSON = tvm.transform.module_pass(through_json, opt_level=0)
PASSES = {
    "partitioned beside": partitioned(is_op("relax.nn.relu")(wildcard())),
    "partitioned": partitioned(is_op("relax.tvm_scatter.index_put")(*[wildcard()] * 3)),
    "RunCodegen": relax.transform.RunCodegen(),
    "ConvertToDataflow": tvm.transform.Sequential(
        [relax.transform.ToNonDataflow(), relax.transform.ConvertToDataflow(1)]
    ),
    "ConvertLayout": relax.transform.ConvertLayout({}),
    "ToMixedPrecision": relax.transform.ToMixedPrecision(),
    "SplitLayoutRewritePreproc": legalized_first(relax.transform.SplitLayoutRewritePreproc()),
    "JSON": JSON,
    "JSON, legalized": legalized_first(JSON),
} | {
    name: getattr(relax.transform, name)()
    for name in (
        "AllocateWorkspace",
        "CanonicalizeBindings",
        "DeadCodeElimination",
        "DecomposeOpsForInference",
        "EliminateCommonSubexpr",
        "LambdaLift",
        "Normalize",
        "RealizeVDevice",
    )
}


def compiled_after(step, device="llvm"):
    """The net, changed by a step and compiled."""
    with target_of(device):
        mod = step(module(net, net_arguments()))
    return tvm.compile(mod, target_of(device))


@pytest.mark.parametrize("name", PASSES)
def test_steps_of_tvm(name):
    found = ran(compiled_after(PASSES[name]), "llvm", net_arguments())
    # Products of numbers that mixed precision rounds.
    tolerance = 0.01 if name == "ToMixedPrecision" else 0
    np.testing.assert_allclose(found, net_expected(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lifted", [False, True])
def test_parameters_of_a_model(lifted):
    """They are taken as one tuple, after what is computed of them alone."""
    mod = module(net, net_arguments())
    mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("num_input", 3))
    step = relax.transform.LiftTransformParams if lifted else relax.transform.BundleModelParams
    machine = relax.VirtualMachine(tvm.compile(step()(mod), target_of("llvm")), tvm.cpu())
    *inputs, weights = map(tvm.runtime.tensor, net_arguments())
    parameters = machine["main_transform_params"]([weights]) if lifted else [weights]
    found = machine["main"](*inputs, *(parameters if lifted else [parameters]))
    np.testing.assert_array_equal(found.numpy(), net_expected())


@pytest.mark.each_device
def test_the_default_pipeline_by_hand(device):
    """The pipeline of ``relax.backend``, under whose names TVM's own is found as well."""
    target = target_of(device)
    kind = "cpu_generic" if device == "llvm" else "cuda"
    backend = importlib.import_module(f"tvm.relax.backend.{kind}")
    with target:
        mod = backend.get_default_pipeline(target)(module(net, net_arguments()))
    executable = relax.build(mod, target, relax_pipeline=None)
    np.testing.assert_array_equal(ran(executable, device, net_arguments()), net_expected())


LOADED = """
import sys
import numpy, tvm
from tvm import relax
machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
arrays = numpy.load(sys.argv[2])
found = machine["main"](*[tvm.runtime.tensor(arrays[name]) for name in arrays.files]).numpy()
assert "tvm_scatter" not in sys.modules
numpy.save(sys.argv[3], found)
"""


@pytest.mark.usefixtures("quick_processes")
def test_a_library_needs_tvm_only(tmp_path):
    """What is exported runs where this package is not imported."""
    library, arrays, found = (str(tmp_path / name) for name in ("a.so", "b.npz", "c.npy"))
    compiled_after(relax.transform.Normalize()).export_library(library)
    np.savez(arrays, *net_arguments())
    subprocess.run([sys.executable, "-c", LOADED, library, arrays, found], check=True, timeout=300)
    np.testing.assert_array_equal(np.load(found), net_expected())


def test_data_without_a_type():
    """What no block builder has seen has none yet."""
    variables = [
        relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
        for name, array in zip("xiu", net_arguments(), strict=False)
    ]
    data, index, updates = variables
    with pytest.raises(ScatterError, match=r"R\.add.*BlockBuilder\.emit"):
        index_put(relax.op.add(data, data), [index], updates, [0])
