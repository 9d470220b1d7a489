"""Lists carry what is the same for all elements of a row: where it begins, and its weight."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tvm
from column_parts import columns_in_parts
from harness import at_its_address, called, compiled_with, device_of
from machine_code import cuda
from test_fuse_producers import weighted_sum
from tvm import relax, tirx

from tvm_scatter import strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.strategies.cuda import bucketed, segmented
from tvm_scatter.strategies.cuda.ordering import forms_from
from tvm_scatter.strategies.cuda.steps import bucket_sizes, segments
from tvm_scatter.strategies.llvm.steps import loops

NODES, EDGES = 11, 60
#: One node's edges are summed in chunks from so many on, and a bucket of nodes is cut into units.
CHUNKED, IN_UNITS = 400, 6000
IMPLEMENTATIONS = ["bucketed", "segmented", "grouped"]


def weighted(
    width: int, dtype: str = "float32", edges: Any = EDGES, weights: int = 1, mask: bool = False
) -> tvm.IRModule:
    """The sum of x[src], and of y[src] where a mask says so, times weights, over edges to dst."""
    builder = relax.BlockBuilder()

    def named(name: str, shape: list[Any], kind: str) -> relax.Var:
        return relax.Var(name, relax.TensorType(shape, kind))

    x, y = (named(name, [NODES, width], dtype) for name in "xy")
    src, dst = (named(name, [edges], "int64") for name in ("src", "dst"))
    known = named("mask", [edges], "bool")
    factors = [named(f"w{at}", [edges, 1], dtype) for at in range(weights)]
    emit = builder.emit
    with builder.function("main", [x, y, src, dst, known, *factors]):
        with builder.dataflow():
            message = emit(relax.op.take(x, src, axis=0))
            if mask:
                other = emit(relax.op.take(y, src, axis=0))
                zero = relax.const(0, dtype)
                column = emit(relax.op.expand_dims(known, [1]))
                message = emit(relax.op.add(message, emit(relax.op.where(column, other, zero))))
            for factor in factors:
                message = emit(relax.op.multiply(message, factor))
            zeros = emit(relax.op.zeros([NODES, width], dtype))
            output = builder.emit_output(index_put(zeros, [dst], message, [0], "add"))
        builder.emit_func_output(output)
    return builder.get()


def operands(width: int, dtype: str, edges: int, weights: int) -> list[np.ndarray]:
    """Small whole numbers, so that sums are exact. Some sources count from the end or are bad."""
    random = np.random.default_rng(width + edges)
    x, y = (random.integers(-3, 4, [NODES, width]).astype(dtype) for _ in range(2))
    src = random.integers(-NODES - 2, NODES + 2, edges)
    places = np.minimum(random.geometric(0.4, edges) - 1, NODES - 2)
    mask = random.random(edges) < 0.5
    factors = [random.integers(1, 3, [edges, 1]).astype(dtype) for _ in range(weights)]
    return [x, y, src, random.permuted(places), mask, *factors]


def expected(mask: bool, *arrays: np.ndarray) -> np.ndarray:
    x, y, src, dst, known, *factors = arrays
    good = (src >= -NODES) & (src < NODES)
    rows = np.where(good[:, None], x[np.where(good, src, 0)], 0).astype("float64")
    if mask:
        rows += np.where((good & known)[:, None], y[np.where(good, src, 0)], 0)
    for factor in factors:
        rows *= factor
    result = np.zeros(x.shape)
    np.add.at(result, dst, rows)
    return result


@pytest.mark.turns(8)
@pytest.mark.parametrize(
    "counts",
    [(0, CHUNKED), pytest.param((1, EDGES), marks=pytest.mark.exhaustive)],
    ids=["none and many", "one and some"],
)
@pytest.mark.parametrize("chosen", IMPLEMENTATIONS)
@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize(
    ("width", "dtype", "weights", "mask"),
    [
        (8, "float32", 0, False),
        (8, "float32", 1, False),
        (7, "float32", 1, False),
        (24, "float16", 1, True),
        pytest.param(140, "float32", 0, True, marks=pytest.mark.exhaustive),
        (4, "float64", 2, False),
    ],
)
def test_sums(
    device: str,
    chosen: str,
    parts: bool,
    width: int,
    dtype: str,
    weights: int,
    mask: bool,
    counts: tuple[int, int],
) -> None:
    if device == "llvm" and chosen != "segmented":
        pytest.skip("CPUs have one such implementation")
    chosen = "sort_based" if device == "llvm" else chosen
    for edges in counts:
        module = weighted(width, dtype, edges, weights, mask)
        arrays = operands(width, dtype, edges, weights)
        options = {"implementation": chosen, "fuse": True, "bounds": "drop"}
        options["share_order"] = False
        with columns_in_parts() if parts else nullcontext():
            machine = compiled_with(module, device, **options)
        np.testing.assert_array_equal(called(machine, device, arrays), expected(mask, *arrays))


@pytest.mark.parametrize("chosen", ["bucketed", "segmented"])
@pytest.mark.each_device
def test_buckets_that_are_cut(device: str, chosen: str) -> None:
    if device == "llvm":
        pytest.skip("CPUs have neither implementation")
    module, arrays = weighted(8, edges=IN_UNITS), operands(8, "float32", IN_UNITS, 1)
    options = {"implementation": chosen, "fuse": True, "bounds": "drop"}
    with columns_in_parts():
        machine = compiled_with(module, device, **options)
    np.testing.assert_array_equal(called(machine, device, arrays), expected(False, *arrays))


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("per_thread", [1, 2])
@pytest.mark.turns(2)
def test_tiles(device: str, per_thread: int, ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lists carry is read with the indices, or once a tile is ordered."""
    if device == "llvm":
        pytest.skip("CPUs have no tiles")
    if not ahead:
        monkeypatch.setattr(bucketed, "_AHEAD_BYTES", 0)
    edges = 4 * 512 + 77
    module, arrays = weighted(12, edges=edges), operands(12, "float32", edges, 1)
    arrays[3][::5] = NODES
    knobs = {"per_thread": per_thread, "bucket_bits": 2}
    options = {"implementation": "bucketed", "knobs": knobs, "fuse": True}
    with columns_in_parts():
        machine = compiled_with(module, device, bounds="drop", **options)
    x, y, src, dst, mask, weight = arrays
    kept = dst < NODES
    wanted = expected(False, x, y, src[kept], dst[kept], mask, weight[kept])
    np.testing.assert_array_equal(called(machine, device, arrays), wanted)


@pytest.mark.parametrize(("weights", "held"), [(0, "true"), (1, "false")])
@pytest.mark.turns(2)
def test_large_rooms(device: str, weights: int, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of about 5 000 edges, which a block with more threads lists.

    A multiprocessor has room for two of them that hold 4 bytes of each edge, not for 8.
    """
    if device == "llvm":
        pytest.skip("CPUs have no buckets")
    monkeypatch.setattr(bucket_sizes, "_WORTH_LISTING", 0)
    edges = 14_000
    module = weighted(8, edges=edges, weights=weights)
    arrays = operands(8, "float32", edges, weights)
    knobs = {"bucket_bits": 2}
    options = {"implementation": "bucketed", "knobs": knobs, "fuse": True, "bounds": "drop"}
    with columns_in_parts():
        assert f"list_bucket<P, 2, 512, 8192, {held}>" in cuda(module, **options)
        machine = compiled_with(module, device, **options)
    np.testing.assert_array_equal(called(machine, device, arrays), expected(False, *arrays))


@pytest.mark.parametrize("weights", [0, 1])
@pytest.mark.parametrize(("edges", "hot"), [(2, False), (700, False), (3000, False), (9000, True)])
@pytest.mark.turns(2)
def test_orders_move_what_is_carried(
    device: str, edges: int, hot: bool, weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To where a bucket of edges is ordered, or units of one that is cut."""
    if device == "llvm":
        pytest.skip("CPUs have one form of an order")
    module = weighted(12, edges=edges, weights=weights)
    arrays = operands(12, "float32", edges, weights)
    x, y, src, dst, mask, *weight = arrays
    dst[dst == 3] = NODES
    if hot:
        dst[100:] = 5
    monkeypatch.setattr(segmented, "_MANY_TO_MOVE", 0)
    with columns_in_parts(), forms_from("buckets"):
        options = {"implementation": "segmented", "fuse": True, "bounds": "drop"}
        source = cuda(module, **options)
        assert "MovesCarried<P::Updates>" in source and "carry_updates<P>(" not in source
        machine = compiled_with(module, device, **options)
    kept = dst < NODES
    wanted = expected(False, x, y, src[kept], dst[kept], mask, *(each[kept] for each in weight))
    np.testing.assert_array_equal(called(machine, device, arrays), wanted)


@pytest.mark.parametrize("chosen", ["bucketed", "segmented"])
def test_parts_are_whole_lines(chosen: str) -> None:
    """Rows of 100 floats would be asked for in more lines: 1.17 to 1.33 of the time."""

    def threads_of_a_part(width: int) -> int:
        module = weighted_sum(nodes=280_000, edges=2_800_000, width=width)
        source = cuda(module, implementation=chosen, fuse=True)
        name = r"write_rows<P, " if chosen == "bucketed" else r"sum_updates<P, Key, "
        return int(re.findall(name + r"(\d+), 4, 1", source)[0])

    assert threads_of_a_part(128) == 8
    assert threads_of_a_part(100) >= 25


@pytest.mark.each_device
def test_the_run_decides_whether_lists_carry(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the number of edges is not known before, there is code for few and for many."""
    monkeypatch.setattr(segments, "_MANY_TO_CARRY", EDGES)
    module = weighted(8, edges=tirx.Var("edges", "int64"))
    options = {"fuse": True, "bounds": "drop", "deterministic": True}
    if device == "cuda":
        source = cuda(module, implementation="segmented", **options)
        assert "carry_updates<P>" in source and "ends, items, sizes" in source
    machine = compiled_with(module, device, **options)
    for edges in (0, 1, EDGES - 1, EDGES, CHUNKED):
        arrays = operands(8, "float32", edges, 1)
        np.testing.assert_array_equal(called(machine, device, arrays), expected(False, *arrays))


def carried_by(module: tvm.IRModule, chosen: str = "bucketed") -> list[str]:
    """The types of the fields of a list's entry; none if it only says which update it is."""
    with columns_in_parts():
        source = cuda(module, implementation=chosen, fuse=True)
    if "Buckets<P::Updates::Carried," not in source and "carry_updates<P>" not in source:
        return []
    [fields] = set(re.findall(r"struct alignas\(\d\) Carried {(.*?)}", source, re.DOTALL))
    return re.findall(r"(\w[\w ]*\w) part\d", fields)


@pytest.mark.parametrize("chosen", ["bucketed", "segmented"])
def test_what_is_carried(chosen: str) -> None:
    # Where the row begins; that a source is bad is said by a number that is none.
    assert carried_by(weighted(8, weights=0), chosen) == ["unsigned int"]
    assert carried_by(weighted(8), chosen) == ["unsigned int", "float"]
    # Entries of 16 bytes would take longer than they save.
    assert carried_by(weighted(8, "float64"), chosen) == []


def test_a_row_that_is_read_under_two_conditions_is_marked_by_neither(device: str) -> None:
    """Of two tensors the rows of the same numbers begin at the same places, but one has fewer."""
    if device == "llvm":
        pytest.skip("CPUs have neither implementation")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([NODES, 8], "float32"))
    y = relax.Var("y", relax.TensorType([NODES - 5, 8], "float32"))
    src = relax.Var("src", relax.TensorType([EDGES], "uint8"))
    dst = relax.Var("dst", relax.TensorType([EDGES], "int64"))
    with builder.function("main", [x, y, src, dst]):
        with builder.dataflow():
            rows = [builder.emit(relax.op.take(each, src, axis=0)) for each in (x, y)]
            message = builder.emit(relax.op.add(*rows))
            zeros = builder.emit(relax.op.zeros([NODES, 8], "float32"))
            output = builder.emit_output(index_put(zeros, [dst], message, [0], "add"))
        builder.emit_func_output(output)
    module = builder.get()
    random = np.random.default_rng(0)
    data = [random.integers(-3, 4, [rows, 8]).astype("float32") for rows in (NODES, NODES - 5)]
    numbers = random.integers(0, NODES + 2, EDGES).astype("uint8")
    places = random.integers(0, NODES, EDGES)
    read = [np.vstack([each, np.zeros([20, 8], "float32")])[numbers] for each in data]
    wanted = np.zeros([NODES, 8])
    np.add.at(wanted, places, sum(read))
    with columns_in_parts():
        machine = compiled_with(module, device, implementation="bucketed", fuse=True, bounds="drop")
    found = called(machine, device, [*data, numbers, places])
    np.testing.assert_array_equal(found, wanted)
    assert carried_by(module) == ["unsigned int", "bool", "bool"]


@pytest.mark.parametrize("chosen", IMPLEMENTATIONS)
@pytest.mark.parametrize("before", [0, 4], ids=["aligned", "unaligned"])
@pytest.mark.turns(2)
def test_no_part_is_added_twice(device: str, chosen: str, before: int) -> None:
    """In place, where threads that are left over would add to what has its sum already."""
    if device == "llvm":
        pytest.skip("CPUs have neither implementation")
    builder, width = relax.BlockBuilder(), 64
    x, data = (relax.Var(name, relax.TensorType([NODES, width], "float32")) for name in "xd")
    src, dst = (relax.Var(name, relax.TensorType([EDGES], "int64")) for name in ("src", "dst"))
    with builder.function("main", [x, data, src, dst]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, src, axis=0))
            message = builder.emit(relax.op.add(rows, relax.const(1, "float32")))
            own = builder.emit(relax.op.add(data, relax.const(0, "float32")))
            call = index_put(own, [dst], message, [0], "add", in_place=True)
            output = builder.emit_output(call)
        builder.emit_func_output(output)
    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, [NODES, width]).astype("float32") for _ in range(2)]
    numbers = [random.integers(0, NODES, EDGES) for _ in range(2)]
    wanted = arrays[1].copy()
    np.add.at(wanted, numbers[1], arrays[0][numbers[0]] + 1)
    with columns_in_parts():
        machine = compiled_with(
            builder.get(), device, implementation=chosen, fuse=True, bounds="drop"
        )
    views = []
    for each in arrays:
        room = np.concatenate([np.zeros(before // 4, "float32"), each.reshape(-1)])
        whole = tvm.runtime.tensor(room, device_of(device))
        views.append(at_its_address(whole._create_view(each.shape, "float32", before)))
    indices = [tvm.runtime.tensor(each, device_of(device)) for each in numbers]
    np.testing.assert_array_equal(machine["main"](*views, *indices).numpy(), wanted)


def test_a_cpu_carries_within_its_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes as there is room for, of a number of items that nothing divides."""
    ends, edges = [], 61

    def view(operands: Any, offset: Any, size: Any, dtype: str) -> Any:
        ends.append(int(offset) + int(size) * np.dtype(dtype).itemsize)
        return real(operands, offset, size, dtype)

    def room(*given: Any) -> Any:
        rooms.append(reserved(*given))
        return rooms[-1]

    real, rooms = loops.workspace_view, []
    implementation = strategy_for("llvm").implementations["sort_based"]
    reserved = implementation.workspace
    monkeypatch.setattr(loops, "workspace_view", view)
    monkeypatch.setattr(implementation, "workspace", room)
    module, arrays = weighted(4, "float64", edges), operands(4, "float64", edges, 1)
    options = {"implementation": "sort_based", "fuse": True, "bounds": "drop", "share_order": False}
    with columns_in_parts():
        machine = compiled_with(module, "llvm", **options)
    assert ends and max(ends) <= min(rooms)
    np.testing.assert_array_equal(called(machine, "llvm", arrays), expected(False, *arrays))


@pytest.mark.parametrize("bad", [2**32 + 3, -(2**32) + 3, 2**63 - 1])
@pytest.mark.turns(3)
def test_a_cpu_carries_whole_numbers_where_they_matter(bad: int) -> None:
    """A source that only its low half takes for a good one, and weights that need both halves."""
    module, arrays = weighted(4, "int64"), operands(4, "int64", EDGES, 1)
    arrays[2][::7] = bad
    arrays[5][::3] *= 2**40 + 1
    options = {"implementation": "sort_based", "fuse": True, "bounds": "drop", "share_order": False}
    with columns_in_parts():
        machine = compiled_with(module, "llvm", **options)
    x, _, src, dst, _, weights = arrays
    good = (src >= -NODES) & (src < NODES)
    wanted = np.zeros([NODES, 4], "int64")
    np.add.at(wanted, dst[good], x[src[good]] * weights[good])
    np.testing.assert_array_equal(called(machine, "llvm", arrays), wanted)


def test_a_cpu_finds_numbers_that_are_more_than_begins_of_rows() -> None:
    """The source itself is added to its row, and so is the number of the edge."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([NODES, 4], "int64"))
    src, dst = (relax.Var(name, relax.TensorType([EDGES], "int64")) for name in ("src", "dst"))
    weight = relax.Var("weight", relax.TensorType([EDGES, 4], "int64"))
    with builder.function("main", [x, src, dst, weight]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, src, axis=0, mode="clip"))
            column = builder.emit(relax.op.expand_dims(src, [1]))
            message = builder.emit(relax.op.add(rows, column))
            message = builder.emit(relax.op.add(message, weight))
            zeros = builder.emit(relax.op.zeros([NODES, 4], "int64"))
            output = builder.emit_output(index_put(zeros, [dst], message, [0], "add"))
        builder.emit_func_output(output)
    random = np.random.default_rng(0)
    arrays = [
        random.integers(-3, 4, [NODES, 4]),
        random.integers(-(2**40), 2**40, EDGES),
        random.integers(0, NODES, EDGES),
        random.integers(-3, 4, [EDGES, 4]),
    ]
    wanted = np.zeros([NODES, 4], "int64")
    read = arrays[0][np.clip(arrays[1], 0, NODES - 1)] + arrays[1][:, None] + arrays[3]
    np.add.at(wanted, arrays[2], read)
    with columns_in_parts():
        machine = compiled_with(
            builder.get(), "llvm", implementation="sort_based", fuse=True, share_order=False
        )
    np.testing.assert_array_equal(called(machine, "llvm", arrays), wanted)
