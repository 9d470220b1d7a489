"""TVM's own scatter operators mean what their documentation says, with this package imported.

TVM's wheel holds no tests, so these are written from the documented formulas, which
:func:`by_the_formula` spells out element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from harness import device_of, run_all, target_of
from tvm import relax
from tvm.script import relax as R

import tvm_scatter  # noqa: F401

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}
Array = np.ndarray[Any, Any]
Destinations = Iterator[tuple[tuple[Any, ...], tuple[int, ...]]]


def by_the_formula(data: Array, updates: Array, where: Destinations, reduction: str) -> Array:
    """``output[to] = f(output[to], updates[at])`` for every ``to, at``."""
    output = data.copy()
    for to, at in where:
        output[to] = REDUCTIONS[reduction](output[to], updates[at])
    return output


def of_elements(indices: Array, axis: int) -> Destinations:
    """``output[i][indices[i][j]] = updates[i][j]`` for axis 1, and so on."""
    for at in np.ndindex(indices.shape):
        to = list(at)
        to[axis] = int(indices[at])
        yield tuple(to), at


def of_tuples(indices: Array, shape: tuple[int, ...]) -> Destinations:
    """``output[indices[i]] = updates[i]``, where an index is a row of the last axis."""
    for at in np.ndindex(indices.shape[:-1]):
        for rest in np.ndindex(shape[indices.shape[-1] :]):
            yield (*map(int, indices[at]), *rest), (*at, *rest)


def distinct(generator: np.random.Generator, extents: list[int], shape: tuple[int, ...]) -> Array:
    """Tuples of indices that do not repeat, along a new last axis."""
    chosen = generator.permutation(int(np.prod(extents)))[: int(np.prod(shape))]
    return np.stack(np.unravel_index(chosen, extents), axis=-1).reshape(*shape, len(extents))


def cases() -> dict[str, tuple[Any, list[Array], Array]]:
    """Expression, arguments and result of each."""
    generator = np.random.default_rng(1)

    def numbers(*shape: int) -> Array:
        return generator.integers(-4, 5, shape).astype("float32")

    found: dict[str, tuple[Any, list[Array], Array]] = {}
    for reduction in REDUCTIONS:
        for shape, axis in (((9,), 0), ((3, 5), 0), ((3, 5), 1), ((3, 5), -1), ((2, 3, 4), 1)):
            data, updates = numbers(*shape), numbers(*shape)
            drawn = generator.integers(-shape[axis], shape[axis], shape)
            indices = generator.random(shape).argsort(axis) if reduction == "update" else drawn

            def elements(d: Any, i: Any, u: Any, axis: int = axis, r: str = reduction) -> Any:
                return relax.op.scatter_elements(d, i, u, axis, r)

            found[f"elements_{reduction}_{len(shape)}_{axis % 3}_{axis < 0}"] = (
                elements,
                [data, indices, updates],
                by_the_formula(data, updates, of_elements(indices, axis), reduction),
            )
        for shape, count, depth in (((8,), (4,), 1), ((4, 5), (6,), 2), ((4, 5, 3), (2, 3), 2)):
            data, updates = numbers(*shape), numbers(*count, *shape[depth:])
            indices = distinct(generator, list(shape[:depth]), count)

            def tuples(d: Any, i: Any, u: Any, r: str = reduction) -> Any:
                return relax.op.scatter_nd(d, i, u, r)

            found[f"nd_{reduction}_{len(shape)}_{depth}"] = (
                tuples,
                [data, indices, updates],
                by_the_formula(data, updates, of_tuples(indices, shape), reduction),
            )
    for accumulate in (False, True):
        for shape in ((7,), (3, 3), (2, 3, 4)):
            data, values = numbers(*shape), numbers(5)
            where = distinct(generator, list(shape), (5,))
            if accumulate:
                where[4] = where[0]
            columns = [where[:, i].copy() for i in range(len(shape))]

            def put(d: Any, *rest: Any, a: bool = accumulate) -> Any:
                return relax.op.index_put(d, relax.Tuple(list(rest[:-1])), rest[-1], a)

            found[f"put_{accumulate}_{len(shape)}"] = (
                put,
                [data, *columns, values],
                by_the_formula(
                    data, values, of_tuples(where, shape), "add" if accumulate else "update"
                ),
            )
    return found


@pytest.mark.each_device
def test_operators(device: str) -> None:
    """Every case on the CPU, and every third on CUDA."""
    chosen = {
        name: case
        for i, (name, case) in enumerate(cases().items())
        if device == "llvm" or i % 3 == 0
    }
    calls = {name: case[:2] for name, case in chosen.items()}
    for name, result in run_all(calls, device).items():
        np.testing.assert_array_equal(result, chosen[name][2], err_msg=name)


def test_operators_of_symbolic_sizes() -> None:
    """Of tuples TVM wants to know the length, so they are not among these."""
    chosen = {name: case for name, case in cases().items() if not name.startswith("nd")}
    chosen = dict(list(chosen.items())[::4])
    calls = {name: case[:2] for name, case in chosen.items()}
    for name, result in run_all(calls, symbolic=True).items():
        np.testing.assert_array_equal(result, chosen[name][2], err_msg=name)


def test_documented_examples(device: str) -> None:
    """As TVMScript, through ``tvm.compile``."""

    @tvm.script.ir_module
    class Module:
        @R.function
        def nd(
            data: R.Tensor((8,), "int32"),
            indices: R.Tensor((4, 1), "int64"),
            updates: R.Tensor((4,), "int32"),
        ):
            return R.scatter_nd(data, indices, updates, reduction="update")

        @R.function
        def put(
            data: R.Tensor((3, 3), "float32"),
            rows: R.Tensor((2,), "int64"),
            columns: R.Tensor((2,), "int64"),
            values: R.Tensor((2,), "float32"),
        ):
            return R.index_put(data, (rows, columns), values, accumulate=True)

    on = device_of(device)
    machine = relax.VirtualMachine(tvm.compile(Module, target_of(device)), on)

    def call(name: str, *arrays: Array) -> Array:
        return machine[name](*[tvm.runtime.tensor(array, device=on) for array in arrays]).numpy()

    data = np.arange(1, 9, dtype="int32")
    indices, updates = np.array([[4], [3], [1], [7]]), np.array([9, 10, 11, 12], "int32")
    assert call("nd", data, indices, updates).tolist() == [1, 11, 3, 10, 9, 6, 7, 12]
    rows, columns = np.array([0, 2]), np.array([1, 1])
    result = call("put", np.zeros((3, 3), "float32"), rows, columns, np.array([1, 2], "float32"))
    assert result.tolist() == [[0, 1, 0], [0, 0, 0], [0, 2, 0]]
