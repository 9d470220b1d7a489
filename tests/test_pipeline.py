"""One pipeline: TVM's own and the passes of this package, each with a switch."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from cuda_cases import cuda_target
from harness import relax_function
from tvm import relax
from tvm.relax import pipeline as tvm_pipelines
from tvm.s_tir import meta_schedule as ms

import tvm_scatter
from tvm_scatter import ScatterError, options
from tvm_scatter.ops.operators import index_put, scatter_elements
from tvm_scatter.options import Options
from tvm_scatter.passes import PASSES, passes

SWITCHES = [switch for switch, _ in PASSES]
TARGETS = {"llvm": tvm.target.Target("llvm"), "cuda": cuda_target("sm_90")}


def module():
    """A broadcast index, and writes one after another: something for every pass."""

    def build(data, index, updates):
        emit = relax.BlockBuilder.current().emit
        wide = emit(relax.op.broadcast_to(emit(relax.op.expand_dims(index, 1)), (3, 4)))
        data = emit(scatter_elements(data, wide, updates, 0, "add"))
        for at in range(3):
            row = relax.const(np.array([at]), "int64")
            value = emit(relax.op.strided_slice(updates, [0], [at], [at + 1]))
            data = emit(index_put(data, [row], value, [0], "update"))
        return data

    builder = relax.BlockBuilder()
    arrays = [np.zeros((9, 4), "float32"), np.zeros(3, "int64"), np.zeros((3, 4), "float32")]
    relax_function(builder, "main", build, arrays)
    return builder.get()


def stock(target):
    """TVM's own pipeline, whatever is installed."""
    tvm_scatter.uninstall()
    try:
        if "gpu" in target.keys:
            return tvm_pipelines.get_default_pipeline(target)
        return tvm_pipelines.get_pipeline("default")
    finally:
        tvm_scatter.install()


def all_off():
    return {**dict.fromkeys(SWITCHES, False), "cuda_graph": False, "schedule": False}


@pytest.mark.parametrize("kind", TARGETS)
def test_all_off_is_plain_tvm(kind):
    target = TARGETS[kind]
    with target:
        expected = stock(target)(module())
        actual = tvm_scatter.pipeline(target, **all_off())(module())
        usual = tvm_scatter.pipeline(target)(module())
    tvm.ir.assert_structural_equal(actual, expected)
    assert not tvm_ffi.structural_equal(usual, expected)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("switch", SWITCHES)
def test_each_pass_has_its_switch(kind, switch):
    usual, without = passes(Options(**{switch: True})), passes(Options(**{switch: False}))
    # Without the first, which brings scatters into one form, no other runs.
    assert len(without) == (0 if switch == "enabled" else len(usual) - 1)
    with TARGETS[kind], options(**{switch: False}):
        by_option = tvm_scatter.pipeline(TARGETS[kind])(module())
    by_switch = tvm_scatter.pipeline(TARGETS[kind], **{switch: False})(module())
    tvm.ir.assert_structural_equal(by_switch, by_option)


@pytest.mark.parametrize("kind", TARGETS)
def test_plain_compile_runs_the_same_pipeline(kind):
    target = TARGETS[kind]
    name = "default"
    with target:
        if kind == "cuda":
            plain = relax.get_default_pipeline(target)(module())
        else:
            plain = relax.get_pipeline(name)(module())
    same = tvm_scatter.pipeline(target, schedule=False)(module())
    tvm.ir.assert_structural_equal(plain, same)


def names(mod):
    """What the functions of a legalized module are called."""
    return sorted(name.name_hint for name in mod.functions)


def tuned(trials, target, folder):
    return relax.get_pipeline(
        "static_shape_tuning", total_trials=trials, target=target, work_dir=str(folder)
    )


@pytest.mark.parametrize("kind", TARGETS)
def test_the_tuning_pipeline_runs_the_passes(kind, tmp_path):
    """As TVM's own does that it begins with, and whether or not a target is in force."""
    target = TARGETS[kind]
    with target:
        zero = relax.get_pipeline("zero")(module())
    # Without trials it only looks for records: there are none.
    ms.database.JSONDatabase(work_dir=str(tmp_path))
    assert names(tuned(0, target, tmp_path)(module())) == names(zero)
    direct = tvm_pipelines.static_shape_tuning_pipeline(0, target, str(tmp_path))
    assert names(direct(module())) == names(zero)
    with options(**all_off()):
        assert names(tuned(0, target, tmp_path)(module())) != names(zero)


@pytest.mark.parametrize("kind", TARGETS)
def test_pipelines_of_parts_run_the_passes(kind):
    """As TVM's tuner puts them together in its own compiler."""
    target = TARGETS[kind]
    made = [
        *tvm_pipelines.library_dispatch_passes(target),
        *tvm_pipelines.legalize_passes(target),
    ]
    with target:
        together = tvm.transform.Sequential(made)(module())
        zero = relax.get_pipeline("zero")(module())
    assert names(together) == names(zero)


def test_switches_end_with_the_pipeline():
    tvm_scatter.pipeline(TARGETS["llvm"], bulk=False)(module())
    assert tvm_scatter.current_options() == Options()


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"bulking": True}, "unknown option 'bulking'"),
        ({"bulk": 1}, "bulk=1"),
        ({"cuda_graph": "yes"}, "cuda_graph='yes'"),
        ({"donate": "cache"}, "donate='cache' must be a list"),
        ({"donate": [3]}, r"donate=\[3\] must be a list"),
    ],
)
def test_wrong_switches_are_refused(switches, message):
    with pytest.raises(ScatterError, match=message):
        tvm_scatter.pipeline("llvm", **switches)


def test_the_context_in_force_stays_in_force():
    seen = []

    @tvm.transform.module_pass(opt_level=0)
    def look(mod, context):
        seen.append(dict(context.config))
        return mod

    setting = {"tirx.disable_vectorize": True}
    target = TARGETS["cuda"]
    with tvm.transform.PassContext(opt_level=3, config=setting):
        with tvm_scatter.pipelines._capturing(True):
            look(module())
        tvm_scatter.pipeline(target, cuda_graph=True)(module())
        look(module())
    assert seen[0] == {**setting, "relax.backend.use_cuda_graph": True}
    assert seen[1] == setting


def test_explain_says_what_passes_did():
    assert "fold_broadcast_index: main." in str(tvm_scatter.explain(module(), "llvm"))
    with options(fold_broadcast_index=False):
        assert "fold_broadcast_index" not in str(tvm_scatter.explain(module(), "llvm"))


def product():
    """A product beside a scatter."""
    builder = relax.BlockBuilder()
    arrays = [np.zeros((64, 64), "float32"), np.zeros(64, "int64")]

    def build(x, index):
        emit = relax.BlockBuilder.current().emit
        return index_put(x, [index], emit(relax.op.matmul(x, x)), [0], "add")

    relax_function(builder, "main", build, arrays)
    return builder.get()


def product_of(mod):
    """The product's text; whether it is scheduled shows there."""
    return next(f.script() for name, f in mod.functions.items() if "matmul" in name.name_hint)


def test_products_are_scheduled_where_that_is_asked_for():
    with TARGETS["llvm"] as target:
        assert "T.vectorized" in product_of(tvm_scatter.pipeline(target)(product()))
        assert "T.vectorized" not in product_of(
            tvm_scatter.pipeline(target, schedule=False)(product())
        )
        assert "T.vectorized" not in product_of(relax.get_pipeline("default")(product()))
        with options(schedule=True):
            assert "T.vectorized" in product_of(relax.get_pipeline("default")(product()))
