"""Tensors that do not begin where one is allocated: views into others, or what a caller passes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from harness import ProblemRunner, assert_same, at_its_address, compile_all, device_of
from random_problems import draw_operands
from tally import Tally
from tvm import relax

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize


def _problem(extent: int, width: int, count: int, **fields: Any) -> ScatterProblem:
    return ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(extent),),
        slice=SymbolicSize(width),
        count=SymbolicSize(count),
        **{"data_dtype": "float32", "index_dtype": "int32", "reduction": "add", **fields},
    )


PROBLEMS = {
    "rows_add": _problem(40, 16, 200),
    "rows_update": _problem(40, 64, 30, reduction="update", deterministic=True),
    "rows_mean": _problem(40, 16, 200, reduction="mean"),
    "rows_half": _problem(40, 32, 200, data_dtype="float16"),
    "long_rows": _problem(5, 1024, 7, reduction="update", deterministic=True),
    "rows_unique": _problem(300, 16, 200, unique=True),
    "rows_in_place": _problem(40, 16, 200, in_place=True),
    "single_add": _problem(300, 1, 2000),
    "single_int8": _problem(300, 1, 2000, data_dtype="int8", index_dtype="int64"),
    "single_update": _problem(300, 1, 2000, reduction="update", deterministic=True),
    "large_copy": _problem(3000, 32, 2),
}


@pytest.mark.parametrize(
    "step", [5, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
@pytest.mark.turns(2)
def test_tensors_aligned_to_their_elements_only(
    device: str, implementation: str, step: int, tally: Tally
) -> None:
    """Every fifth problem, in turns that the implementations take; or all of them."""
    strategy = strategy_for(device)
    assert strategy is not None
    runner = ProblemRunner(device)
    chosen = strategy.implementations[implementation]
    turn = list(strategy.implementations).index(implementation)
    names: list[str] = []
    for number, (name, problem) in enumerate(PROBLEMS.items()):
        if (number + turn) % step:
            continue
        if strategy.refusal(chosen, problem, runner.target) is None:
            runner.add(name, problem, implementation)
            names.append(name)
    for name in names:
        problem = PROBLEMS[name]
        data, indices, updates = draw_operands(problem, seed=3)
        expected = scatter_reference(problem, data, indices, updates)
        for shift in ((1, 1, 1), (2, 0, 0), (0, 0, 1), (0, 1, 0)):
            result = runner.run(name, data, indices, updates, problem.in_place, shift)
            assert_same(result, expected, f"{name}, shifted by {shift}")
    tally("problems with unaligned tensors", len(names))


@pytest.mark.each_device
def test_a_byte_offset_is_refused(device: str) -> None:
    """TVM's entry says so; a tensor without one, at an address of its own, is fine."""
    arrays = np.zeros((10, 4), "float32"), np.array([1, 2, 2]), np.ones((3, 4), "float32")

    def add(data: Any, index: Any, updates: Any) -> Any:
        return index_put(data, [index], updates, reduction="add")

    run = compile_all({"main": (add, arrays)}, device)["main"]
    whole = tvm.runtime.tensor(np.zeros(41, "float32"), device=device_of(device))
    data, index, updates = (tvm.runtime.tensor(each, device=device_of(device)) for each in arrays)
    with pytest.raises(ValueError, match=r"(?s)byte_offset on argument #0.*expected 0"):
        run(whole._create_view((10, 4), "float32", 4), index, updates)
    assert run(data, index, updates).numpy()[:, 0].tolist() == [0, 1, 2, *[0] * 7]


def _product(x: Any, weight: Any) -> Any:
    return relax.op.nn.relu(_emit(relax.op.matmul(x, weight)))


def _by_itself(x: Any) -> Any:
    return relax.op.matmul(x, _emit(relax.op.permute_dims(x, (0, 2, 1))))


def _emit(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def _whole(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)


ROWS = 40
#: Functions that TVM schedules. Of sums of integers every order has the same result.
OPERATORS = {
    "product": (_product, [_whole(ROWS, 36), _whole(36, 64)]),
    "halves": (_product, [_whole(ROWS, 32, dtype="float16"), _whole(32, 64, dtype="float16")]),
    "one_row": (relax.op.matmul, [_whole(1, 64), _whole(64, 128)]),
    "batches": (_by_itself, [_whole(ROWS, 2, 68)]),
    "rows": (lambda x: relax.op.sum(x, axis=[1]), [_whole(ROWS, 512)]),
    "images": (
        lambda x, weight: relax.op.nn.conv2d(x, weight, padding=1),
        [_whole(2, 3, 8, 8), _whole(4, 3, 3, 3)],
    ),
}


def _at(array: np.ndarray[Any, Any], elements: int, on: Any) -> Any:
    """The array on a device, so many elements behind where a tensor is allocated."""
    others = np.zeros(elements, array.dtype)
    whole = tvm.runtime.tensor(np.concatenate([others, array.ravel()]), on)
    return at_its_address(whole._create_view(array.shape, str(array.dtype), others.nbytes))


@pytest.mark.parametrize("symbolic", [False, (ROWS,)], ids=["known", "unknown"])
def test_inputs_of_other_operators_lie_anywhere(symbolic: Any) -> None:
    """Schedules for a CPU read vectors of them."""
    on = device_of("llvm")
    machine = compile_all(OPERATORS, "llvm", symbolic, schedule=True)
    for name, (_, arrays) in OPERATORS.items():
        expected = machine[name](*(_at(each, 0, on) for each in arrays)).numpy()
        found = machine[name](*(_at(each, 1, on) for each in arrays)).numpy()
        np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("symbolic", [False, (ROWS,)], ids=["known", "unknown"])
@pytest.mark.turns(2)
def test_kernels_say_where_inputs_must_begin(symbolic: Any, on_cuda: str) -> None:
    """TVM's kernels of small products read vectors; a GPU aborts one that begins between them."""
    on = device_of(on_cuda)
    machine = compile_all(OPERATORS, on_cuda, symbolic)
    refused = set()
    for name, (_, arrays) in OPERATORS.items():
        expected = machine[name](*(_at(each, 0, on) for each in arrays)).numpy()
        for elements in (1, 16):
            try:
                found = machine[name](*(_at(each, elements, on) for each in arrays)).numpy()
            except ValueError as error:
                assert re.search(
                    r"\w: argument \d must begin at a multiple of \d+ bytes", str(error)
                )
                assert elements == 1
                refused.add(name)
            else:
                np.testing.assert_array_equal(found, expected, err_msg=name)
    assert "halves" in refused and not {"product", "rows", "batches"} & refused
