"""Products of one row with a transposed tensor make no transposed copy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from cuda_cases import cuda_target
from harness import relax_function
from tvm import relax

import tvm_scatter
from tvm_scatter.passes import RowProducts

QUERY, CACHE = (2, 3, 1, 8), (2, 3, 16, 8)


def emit(value):
    return relax.BlockBuilder.current().emit(value)


def plain(query, cache):
    return relax.op.matmul(query, emit(relax.op.permute_dims(cache, [0, 1, 3, 2])))


def as_torch_writes_it(query, cache):
    """Batch axes are joined, by way of a broadcast that changes nothing."""
    keys = emit(relax.op.permute_dims(cache, [0, 1, 3, 2]))
    keys = emit(relax.op.broadcast_to(keys, (2, 3, 8, 16)))
    keys = emit(relax.op.reshape(keys, (6, 8, 16)))
    scores = emit(relax.op.matmul(emit(relax.op.reshape(query, (6, 1, 8))), keys))
    return relax.op.reshape(scores, (2, 3, 1, 16))


BUILDS = {"plain": plain, "torch": as_torch_writes_it}


def module(build, query=QUERY, cache=CACHE):
    builder = relax.BlockBuilder()
    arrays = [np.zeros(shape, "float32") for shape in (query, cache)]
    relax_function(builder, "main", build, arrays)
    return builder.get()


def operators(mod):
    """The operators that the module calls."""
    found = []

    def visit(value):
        if isinstance(value, relax.Call):
            found.append(getattr(value.op, "name", ""))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


@pytest.mark.parametrize("build", BUILDS)
def test_nothing_is_transposed(build):
    found = operators(RowProducts()(module(BUILDS[build])))
    assert "relax.sum" in found
    assert "relax.permute_dims" not in found
    assert "relax.matmul" not in found
    assert "relax.broadcast_to" not in found


@pytest.mark.parametrize("build", BUILDS)
def test_the_answer_is_numpys(build):
    draw = np.random.default_rng(0).standard_normal
    query, cache = draw(QUERY).astype("float32"), draw(CACHE).astype("float32")
    target = tvm.target.Target("llvm")
    pipeline = tvm_scatter.pipeline(target)
    executable = tvm.compile(module(BUILDS[build]), target, relax_pipeline=pipeline)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(query), tvm.runtime.tensor(cache)).numpy()
    np.testing.assert_allclose(found, query @ cache.swapaxes(2, 3), rtol=1e-5, atol=1e-5)


def test_products_of_more_rows_are_left_alone():
    mod = module(plain, query=(2, 3, 4, 8))
    assert RowProducts()(mod).same_as(mod)


@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_no_copy_of_the_cache_is_made(kind):
    """No function of the compiled module writes a tensor of the size of the cache."""
    target = tvm.target.Target("llvm") if kind == "llvm" else cuda_target("sm_90")
    with target:
        mod = tvm_scatter.pipeline(target)(module(as_torch_writes_it))
    names = [name.name_hint for name in mod.functions]
    assert not [name for name in names if "transpose" in name or "broadcast" in name], names
