"""Lists of the true positions of a mask, whose size only the run time knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import compile_all, orders, run_all, run_compiled
from tvm import relax

from tvm_scatter import ScatterError
from tvm_scatter.ops.compaction import true_positions
from tvm_scatter.selection import backend

Array = np.ndarray[Any, Any]


def mask_of(*entries: int) -> Array:
    return np.array(entries, "bool")


def test_true_positions(device: str) -> None:
    masks = {
        "some": mask_of(0, 1, 1, 0, 1),
        "none": mask_of(0, 0, 0),
        "all": mask_of(1, 1),
        "one": mask_of(1),
        "not_one": mask_of(0),
        "square": np.array([[0, 1], [1, 0]], "bool"),
        "scalar": np.array(True),
        "empty": np.zeros(0, "bool"),
        "no_rows": np.zeros((0, 3), "bool"),
    }
    found = run_all({name: (true_positions, [mask]) for name, mask in masks.items()}, device)
    for name, mask in masks.items():
        assert found[name].dtype == "int64"
        np.testing.assert_array_equal(found[name], np.flatnonzero(mask), name)


#: Around the entries of a thread, of a tile on a GPU, and of a task on a CPU.
SIZES = (15, 16, 17, 4095, 4096, 4097, 3 * 4096 + 5, 16384, 16385, 70000)


@pytest.mark.turns(4)
@pytest.mark.parametrize("density", [0.0, 0.02, 0.5, 1.0])
def test_positions_in_masks_of_many_tiles(device: str, density: float) -> None:
    random = np.random.default_rng(1)
    masks = {f"of_{size}": random.random(size) < density for size in SIZES}
    calls = {name: (true_positions, [mask]) for name, mask in masks.items()}
    machine = compile_all(calls, device, symbolic=True)
    for _ in orders(device):
        found = run_compiled(machine, calls, device)
        for name, mask in masks.items():
            np.testing.assert_array_equal(found[name], np.flatnonzero(mask), name)


def tensors_of(*dtypes: str) -> dict[str, Array]:
    """Tensors of all ranks, some empty, whose elements are often zero."""
    random = np.random.default_rng(3)
    shapes = [(), (0,), (1,), (7,), (2, 0), (3, 4), (1, 2, 1), (2, 2, 0, 3), (2, 1, 3, 2, 2)]
    return {
        f"{dtype}_{number}": (random.integers(-1, 2, shape) * (random.random(shape) > 0.3)).astype(
            dtype
        )
        for dtype in dtypes
        for number, shape in enumerate(shapes)
    }


def test_nonzero_of_tvm(device: str) -> None:
    tensors = tensors_of("float32", "int8", "bool")
    calls = {name: (relax.op.nonzero, [tensor]) for name, tensor in tensors.items()}
    for name, found in run_all(calls, device).items():
        expected = np.stack(np.atleast_1d(tensors[name]).nonzero())
        np.testing.assert_array_equal(found, expected, name)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_is_not_zero(device: str, dtype: str) -> None:
    smallest = np.finfo(dtype).smallest_subnormal
    values = np.array([0, -0.0, np.nan, smallest, -smallest, np.inf, 1], dtype)
    found = run_all({"main": (relax.op.nonzero, [values])}, device)["main"]
    np.testing.assert_array_equal(found, [[2, 3, 4, 5, 6]])


def test_other_targets_ask_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_BACKENDS", {})
    mask = np.array([[0, 1, 1], [1, 0, 0]], "bool")
    found = run_all({"flat": (true_positions, [mask]), "rows": (relax.op.nonzero, [mask])})
    np.testing.assert_array_equal(found["flat"], [1, 2, 3])
    np.testing.assert_array_equal(found["rows"], np.nonzero(mask))


def test_other_types_are_no_masks() -> None:
    numbers = relax.Var("numbers", relax.TensorType([3], "int64"))
    with pytest.raises(ScatterError, match="true_positions: mask of type int64 must be of type b"):
        true_positions(numbers)


def test_masks_that_are_known(device: str) -> None:
    masks = {"some": mask_of(0, 1, 1), "none": mask_of(0, 0), "two_axes": np.eye(3, dtype="bool")}
    calls: dict[str, Any] = {}
    for name, mask in masks.items():
        calls[name] = (lambda _, mask=mask: relax.op.nonzero(relax.const(mask)), [mask])
    found = run_all(calls, device)
    for name, mask in masks.items():
        np.testing.assert_array_equal(found[name], np.stack(mask.nonzero()), name)
