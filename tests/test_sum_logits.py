"""A softmax over the edges of each node computes its logits, where they are sums along rows."""

from __future__ import annotations

import zlib
from random import Random

import numpy as np
import pytest
import tvm
from harness import at_its_address, called, compiled_with, device_of, target_of
from logit_programs import Rows
from machine_code import cuda, ptx

import tvm_scatter
from tvm_scatter.runtime.cuda_toolkit import nvrtc_version

OPTIONS = {"fuse": True, "row_sums": True, "bounds": "drop"}
TOLERANCE = {"float16": 8e-3, "bfloat16": 5e-2, "float32": 1e-5, "float64": 1e-12}
DTYPES = ("float32", "float32", "float16", "float64")


def machine(module, device, **options):
    return compiled_with(module, device, **{**OPTIONS, **options})


def notes(kind, device, **options):
    with tvm_scatter.options(**{**OPTIONS, **options}):
        return str(tvm_scatter.explain(kind.module(), target_of(device)))


def is_summed(kind, device, **options):
    return "sums along rows\n" in notes(kind, device, **options)


def check(kinds, device, arrays=None, **options):
    """Programs in one module, which compute their logits."""
    kinds = {f"f{at}": kind for at, kind in enumerate(kinds)}
    functions = {
        name: kind.module()["main"].with_attr("global_symbol", name) for name, kind in kinds.items()
    }
    compiled = machine(tvm.IRModule(functions), device, **options)
    for name, kind in kinds.items():
        given = kind.arrays(zlib.crc32(name.encode())) if arrays is None else arrays
        result = called(compiled, device, given, name).astype("float64")
        tolerance = TOLERANCE[kind.dtype]
        wanted = kind.expected(given)
        np.testing.assert_allclose(result, wanted, tolerance, tolerance, err_msg=f"{name}: {kind}")


#: Those of which threads without columns, several warps and vectors of one element are tried.
SHAPES = [
    Rows(form="edges", bias=True),
    Rows(form="additive", heads=(3,), columns=(31,), wraps=True),
    Rows(form="dots", heads=(3,), columns=(20,), dtype="float16"),
    Rows(form="additive", heads=(2, 2), columns=(2, 6), bias=True, symbolic=True),
    Rows(heads=(2,), columns=(128,), edges=9),
    Rows(nodes=1, edges=1, sources=1, dtype="float64"),
]
#: Those whose logits stay sums in memory.
APART = [
    Rows(heads=(), columns=(1,)),
    Rows(columns=(33,)),
    Rows(symbolic=True, form="dots"),
    Rows(returned=True),
]


def test_shapes():
    for kind in SHAPES:
        assert is_summed(kind, "cuda"), kind
    check(SHAPES, "cuda")


def test_what_stays_apart():
    for kind in APART:
        assert not is_summed(kind, "cuda"), kind
    assert is_summed(Rows(), "cuda")
    assert not is_summed(Rows(), "cuda", sum_logits=False)
    assert not is_summed(Rows(), "llvm")
    check(APART[1:2], "cuda")


@pytest.mark.parametrize("bounds", ["drop", "raise", "trust"])
@pytest.mark.turns(3)
def test_random_programs(bounds):
    seeds = {"drop": (0,), "raise": (8,), "trust": (12,)}[bounds]
    check([Rows.draw(Random(seed), DTYPES) for seed in seeds], "cuda", bounds=bounds)


def test_bad_indices():
    """Of a bad source a row of zeros is read; an edge with a bad target is dropped."""
    kind = Rows(form="edges")
    arrays = kind.arrays()
    arrays[-2][[3, 8]] = kind.sources, -1
    arrays[-1][[4, 9]] = kind.nodes, -1
    check([kind], "cuda", arrays)


def test_long_lists():
    """Of one destination thousands: sums of chunks, and of chunks of chunks."""
    kind = Rows(nodes=5, edges=9000, heads=(2,), columns=(5,))
    arrays = kind.arrays()
    arrays[-1] = np.where(np.arange(9000) < 8700, 3, arrays[-1])
    check([kind], "cuda", arrays)


def test_unaligned_views():
    """Vectors are no single accesses then, but a thread has the same columns."""
    kind = Rows(heads=(2,), columns=(8,))
    arrays = kind.arrays()
    compiled = machine(kind.module(), "cuda")
    on = device_of("cuda")
    given = []
    for array in arrays:
        memory = tvm.runtime.empty((array.size + 1,), str(array.dtype), on)
        memory.copyfrom(np.concatenate([array.reshape(-1)[:1], array.reshape(-1)]))
        view = memory._create_view(array.shape, str(array.dtype), array.itemsize)
        given.append(at_its_address(view))
    result = compiled["main"](*given).numpy()
    np.testing.assert_allclose(result, kind.expected(arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(nvrtc_version() is None, reason="nvrtc is not installed")
@pytest.mark.exhaustive
def test_it_compiles():
    functions = {
        dtype: Rows(dtype=dtype, heads=(4,), columns=(32,)).module()["main"]
        for dtype in ("bfloat16", "float32")
    }
    functions = {name: each.with_attr("global_symbol", name) for name, each in functions.items()}
    text = ptx(cuda(tvm.IRModule(functions), **OPTIONS))
    assert "shfl.sync.bfly" in text


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(100, 300, 20))
def test_many_random_programs(first):
    kinds = [Rows.draw(Random(seed), DTYPES) for seed in range(first, first + 20)]
    check(kinds, "cuda", fill=first % 40 == 0)
