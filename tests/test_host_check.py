"""The check on a host by itself, as it is compiled for each number of entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from harness import relax_function, target_of
from tally import Tally
from tvm import relax

from tvm_scatter.bounds.host_check import check_on_host
from tvm_scatter.lowering.lower import lower
from tvm_scatter.lowering.operands import Made
from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.options import Options

Array = np.ndarray[Any, Any]
Build = Callable[..., Any]
#: Around the lengths of vectors and of unrolled loops, for what is not tried with every length.
SOME = (0, 1, 2, 3, 8, 16, 33)
EXTENT = 5


def checks(
    calls: dict[str, tuple[Build, Sequence[Array]]], symbolic: bool = False
) -> relax.VirtualMachine:
    """Functions that check the indices of a scatter, and do not scatter."""
    builder = relax.BlockBuilder()

    def check_of(build: Build) -> Build:
        def check(*parameters: Any) -> Any:
            call = builder.normalize(build(*parameters))
            lowered = lower(ScatterCall.from_call(call), Options(bounds="raise"), "llvm")
            return check_on_host(builder, Made(builder).index_check(lowered.check))

        return check

    for name, (build, arrays) in calls.items():
        relax_function(builder, name, check_of(build), arrays, symbolic)
    return relax.VirtualMachine(tvm.compile(builder.get(), target_of("llvm")), tvm.cpu())


def edges(extent: int, dtype: str, wrap: bool) -> tuple[list[int], list[int]]:
    """Good and bad indices of a type."""
    limits = np.iinfo(dtype)
    near = [0, 1, extent - 1, extent, -1, -extent, -extent - 1, extent + 1]
    far = [2**31, -(2**31), 2**31 - 1, 2**32 - 1, 2**32, 2**40, -(2**40), limits.min, limits.max]
    known = [value for value in {*near, *far} if limits.min <= value <= limits.max]
    lowest = -extent if wrap else 0
    good = [value for value in known if lowest <= value < extent]
    return good, [value for value in known if value not in good]


def trials(count: int, extent: int, dtype: str, wrap: bool) -> Iterator[tuple[Array, int]]:
    """Indices, and at which position the first bad one stands, or -1.

    Each position is bad once, and of a few entries with each bad value.
    """
    good, bad = edges(extent, dtype, wrap)
    if good:
        fine = np.resize(np.array(good, dtype), count)
        yield fine, -1
        for at in range(count):
            turn = (at + count) % max(len(bad), 1)
            for value in bad if count < 4 else bad[turn : turn + 1]:
                index = fine.copy()
                index[at] = value
                yield index, at
    elif count:
        for value in bad:
            yield np.full(count, value, dtype), 0


def tells(function: Any, data: Array, indices: Sequence[Array], updates: Array) -> str:
    """What the check says of indices: nothing if all are good."""
    tensors = [tvm.runtime.tensor(array) for array in (data, *indices, updates)]
    try:
        function(*tensors)
    except IndexError as error:
        return str(error)
    return ""


def check_lengths(dtype: str, extent: int, counts: Sequence[int], wrap: bool) -> int:
    """Check lists of indices of several lengths; how many there were."""
    # A large extent takes no memory beside another one that is zero.
    data, updates = np.empty((extent, 0), "float32"), np.ones((max(counts), 0), "float32")
    calls: dict[str, Any] = {
        f"n{count}": (
            lambda d, i, u: index_put(d, [i], u, wrap_negative=wrap),
            (data, np.zeros(count, dtype), updates[:count]),
        )
        for count in counts
    }
    machine = checks(calls)
    tried = 0
    for count in counts:
        for index, at in trials(count, extent, dtype, wrap):
            said = tells(machine[f"n{count}"], data, [index], updates[:count])
            expected = f"index {index[at]} at position ({at})" if at >= 0 else ""
            assert (expected in said) if expected else not said, (count, index, said)
            tried += 1
    return tried


@pytest.mark.parametrize(
    ("wrap", "counts"),
    [
        (True, (*range(36), 63, 64, 65)),
        *(pytest.param(wrap, range(71), marks=pytest.mark.exhaustive) for wrap in (True, False)),
    ],
    ids=["some", "wrap", "no_wrap"],
)
def test_every_length(wrap: bool, counts: Sequence[int], tally: Tally) -> None:
    tally("indices checked by the host", check_lengths("int64", EXTENT, counts, wrap))


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize(
    ("dtype", "extent", "counts"),
    [
        *(pytest.param(dtype, EXTENT, SOME, id=dtype) for dtype in ("int64", "int32")),
        *(
            pytest.param(dtype, EXTENT, (1, 2, 33), id=dtype)
            for dtype in ("int8", "int16", "uint8", "uint16", "uint32")
        ),
        *(
            pytest.param("int64", extent, (1, 2, 33), id=f"extent{extent}")
            for extent in (0, 1, 2, 2**31, 2**33)
        ),
        pytest.param("int32", 2**31 - 1, (1, 2, 33), id="int32-extent2147483647"),
    ],
)
def test_every_bad_index_at_every_position(
    dtype: str, extent: int, counts: Sequence[int], wrap: bool, tally: Tally
) -> None:
    tally("indices checked by the host", check_lengths(dtype, extent, counts, wrap))


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_lengths_and_extents_that_are_not_known(dtype: str, wrap: bool, tally: Tally) -> None:
    build = lambda d, i, u: index_put(d, [i], u, wrap_negative=wrap)  # noqa: E731
    shapes = np.zeros((5, 4)), np.zeros(3, dtype), np.zeros((3, 4))
    arrays = [array.astype("float32") if array.ndim == 2 else array for array in shapes]
    machine = checks({"check": (build, arrays)}, symbolic=True)
    tried = 0
    for extent in (0, 1, 2, EXTENT, 2**33):
        for count in SOME:
            data, updates = np.empty((extent, 0), "float32"), np.empty((count, 0), "float32")
            for index, at in trials(count, extent, dtype, wrap):
                said = tells(machine["check"], data, [index], updates)
                expected = f"index {index[at]} at flat position {at} " if at >= 0 else ""
                assert (expected in said) if expected else not said, (count, index, said)
                tried += 1
    tally("indices checked by the host", tried)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("form", ["put", "nd", "columns"])
def test_each_component_has_its_own_extent(form: str, count: int) -> None:
    """Tuples of one tensor, a tensor for each axis, and one index along the second axis."""
    data = np.zeros((2, 5, 1), "float32")
    parts = [np.zeros(count, "int64"), np.zeros(count, "int64")]
    updates = np.zeros((count, 1), "float32")
    builds: dict[str, Build] = {
        "put": lambda d, i, j, u: index_put(d, [i, j], u),
        "nd": lambda d, i, u: scatter_nd(d, i, u),
        "columns": lambda d, i, u: scatter_elements(d, i, u, axis=1, wrap_negative=True),
    }

    def operands(parts: list[Array]) -> tuple[list[Array], Array]:
        if form == "put":
            return parts, updates
        if form == "nd":
            return [np.stack(parts, axis=-1)], updates
        return [parts[1].reshape(1, count, 1)], np.zeros((1, count, 1), "float32")

    indices, values = operands(parts)
    machine = checks({"check": (builds[form], (data, *indices, values))})
    for component, extent in enumerate(data.shape[:2]):
        if form == "columns" and component == 0:
            continue
        good, bad = edges(extent, "int64", wrap=True)
        for at in range(count):
            for value in good + bad:
                trial = [part.copy() for part in parts]
                trial[component][at] = value
                indices, values = operands(trial)
                said = tells(machine["check"], data, indices, values)
                assert bool(said) == (value in bad), (component, trial, said)
                if said:
                    assert f"index {value} " in said and f"extent {extent};" in said
                    assert form == "columns" or f"of component {component}" in said
