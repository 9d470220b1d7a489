"""The table of literal cases, crossed with device, implementation, data type and index type.

A module holds many cases, because compiling is what takes the time. Every case runs with float32
(or the first type it has), by every twelfth implementation of a device, and by the default one
of one device; the other types take turns. With ``-m exhaustive``, every
implementation runs every case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from cases import CASES, Case
from harness import (
    Build,
    applicable,
    assert_same,
    compile_all,
    orders,
    problems,
    relax_function,
    run_all,
    run_compiled,
    takes,
    target_of,
)
from tally import Tally
from tvm import relax

import tvm_scatter
from tvm_scatter import strategy_for
from tvm_scatter.problem.reductions import DATA_DTYPES
from tvm_scatter.problem.scatter_problem import ScatterProblem

SIGNED_INDEX = ("int64", "int32", "int8", "int16")
ANY_INDEX = (*SIGNED_INDEX, "uint8", "uint16", "uint32")
#: Of the common data type, every so-many-th case runs, another one with each implementation.
COMMON = 12
#: The same of the other types.
EVERY = {"llvm": 48, "cuda": 96}
#: The same where it may take long.
MANY = 4
LONG = {"llvm": MANY, "cuda": 24}
GROUPS = {
    "float32": ("float32",),
    "others": tuple(dtype for dtype in DATA_DTYPES if dtype != "float32"),
}
Calls = dict[str, tuple[Build, Sequence[Any]]]


def chosen(dtype: str, common: int, every: int, turn: int) -> dict[str, Case]:
    """The cases that run with a data type: of the common one each ``common``-th."""
    other_turn = turn * len(DATA_DTYPES) + DATA_DTYPES.index(dtype)
    return {
        name: case
        for i, (name, case) in enumerate(CASES.items())
        if dtype in case.dtypes
        and (
            (i + turn) % common == 0
            if dtype == ("float32" if "float32" in case.dtypes else case.dtypes[0])
            else (i + other_turn) % every == 0
        )
    }


def index_dtype(name: str, case: Case, dtype: str) -> str:
    """The index types take turns; float32 has the common one."""
    if dtype == "float32":
        return "int64"
    kinds = SIGNED_INDEX if case.has_negative_index else ANY_INDEX
    return kinds[(list(CASES).index(name) + DATA_DTYPES.index(dtype)) % len(kinds)]


def wanted(case: Case, device: str, deterministic: bool) -> bool:
    """Which of several updates wins is only defined on a GPU where the order is asked for."""
    if deterministic:
        return case.ordered or case.reduction in ("add", "mean")
    return device == "llvm" or not case.ordered


def check(
    device: str,
    implementation: str,
    dtypes: tuple[str, ...],
    common: int,
    every: int,
    **options: object,
) -> int:
    """Run all cases that apply in one module; how many there were."""
    strategy = strategy_for(device)
    assert strategy is not None
    turn = list(strategy.implementations).index(implementation)
    names = {
        f"{name}_{dtype}": (case, dtype, index_dtype(name, case, dtype))
        for dtype in dtypes
        for name, case in chosen(dtype, common, every, turn).items()
        if wanted(case, device, bool(options.get("deterministic")))
    }
    calls = {
        name: (case.build, case.arrays(dtype, index_dtype))
        for name, (case, dtype, index_dtype) in names.items()
    }
    calls = taken(calls, implementation, device, bool(options.get("deterministic")))
    if not calls:
        return 0
    machine = compile_all(calls, device, implementation=implementation, bounds="drop", **options)
    # The order of threads matters to an algorithm, not to its data types: one of them is enough.
    for order in orders(device) if "float32" in dtypes else ("forward",):
        for name, result in run_compiled(machine, calls, device).items():
            case, dtype, _ = names[name]
            assert_same(result, case.result(dtype), f"{name}, {order}")
    return len(calls)


#: The problems of each case by device, name, and whether the result is deterministic.
_problems: dict[tuple[str, str, bool], list[ScatterProblem]] = {}


def taken(calls: Calls, implementation: str, device: str, deterministic: bool) -> Calls:
    """The calls that an implementation takes; each is explained once for all implementations."""
    keys = {name: (device, name, deterministic) for name in calls}
    new = {name: calls[name] for name, key in keys.items() if key not in _problems}
    if new:
        found = problems(new, device, bounds="drop", deterministic=deterministic)
        _problems.update({keys[name]: each for name, each in found.items()})
    return {
        name: call
        for name, call in calls.items()
        if takes(implementation, _problems[keys[name]], device)
    }


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=pytest.mark.optimised if group == "float32" else ())
        for group in GROUPS
    ],
)
def test_cases(device: str, implementation: str, group: str, tally: Tally) -> None:
    count = check(device, implementation, GROUPS[group], COMMON, EVERY[device])
    if not count:
        pytest.skip("the implementation takes none of these types")
    tally("literal cases", count)


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_more_cases(device: str, implementation: str, group: str, tally: Tally) -> None:
    count = check(device, implementation, GROUPS[group], 1, LONG[device])
    if not count:
        pytest.skip("the implementation takes none of these types")
    tally("literal cases", count)


@pytest.mark.turns(2)
def test_cases_deterministic(device: str, implementation: str, tally: Tally) -> None:
    """On a CPU, the code is the same that :func:`test_cases` runs."""
    if device == "llvm":
        assert legalized(implementation, deterministic=True) == legalized(implementation)
        return
    count = check(device, implementation, ("float32",), COMMON, MANY, deterministic=True)
    if not count:
        pytest.skip("not a deterministic implementation")
    tally("literal cases", count)


@pytest.mark.exhaustive
def test_more_cases_deterministic(device: str, implementation: str, tally: Tally) -> None:
    if device == "llvm":
        pytest.skip("the code is the same")
    count = check(device, implementation, ("float32",), 1, MANY, deterministic=True)
    if not count:
        pytest.skip("not a deterministic implementation")
    tally("literal cases", count)


def legalized(implementation: str, **options: object) -> str:
    """The code for a CPU of some cases."""
    calls = {
        name: (case.build, case.arrays(case.dtypes[0], "int64"))
        for name, case in list(CASES.items())[::MANY]
    }
    builder = relax.BlockBuilder()
    for name in applicable(calls, implementation, "llvm", bounds="drop"):
        relax_function(builder, name, *calls[name])
    chosen = tvm_scatter.options(implementation=implementation, bounds="drop", **options)
    with chosen, target_of("llvm"):
        return str(relax.transform.LegalizeOps()(builder.get()).script())


@pytest.mark.optimised
@pytest.mark.each_device
@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
def test_default_choice(device: str, every: bool) -> None:
    """Without forcing, under the default bounds policy where no index is out of range.

    One device has every other case, the other one the rest.
    """
    on_gpu = device != "llvm"
    calls = {
        name: (case.build, case.arrays("float32", "int64"))
        for i, (name, case) in enumerate(CASES.items())
        if "float32" in case.dtypes
        and "dropped" not in name
        and name != "no_wrap"
        and not (on_gpu and case.ordered)
        and (every or case.ordered or i % 2 == on_gpu)
    }
    for name, result in run_all(calls, device).items():
        assert_same(result, CASES[name].result("float32"), name)
