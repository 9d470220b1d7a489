"""What a call asks of a GPU: how many kernels, how much memory, and no waiting."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_scatter
from tvm_scatter.bounds import device_check
from tvm_scatter.ops import operators as ops

pytestmark = pytest.mark.gpu


def compiled(parameters, build, **switches):
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(name, relax.TensorType(shape, dtype)) for name, shape, dtype in parameters
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            output = builder.emit_output(build(builder, *variables))
        builder.emit_func_output(output)
    target = tvm.target.Target.from_device(tvm.cuda(0))
    pipeline = tvm_scatter.pipeline(target, **switches)
    executable = tvm.compile(builder.get(), target, relax_pipeline=pipeline)
    return relax.VirtualMachine(executable, tvm.cuda(0))["main"]


def events(call, runs):
    """Names of the driver's calls and of the kernels in several runs."""
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as profiler:
        for _ in range(runs):
            call()
    return [event.name for event in profiler.events()]


def waits(names):
    return sum(
        "ynchronize" in name or name.startswith(("cuMemcpy", "cudaMemcpy")) for name in names
    )


def chain(count):
    parameters = [("x", (1024, 64), "float32")]
    parameters += [(f"row{at}", (1, 64), "float32") for at in range(count)]
    parameters += [(f"index{at}", (1,), "int64") for at in range(count)]

    def build(builder, x, *others):
        for row, index in zip(others[:count], others[count:], strict=True):
            x = builder.emit(ops.index_put(x, [index], row, [0], "add"))
        return x

    arguments = [
        tvm.runtime.tensor(np.zeros(shape, dtype), tvm.cuda(0)) for _, shape, dtype in parameters
    ]
    return parameters, build, arguments


@pytest.mark.parametrize("forced", [None, "segmented", "sort_based", "parallel_injective"])
def test_nothing_waits_between_launches(forced) -> None:
    """Counted: ten runs ask the driver to wait no more often than one does."""
    parameters, build, arguments = chain(4)
    call = compiled(parameters, build, bulk=False, implementation=forced)
    once, often = (events(lambda: call(*arguments), runs) for runs in (1, 10))
    assert any("scatter" in name for name in once)
    assert waits(often) == waits(once)


@pytest.mark.parametrize(
    ("on_drop_bytes", "checks"), [(1 << 60, 4), (0, 0)], ids=["checked", "on_drop"]
)
def test_raise_watches_and_asks_nothing_to_wait(monkeypatch, on_drop_bytes, checks) -> None:
    """The host reads the check's answers where the GPU writes them: no copy, no synchronisation."""
    monkeypatch.setattr(device_check, "_ON_DROP_BYTES", on_drop_bytes)
    parameters, build, arguments = chain(4)
    call = compiled(parameters, build, bulk=False, bounds="raise")
    once, often = (events(lambda: call(*arguments), runs) for runs in (1, 10))
    found = sum("check_indices" in name for name in often)
    assert found >= 10 * checks and bool(found) == bool(checks)
    assert waits(often) == waits(once)


def test_the_count_sees_what_waits() -> None:
    """The counts above can fail: a copy to the host does wait."""
    parameters, build, arguments = chain(4)
    call = compiled(parameters, build, bulk=False)
    once, often = (events(lambda: call(*arguments).numpy(), runs) for runs in (1, 10))
    assert waits(often) > waits(once)


def test_a_chain_of_assignments_is_one_launch() -> None:
    parameters, _, arguments = chain(64)

    def build(builder, x, *others):
        for at, row in enumerate(others[:64]):
            x = builder.emit(ops.index_put(x, [relax.const([16 * at], "int64")], row, [0]))
        return x

    call = compiled(parameters, build)
    names = events(lambda: call(*arguments), 1)
    assert sum("copy_ranges" in name for name in names) == 1
    assert sum("scatter" in name for name in names) == 0


def test_in_place_takes_no_memory() -> None:
    torch = pytest.importorskip("torch")
    size = 256 << 20
    parameters = [
        ("cache", (size // 512, 128), "float32"),
        ("index", (1,), "int64"),
        ("row", (1, 128), "float32"),
    ]

    def used():
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    taken = {}
    for donate in ((), ("cache",)):
        call = compiled(
            parameters,
            lambda _, cache, index, row: ops.index_put(cache, [index], row, [0]),
            donate=donate,
        )
        arguments = [
            tvm.runtime.tensor(np.zeros(shape, dtype), tvm.cuda(0))
            for _, shape, dtype in parameters
        ]
        before = used()
        result = call(*arguments)
        taken[donate] = used() - before
        del result, arguments, call
    # Tests beside this one take and leave some memory of the same GPU.
    assert taken[()] - taken[("cache",)] > 0.9 * size
