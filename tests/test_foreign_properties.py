"""Passes leave alone what else may see a tensor, for random programs that share memory."""

from __future__ import annotations

import itertools

import foreign_programs
import numpy as np
import pytest
import tvm
from foreign_programs import KEPT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_pass_properties import fusing_pipeline
from tvm import relax

import tvm_scatter

_LLVM = tvm.target.Target("llvm")
_SWITCHES = ("fold_broadcast_index", "bulk", "in_place", "batch")
_OFF = dict.fromkeys(_SWITCHES, False)
_PROGRAMS = st.lists(foreign_programs.programs(), min_size=1, max_size=2)
_DONATED = st.sampled_from([(), ("x",), ("x", "y")])
_SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def machine(programs, fusing, **options):
    builder = foreign_programs.Builder()
    for at, program in enumerate(programs):
        builder.add(f"program{at}", program)
    make = fusing_pipeline if fusing else lambda **more: tvm_scatter.pipeline(_LLVM, **more)
    pipeline = make(bounds="drop", **options)
    return relax.VirtualMachine(
        tvm.compile(builder.module(), _LLVM, relax_pipeline=pipeline), tvm.cpu()
    )


def run(on, name, seed, kept_arguments):
    """All that can be seen of a call: results, arguments, and what packed functions keep."""
    KEPT.tensors = []
    arguments = {
        each: tvm.runtime.tensor(array) for each, array in foreign_programs.inputs(seed).items()
    }
    results = [result.numpy() for result in on[name](*arguments.values())]
    kept = sorted(tensor.numpy().tobytes() for tensor in KEPT.tensors)
    return results, [arguments[each].numpy() for each in kept_arguments], kept


def check(programs, switches, fusing, donate):
    changed = machine(programs, fusing, donate=donate, **switches)
    plain = machine(programs, fusing, **_OFF)
    kept_arguments = [each for each in foreign_programs.inputs(0) if each not in donate]
    # The same branch twice, as a constant that is overwritten is seen by the next call only.
    for at, seed in itertools.product(range(len(programs)), (0, 1, 3)):
        seen, right = (run(on, f"program{at}", seed, kept_arguments) for on in (changed, plain))
        what = f"{programs[at]} {switches} fusing={fusing} {donate} {seed}"
        for part in (0, 1):
            for one, other in zip(seen[part], right[part], strict=True):
                np.testing.assert_array_equal(one, other, err_msg=what)
        assert seen[2] == right[2], what


@settings(max_examples=3, derandomize=True, **_SETTINGS)
@given(_PROGRAMS, st.booleans(), _DONATED)
def test_random_programs_that_share_memory(programs, fusing, donate) -> None:
    check(programs, dict.fromkeys(_SWITCHES, True), fusing, donate)


@pytest.mark.exhaustive
@settings(max_examples=200, **_SETTINGS)
@given(
    _PROGRAMS,
    st.fixed_dictionaries({switch: st.booleans() for switch in _SWITCHES}),
    st.booleans(),
    _DONATED,
)
def test_random_programs_that_share_memory_under_any_switches(
    programs, switches, fusing, donate
) -> None:
    check(programs, switches, fusing, donate)
