"""TVM's own tuner over a model that scatters and reads: it measures ours, and tunes the rest."""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import pytest
import tvm
import tvm_ffi
from harness import device_of, relax_function
from test_flows import CHOICE, choices, functions, legalized
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from tvm_scatter import options
from tvm_scatter.ops.operators import index_put
from tvm_scatter.tvm_tuner import arguments
from tvm_scatter.tvm_tuner.as_it_is import MeasureOnce, is_scheduled, only_design, tensors_for

CPU = tvm.target.Target({"kind": "llvm", "num-cores": 2})
ROWS, COLUMNS, COUNT = 40, 16, 7


def model(x, w, i, j):
    """Rows of a product are read, and put into two places."""
    emit = relax.BlockBuilder.current().emit
    y = emit(relax.op.matmul(x, w))
    rows = emit(relax.op.take(y, i, axis=0))
    sums = emit(index_put(x, [j], rows, [0], "add"))
    return emit(index_put(emit(relax.op.nn.relu(sums)), [i], rows, [0], "update"))


def operands():
    generator = np.random.default_rng(0)
    x, w = (generator.integers(-3, 4, (n, COLUMNS)).astype("float32") for n in (ROWS, COLUMNS))
    return [x, w, generator.permutation(ROWS)[:COUNT], generator.integers(0, ROWS, COUNT)]


def expected():
    x, w, i, j = operands()
    rows, sums = (x @ w)[i], x.copy()
    np.add.at(sums, j, rows)
    sums = np.maximum(sums, 0)
    sums[i] = rows
    return sums


def scheduled(device):
    """The functions of this package, by their names."""
    made = functions(legalized(device=device))
    if device == "cuda":
        made |= functions(legalized(choices, CHOICE, device))
    return {name: function for name, function in made.items() if is_scheduled(function)}


@pytest.mark.parametrize("bounds", ["raise", "drop"])
@pytest.mark.each_device
def test_what_a_runner_can_call(bounds, device, kind):
    """It calls all but what answers by page-locked memory."""
    with options(bounds=bounds):
        made = scheduled(device)
    measured = {name.rstrip("0123456789") for name, f in made.items() if tensors_for(f)}
    left_out = {name.rstrip("0123456789") for name in made} - measured
    if device == "llvm" or bounds == "drop":
        assert not left_out
        assert any(name.startswith("scatter_add") for name in measured)
    else:
        assert "raise_if_bad_index" in left_out


def test_symbolic_sizes_are_passed_by():
    builder = relax.BlockBuilder()
    relax_function(builder, "main", model, operands(), symbolic=True)
    made = functions(relax.transform.LegalizeOps()(builder.get()))
    assert [tensors_for(each) for each in made.values() if is_scheduled(each)] == [None] * 4


def test_each_is_measured_once(quick_tuner):
    function = scheduled("llvm")["scatter_add_sequential"]
    context = ms.TuneContext(
        mod=function,
        target=CPU,
        space_generator=only_design(),
        search_strategy=MeasureOnce(),
        num_threads=1,
    ).clone()
    context.pre_tuning(8)
    (candidate,) = context.generate_measure_candidates()
    assert context.generate_measure_candidates() is None
    # TVM's cost model learns of what was measured, and its features fail for such loops.
    ms.cost_model.XGBModel().update(context, [candidate], [ms.runner.RunnerResult([1e-6], None)])


def test_arguments_are_valid_indices():
    info = [["TENSOR", "float32", [5, 3]], ["TENSOR", "int64", [7]], ["TENSOR", "uint8", [2, 3]]]
    for floats, longs, bytes_ in arguments.local_arguments(tvm.cpu(), info, 2):
        assert floats.numpy().any()
        assert longs.numpy().tolist() == [0, 1, 0, 1, 0, 1, 0]
        assert bytes_.numpy().max() == 1


def test_workers_need_not_find_this_package(monkeypatch):
    """What a runner sends to its process is the code itself."""
    monkeypatch.setattr(ms.runner.LocalRunner._cls, "_sanity_check", lambda self: None)
    sent = cloudpickle.dumps(ms.runner.LocalRunner().f_alloc_argument)
    for name in [name for name in sys.modules if name.split(".")[0] == "tvm_scatter"]:
        monkeypatch.setitem(sys.modules, name, None)
    ((indices,),) = cloudpickle.loads(sent)(tvm.cpu(), [["TENSOR", "int32", [4]]], 1)
    assert indices.numpy().tolist() == [0, 1, 2, 3]


def test_own_arguments_are_kept(monkeypatch):
    monkeypatch.setattr(ms.runner.LocalRunner._cls, "_sanity_check", lambda self: None)
    assert ms.runner.LocalRunner(f_alloc_argument=print).f_alloc_argument is print


@pytest.mark.exhaustive
def test_tuned(quick_tuner, tmp_path):
    """All functions of a model are measured in TVM's workers; its answers stay right."""
    builder = relax.BlockBuilder()
    relax_function(builder, "main", model, operands())
    with CPU:
        mod = relax.get_pipeline("zero")(builder.get())
    database = ms.relax_integration.tune_relax(
        mod,
        {},
        CPU,
        str(tmp_path),
        max_trials_global=16,
        max_trials_per_task=2,
        num_trials_per_iter=2,
        strategy="replay-trace",
    )
    tasks = ms.relax_integration.extract_tasks(mod, CPU)
    assert {"scatter_add_sequential", "check_indices", "matmul"} <= {t.task_name for t in tasks}
    measured = [record.workload.mod for record in database.get_all_tuning_records()]
    for task in tasks:
        equal = [tvm_ffi.structural_equal(each, task.dispatched[0]) for each in measured]
        assert any(equal), task.task_name
    with CPU, database:
        executable = tvm.compile(relax.transform.MetaScheduleApplyDatabase()(mod), CPU)
    on = device_of("llvm")
    machine = relax.VirtualMachine(executable, on)
    found = machine["main"](*[tvm.runtime.tensor(each, on) for each in operands()])
    np.testing.assert_array_equal(found.numpy(), expected())
