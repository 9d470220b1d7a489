"""Valid operands at the edges: nothing to address, nothing to write, and indices of 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import run, run_all
from tvm import relax

from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd

Array = np.ndarray[Any, Any]


def zeros(*shape: int) -> Array:
    return np.zeros(shape, "float32")


def rising(*shape: int) -> Array:
    return np.arange(1, 1 + np.prod(shape, dtype=int), dtype="float32").reshape(shape)


def index(*shape: int) -> Array:
    return np.zeros(shape, "int64")


def put(axes: list[int]) -> Callable[..., Any]:
    return lambda data, *rest: index_put(data, rest[:-1], rest[-1], axes)


def stock_put(data: Any, *rest: Any) -> Any:
    return relax.op.index_put(data, relax.Tuple(list(rest[:-1])), rest[-1])


def where(data: Array, axes: list[int], indices: list[Array]) -> tuple[Any, ...]:
    place: list[Any] = [slice(None)] * data.ndim
    for axis, each in zip(axes, indices, strict=True):
        place[axis] = each
    return tuple(place)


#: Puts that write nothing, each as (build, axes, operands).
EMPTY_PUTS: dict[str, tuple[Callable[..., Any], list[int], list[Array]]] = {
    "empty_extent_between": (put([0, 2]), [0, 2], [zeros(2, 0, 3), index(4), index(4), zeros(0)]),
    "empty_extent_behind": (put([0]), [0], [zeros(2, 0), index(4), zeros(1, 0)]),
    "empty_extent_before": (put([1, 2]), [1, 2], [zeros(0, 2, 3), index(4), index(1), zeros(4)]),
    "empty_index": (put([0, 1]), [0, 1], [zeros(5, 4), index(7, 0), index(0), zeros(7, 0)]),
    "empty_index_of_one": (put([0, 1]), [0, 1], [zeros(5, 4), index(7, 0), index(0), zeros(1)]),
    "empty_index_apart": (
        put([0, 2]), [0, 2], [zeros(5, 4, 3), index(7, 0), index(7, 1), zeros(4)]
    ),
    "empty_index_and_extent": (put([0]), [0], [zeros(0, 3), index(0), zeros(1)]),
    "stock": (stock_put, [0, 1], [zeros(5, 4), index(7, 0), index(0), zeros(7, 0)]),
}  # fmt: skip


@pytest.mark.each_device
def test_puts_that_write_nothing(device: str) -> None:
    """What NumPy takes."""
    for _, axes, (data, *indices, values) in EMPTY_PUTS.values():
        data[where(data, axes, indices)] = values
    calls = {name: (build, arrays) for name, (build, _, arrays) in EMPTY_PUTS.items()}
    for bounds in ("raise", "trust"):
        for name, result in run_all(calls, device, bounds=bounds).items():
            np.testing.assert_array_equal(result, EMPTY_PUTS[name][2][0], name)


@pytest.mark.parametrize("bounds", ["raise", "drop"])
def test_tuples_without_components(device: str, bounds: str) -> None:
    """Each update goes to all of the data."""
    nothing, rows = index(4, 0), rising(4, 2, 3)
    stock = lambda d, i, u: relax.op.scatter_nd(d, i, u, "update")  # noqa: E731
    add = lambda d, i, u: scatter_nd(d, i, u, "add")  # noqa: E731
    calls = {
        "add": (add, [zeros(2, 3) + 5, nothing, rows]),
        "max": (lambda d, i, u: scatter_nd(d, i, u, "max"), [zeros(2, 3), nothing, rows]),
        "one": (scatter_nd, [zeros(2, 3), index(0), rising(2, 3)]),
        "none": (scatter_nd, [rising(2, 3), index(0, 0), zeros(0, 2, 3)]),
        "single": (add, [np.array(5, "float32"), nothing, rising(4)]),
        "stock": (stock, [zeros(2, 3), index(1, 0), rising(1, 2, 3)]),
        "twice": (lambda d, i, u: add(add(d, i, u), i, u), [zeros(2, 3), nothing, rows]),
    }
    expected = {
        "add": 5 + rows.sum(0),
        "max": rows.max(0),
        "one": rising(2, 3),
        "none": rising(2, 3),
        "single": np.float32(15),
        "stock": rising(2, 3),
        "twice": 2 * rows.sum(0),
    }
    calls = {
        name: (build, list(map(np.asarray, arrays))) for name, (build, arrays) in calls.items()
    }
    for name, result in run_all(calls, device, bounds=bounds).items():
        np.testing.assert_array_equal(result, expected[name], name)


@pytest.mark.parametrize("reduction", ["add", "mean", "max", "update"])
def test_single_numbers(device: str, reduction: str) -> None:
    """One is scattered into another, once and by the same index again."""
    arrays = [np.array(value, dtype) for value, dtype in ((3, "float32"), (0, "int64"))]
    arrays.append(np.array(5, "float32"))
    once = lambda d, i, u: scatter_elements(d, i, u, 0, reduction)  # noqa: E731
    emit = lambda call: relax.BlockBuilder.current().emit(call)  # noqa: E731
    calls = {
        "once": (once, arrays),
        "twice": (lambda d, i, u: once(emit(once(d, i, u)), i, u), arrays),
    }
    found = run_all(calls, device)
    expected = {"add": (8, 13), "mean": (4, 4.5), "max": (5, 5), "update": (5, 5)}[reduction]
    assert (float(found["once"]), float(found["twice"])) == expected


def tuples(data: Any, index: Any, updates: Any) -> Any:
    return scatter_nd(data, relax.op.expand_dims(index, 1), updates)


UNSIGNED = {
    "elements": lambda d, i, u: scatter_elements(d, i, u, wrap_negative=True),
    "stock": lambda d, i, u: relax.op.scatter_elements(d, i, u, 0),
    "put": lambda d, i, u: index_put(d, [i], u),
    "twice": lambda d, i, u: tuples(tuples(d, i, u), relax.op.astype(i, "int64"), u),
}


def test_unsigned_indices_of_64_bits(device: str) -> None:
    good, bad = np.array([2, 0, 3], "uint64"), np.array([2, 2**64 - 1, 2**63], "uint64")
    for name, result in run_all(
        {name: (build, [zeros(4), good, rising(3)]) for name, build in UNSIGNED.items()},
        device,
        bounds="raise",
    ).items():
        np.testing.assert_array_equal(result, [2, 0, 1, 3], name)
    # A cast of the user's own makes what it makes of large numbers.
    calls = {
        name: (build, [zeros(4), bad, rising(3)])
        for name, build in UNSIGNED.items()
        if name != "twice"
    }
    for name, result in run_all(calls, device, bounds="drop").items():
        np.testing.assert_array_equal(result, [0, 0, 1, 0], name)


@pytest.mark.parametrize("value", [4, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 4])
def test_a_bad_unsigned_index_is_named(device: str, value: int) -> None:
    operands = [zeros(4), np.array([value], "uint64"), rising(1)]
    with pytest.raises(IndexError, match=rf"index {value} at position \(0\)"):
        run(UNSIGNED["put"], operands, device, bounds="raise")


@pytest.mark.each_device
def test_views_of_nothing(device: str) -> None:
    """TVM reads a size of zero in the shape of a reshape as the size that there was."""
    views: dict[str, tuple[Callable[..., Any], Array]] = {
        "expand_dims": (lambda x: relax.op.expand_dims(x, 0), zeros(0)),
        "squeeze": (lambda x: relax.op.squeeze(x, [0]), zeros(1, 0)),
        "broadcast_to": (lambda x: relax.op.broadcast_to(x, [3, 0]), zeros(0)),
        "permute_dims": (lambda x: relax.op.permute_dims(x, [1, 0]), zeros(1, 0)),
        "flatten": (lambda x: relax.op.flatten(x), zeros(3, 0)),
        "reshape": (lambda x: relax.op.reshape(x, [0]), zeros(0, 3)),
    }
    calls = {name: (view, [x]) for name, (view, x) in views.items()}

    def added(x: Any) -> Any:
        # The view itself is no result.
        wide = relax.BlockBuilder.current().emit(relax.op.expand_dims(x, 0))
        return relax.op.add(wide, relax.const(1, "float32"))

    calls["added"] = (added, [zeros(0)])
    shapes = {name: result.shape for name, result in run_all(calls, device).items()}
    wide, flat = (1, 0), (0,)
    assert shapes == {
        "expand_dims": wide,
        "squeeze": flat,
        "broadcast_to": (3, 0),
        "permute_dims": (0, 1),
        "flatten": flat,
        "reshape": flat,
        "added": wide,
    }


@pytest.mark.parametrize("create", [relax.op.zeros, relax.op.ones], ids=["zeros", "ones"])
@pytest.mark.each_device
def test_nothing_created(create: Callable[..., Any], device: str) -> None:
    """TVM cannot load a program whose last constant is empty."""
    assert run(lambda _: create([3, 0], "float32"), [zeros(2)], device).shape == (3, 0)
