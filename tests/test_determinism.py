"""Equal bits on every run, for every launch, and whether sizes are known or not, on a GPU."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tvm
from tally import Tally
from tvm import relax, tirx

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.tuning.operands.distributions import draw_indices

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("load")]

_EXTENT, _COUNT = 3000, 200_000


@pytest.fixture(scope="module")
def load():
    """Kernels on another stream, which take multiprocessors and change the order of blocks."""
    torch = pytest.importorskip("torch")
    done = threading.Event()

    def multiply() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            matrix = torch.ones(1024, 1024, device="cuda")
            while not done.is_set():
                for _ in range(16):
                    torch.mm(matrix, matrix)
                stream.synchronize()

    thread = threading.Thread(target=multiply)
    thread.start()
    yield
    done.set()
    thread.join()


def _compile(width: int, reduction: str, forced: str | None, knobs=None, symbolic: bool = False):
    count = tirx.Var("n", "int64") if symbolic else _COUNT
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((_EXTENT, width), "float32"))
    index = relax.Var("index", relax.TensorType((count,), "int64"))
    updates = relax.Var("updates", relax.TensorType((count, width), "float32"))
    with builder.function("main", [data, index, updates]):
        with builder.dataflow():
            call = index_put(data, [index], updates, reduction=reduction)
            result = builder.emit_output(builder.emit(call))
        builder.emit_func_output(result)
    target = tvm.target.Target.from_device(tvm.cuda(0))
    with tvm_scatter.options(implementation=forced, deterministic=True, knobs=knobs or {}):
        executable = tvm.compile(builder.get(), target=target)
    return relax.VirtualMachine(executable, tvm.cuda(0))["main"]


def _arguments(width: int):
    generator = np.random.default_rng(0)
    arrays = (
        generator.standard_normal((_EXTENT, width), dtype="float32"),
        draw_indices("zipf(1.2)", _EXTENT, _COUNT),
        generator.standard_normal((_COUNT, width), dtype="float32"),
    )
    return arrays, [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]


@pytest.mark.parametrize("width", [1, 32])
@pytest.mark.parametrize("forced", [None, "segmented", "sort_based"])
def test_a_hundred_runs_give_the_same_bits(forced: str | None, width: int, tally: Tally) -> None:
    arrays, arguments = _arguments(width)
    run = _compile(width, "add", forced)
    first = run(*arguments).numpy()
    for _ in range(99):
        assert np.array_equal(run(*arguments).numpy(), first)
    tally("results compared bit by bit", 99)
    exact = arrays[0].astype("float64")
    np.add.at(exact, arrays[1], arrays[2].astype("float64"))
    assert np.allclose(first, exact, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("forced", ["segmented", "sort_based"])
def test_symbolic_builds_and_other_launches_give_the_same_bits(forced: str) -> None:
    _, arguments = _arguments(32)
    first = _compile(32, "add", forced)(*arguments).numpy()
    assert np.array_equal(_compile(32, "add", forced, symbolic=True)(*arguments).numpy(), first)
    if forced == "segmented":
        other = _compile(32, "add", forced, knobs={"threads": 256})
        assert np.array_equal(other(*arguments).numpy(), first)


@pytest.mark.parametrize("forced", [None, "gather_form", "sort_based"])
def test_the_last_update_wins(forced: str | None) -> None:
    arrays, arguments = _arguments(8)
    expected = arrays[0].copy()
    last = dict(zip(arrays[1].tolist(), range(_COUNT), strict=True))
    expected[list(last)] = arrays[2][list(last.values())]
    run = _compile(8, "update", forced)
    for _ in range(20):
        assert np.array_equal(run(*arguments).numpy(), expected)
