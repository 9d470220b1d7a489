"""Products of one row with a transposed or repeated tensor make no copy of it."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import tvm
from cuda_cases import cuda_target
from harness import device_of, relax_function, target_of
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


def scaled(query, cache):
    """Attention divides by the root of the length, half of it on either side."""
    keys = emit(relax.op.permute_dims(cache, [0, 1, 3, 2]))
    keys = emit(relax.op.multiply(keys, relax.const(0.25, "float32")))
    return relax.op.matmul(query, keys)


def repeated(cache):
    """Heads that follow each other share their part of the cache."""
    wide = emit(relax.op.broadcast_to(emit(relax.op.expand_dims(cache, 2)), (2, 3, 2, 16, 8)))
    return emit(relax.op.reshape(wide, (2, 6, 16, 8)))


def shared(query, cache):
    return relax.op.matmul(query, emit(relax.op.permute_dims(repeated(cache), [0, 1, 3, 2])))


def shared_values(weights, cache):
    return relax.op.matmul(weights, repeated(cache))


#: How a product is written, the shape of its row, and what it is.
BUILDS = {
    "plain": (plain, QUERY, lambda q, c: q @ c.swapaxes(2, 3)),
    "torch": (as_torch_writes_it, QUERY, lambda q, c: q @ c.swapaxes(2, 3)),
    "scaled": (scaled, QUERY, lambda q, c: q @ c.swapaxes(2, 3) / 4),
    "shared": (shared, (2, 6, 1, 8), lambda q, c: q @ c.repeat(2, 1).swapaxes(2, 3)),
    "shared values": (shared_values, (2, 6, 1, 16), lambda w, c: w @ c.repeat(2, 1)),
}


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


@pytest.mark.parametrize("build", ["plain", "torch", "scaled"])
def test_nothing_is_transposed(build):
    found = operators(RowProducts()(module(BUILDS[build][0])))
    assert "relax.sum" in found
    assert "relax.permute_dims" not in found
    assert "relax.matmul" not in found
    assert "relax.broadcast_to" not in found


def test_a_row_of_halves_is_not_scaled():
    """The scaled row would be too large for its type, the scaled cache is not."""
    torch = pytest.importorskip("torch")
    from torch_harness import check

    query, cache = torch.full((1, 2, 1, 8), 300.0).half(), torch.full((1, 2, 17, 8), 1e-3).half()
    check(lambda q, k: q @ (k * 300).transpose(2, 3), query, cache, device="cuda")


@pytest.mark.parametrize("name", ["torch", "shared"])
def test_halves_are_added_up_in_single_precision(name, device):
    """As products of PyTorch's are imported, with a result that is rounded behind them."""
    rng = np.random.default_rng(0)
    values = [rng.integers(-3, 4, shape).astype("float16") for shape in (BUILDS[name][1], CACHE)]
    values = [2**7 * each for each in values]

    def build(query, cache):
        keys = cache if name == "torch" else repeated(cache)
        columns = emit(relax.op.permute_dims(keys, [0, 1, 3, 2]))
        return relax.op.matmul(query, columns, "float32")

    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, values)
    changed = RowProducts()(builder.get())
    assert operators(changed) != operators(builder.get())
    target, on = target_of(device), device_of(device)
    executable = tvm.compile(changed, target, relax_pipeline=tvm_scatter.pipeline(target))
    machine = relax.VirtualMachine(executable, on)
    found = machine["main"](*(tvm.runtime.tensor(each, on) for each in values)).numpy()
    wide = [each.astype("float32") for each in values]
    np.testing.assert_array_equal(found, BUILDS[name][2](*wide))


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", BUILDS)
def test_the_answer_is_numpys(name, device):
    build, row, reference = BUILDS[name]
    draw = np.random.default_rng(0).standard_normal
    row, cache = draw(row).astype("float32"), draw(CACHE).astype("float32")
    target = target_of(device)
    pipeline = tvm_scatter.pipeline(target)
    executable = tvm.compile(module(build, row.shape), target, relax_pipeline=pipeline)
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    found = machine["main"](*(tvm.runtime.tensor(each, on) for each in (row, cache))).numpy()
    np.testing.assert_allclose(found, reference(row, cache), rtol=1e-5, atol=1e-5)


def test_products_of_more_rows_are_left_alone():
    mod = module(plain, query=(2, 3, 4, 8))
    assert RowProducts()(mod).same_as(mod)


def test_matrices_in_another_order_are_left_alone():
    """All heads share the first part of the cache, then all share the second."""

    def build(weights, cache):
        wide = emit(relax.op.broadcast_to(emit(relax.op.expand_dims(cache, 1)), (2, 2, 3, 16, 8)))
        return relax.op.matmul(weights, emit(relax.op.reshape(wide, (2, 6, 16, 8))))

    mod = module(build, (2, 6, 1, 16))
    assert "relax.broadcast_to" in operators(RowProducts()(mod))


def written(mod, target):
    """The numbers of elements of the tensors that a compiled module makes."""
    with target:
        main = tvm_scatter.pipeline(target)(mod)["main"]
    sizes = []

    def visit(value):
        if isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.vm.alloc_tensor"):
            sizes.append(prod(int(each) for each in value.args[2].values))

    relax.analysis.post_order_visit(main, visit)
    return sizes


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("llvm", name) for name in BUILDS),
        *(("cuda", name) for name in ("plain", "torch", "scaled", "shared")),
    ],
)
def test_no_copy_of_the_cache_is_made(kind, name):
    """Nothing of the size of the cache is written, repeated or not."""
    target = tvm.target.Target("llvm") if kind == "llvm" else cuda_target("sm_90")
    build, row, _ = BUILDS[name]
    assert max(written(module(build, row), target), default=0) < prod(CACHE)


@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.turns(2)
def test_a_layer_with_a_static_cache_copies_nothing_of_it(heads):
    """It writes one position, and reads the others where they lie; 2 heads of keys and values."""
    torch = pytest.importorskip("torch")
    from tvm.relax.frontend.torch import from_exported_program

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("keys", "values"):
                self.register_buffer(name, torch.randn(1, 2, 64, 8))

        def forward(self, query, key, value, position):
            self.keys.index_copy_(2, position, key)
            self.values.index_copy_(2, position, value)
            both = (each.repeat_interleave(heads // 2, 1) for each in (self.keys, self.values))
            return torch.nn.functional.scaled_dot_product_attention(query, *both)

    model, target = Layer(), tvm.target.Target("llvm")
    first = [each.clone() for each in (model.keys, model.values)]
    inputs = [torch.randn(1, n, 1, 8) for n in (heads, 2, 2)] + [torch.tensor([5])]
    with torch.no_grad():
        mod = from_exported_program(torch.export.export(model, tuple(inputs)))
        expected = model(*inputs).numpy()
    assert max(written(mod, target)) < 2 * 64 * 8
    executable = tvm.compile(mod, target, relax_pipeline=tvm_scatter.pipeline(target))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(each.numpy()) for each in (*inputs, *first)]
    found = machine["main"](*arguments)[0].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
