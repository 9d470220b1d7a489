"""Every combination of passes computes what NumPy computes, for random programs.

The module runs on the CPU, through TVM's pipeline for it or through those passes of TVM's pipeline
for GPUs that move and evaluate code: constant folding and fusion.
"""

from __future__ import annotations

import itertools

import numpy as np
import programs
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import transform

import tvm_scatter

_LLVM = tvm.target.Target("llvm")
_SWITCHES = ("fold_broadcast_index", "bulk", "in_place", "batch")


def fusing_pipeline(**switches):
    """This package's passes, then those of TVM's GPU pipeline that need no GPU."""

    def run(mod, _context):
        with tvm_scatter.options(**switches), _LLVM:
            mod = tvm.transform.Sequential(
                [
                    *tvm_scatter.passes.passes(tvm_scatter.current_options()),
                    tvm_scatter.passes.BranchFunctions(),
                    transform.LegalizeOps(),
                    transform.AnnotateTIROpPattern(),
                    transform.FoldConstant(),
                    transform.FuseOps(),
                    transform.FuseTIR(),
                    transform.RewriteDataflowReshape(),
                    transform.ToNonDataflow(),
                    transform.RemovePurityChecking(),
                    transform.CallTIRRewrite(),
                    transform.StaticPlanBlockMemory(),
                    transform.LowerAllocTensor(),
                    transform.KillAfterLastUse(),
                    transform.LowerRuntimeBuiltin(),
                    transform.ComputePrimValue(),
                    transform.VMShapeLower(),
                    transform.AttachGlobalSymbol(),
                ]
            )(mod)
        return mod

    return tvm.transform.module_pass(run, opt_level=0)


def check(program, switches, fusing, dataflow, donate):
    builder = relax.BlockBuilder()
    programs.build(program, builder, dataflow)
    make = fusing_pipeline if fusing else lambda **options: tvm_scatter.pipeline(_LLVM, **options)
    pipeline = make(bounds="drop", donate=donate, **switches)
    machine = relax.VirtualMachine(
        tvm.compile(builder.get(), _LLVM, relax_pipeline=pipeline), tvm.cpu()
    )
    # Twice: what a run overwrites by mistake may be seen only by the next.
    for seed in range(2):
        arrays = programs.inputs(seed)
        arguments = {name: tvm.runtime.tensor(array) for name, array in arrays.items()}
        results = machine["main"](*arguments.values())
        for result, expected in zip(results, programs.evaluate(program, arrays), strict=True):
            np.testing.assert_array_equal(
                result.numpy(), expected, err_msg=str((program, switches))
            )
        for name, argument in arguments.items():
            if name not in donate:
                np.testing.assert_array_equal(argument.numpy(), arrays[name], err_msg=name)


def _combinations():
    return [
        dict(zip(_SWITCHES, on, strict=True))
        for on in itertools.product((False, True), repeat=len(_SWITCHES))
    ]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    programs.programs(),
    st.sampled_from(_combinations()),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(), ("x",), ("x", "y")]),
)
def test_random_programs(program, switches, fusing, dataflow, donate) -> None:
    check(program, switches, fusing, dataflow, donate)


@pytest.mark.exhaustive
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs.programs(), st.sampled_from([(), ("x",), ("x", "y")]))
def test_random_programs_under_every_combination(program, donate) -> None:
    for switches, fusing in itertools.product(_combinations(), (False, True)):
        check(program, switches, fusing, True, donate)
