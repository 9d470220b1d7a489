"""Numbers that must obey a rule: the error tells each as it is, up to both ends of int64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops import expectations
from tvm_scatter.ops.expectations import expect_numbers

LEAST, MOST = -(2**63), 2**63 - 1
#: For each function its rule and limit, numbers of which the last one breaks it, and what is said.
RULES: dict[str, tuple[str, int, list[list[int]], str]] = {
    "ascending": (
        expectations.ASCENDING,
        0,
        [[3, MOST, 0], [LEAST, MOST, MOST - 1], [0, 0, -1], [0, 0, LEAST], [5, 6, 1]],
        "not be less than the one before it",
    ),
    "at_most": (
        expectations.AT_MOST,
        5,
        [[5, 0, 6], [LEAST, 5, MOST], [5, 5, MOST - 5]],
        "be at most 5",
    ),
    "equal": (expectations.EQUAL, 0, [[0, 0, MOST], [0, 0, LEAST], [0, 0, 1]], "be 0"),
    "equal_to_more": (
        expectations.EQUAL,
        5,
        [[5, 5, LEAST], [5, 5, 0], [5, 5, 4], [5, 5, 6], [5, 5, MOST]],
        "be 5",
    ),
    "not_negative": (
        expectations.NOT_NEGATIVE,
        0,
        [[0, MOST, -1], [1, 0, LEAST]],
        "not be negative",
    ),
    "not_zero": (expectations.NOT_ZERO, 0, [[MOST, LEAST, 0]], "not be 0"),
}


def checks() -> tvm.IRModule:
    """A function for each rule, which returns its numbers if they obey it."""
    builder = relax.BlockBuilder()
    for name, (rule, limit, _, _) in RULES.items():
        given = relax.Var("given", relax.TensorType([3], "int64"))
        with builder.function(name, [given]):
            with builder.dataflow():
                checked = expect_numbers(
                    given, given, rule, limit=limit, what="a number", operator="op"
                )
                output = builder.emit_output(checked)
            builder.emit_func_output(output)
    return builder.get()


def test_errors_tell_the_number(device: str) -> None:
    with tvm_scatter.options(bounds="raise"):
        executable = tvm.compile(checks(), target_of(device))
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)

    def checked(name: str, numbers: list[int]) -> Any:
        return machine[name](tvm.runtime.tensor(np.array(numbers, "int64"), on)).numpy().tolist()

    for name, (_, _, wrong, rule) in RULES.items():
        for numbers in wrong:
            said = f"op: a number is {numbers[-1]} at position (2); it must {rule}."
            with pytest.raises(ValueError, match=re.escape(said)):
                checked(name, numbers)
            good = [numbers[1]] * 3
            assert checked(name, good) == good
