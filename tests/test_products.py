"""Products of matrices in single precision, which have tiles of their own on GPUs."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from harness import at_its_address, device_of, target_of
from machine_code import cuda
from tvm import relax


def module(rows, columns, inner, dtype="float32", transposed=True, follows=True, batch=()):
    """A product, and perhaps a bias and a rectifier behind it; ``None`` is a symbolic number."""
    rows = tvm.tirx.Var("n", "int64") if rows is None else rows
    builder = relax.BlockBuilder()
    left = relax.Var("left", relax.TensorType([*batch, rows, inner], dtype))
    shape = [columns, inner] if transposed else [inner, columns]
    right = relax.Var("right", relax.TensorType(shape, dtype))
    bias = relax.Var("bias", relax.TensorType([columns], dtype))
    with builder.function("main", [left, right, bias]):
        with builder.dataflow():
            taken = builder.emit(relax.op.permute_dims(right)) if transposed else right
            found = builder.emit(relax.op.matmul(left, taken))
            if follows:
                found = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(found, bias))))
            output = builder.emit_output(found)
        builder.emit_func_output(output)
    return builder.get()


def tile(mod, **options):
    """The threads of a block, and the numbers of both operands that it has in shared memory."""
    kernels = cuda(mod, **options).split('extern "C" __global__ void ')
    [kernel] = [each for each in kernels if re.match(r"\S+ \w*matmul\w*\([^)]*\) {", each)]
    shared = re.findall(r"__shared__ alignas\(\d+\) (float\d?) \w+\[(\d+)\]", kernel)
    numbers = sorted(int(count) * (4 if "4" in kind else 1) for kind, count in shared)
    return int(re.search(r"\d+", kernel).group()), numbers


@pytest.mark.turns(4)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "inner", "transposed", "follows", "batch"),
    [
        (16, 16, 4, True, True, ()),
        (33, 128, 16, False, False, ()),
        (70, 256, 33, True, True, ()),
        (49, 49, 32, True, False, (5,)),
        (27, 27, 64, False, True, (3,)),
        (130, 66, 129, False, True, ()),
        (31, 160, 7, False, True, (3,)),
        (200, 96, 20, True, False, (2, 2)),
    ],
)
def test_any_sizes(rows, columns, inner, transposed, follows, batch, symbolic):
    given = None if symbolic else rows
    mod = module(given, columns, inner, "float32", transposed, follows, batch)
    executable = tvm.compile(mod, target_of("cuda"))
    random = np.random.default_rng(rows)
    left = random.standard_normal((*batch, rows, inner)).astype("float32")
    right = random.standard_normal((columns, inner) if transposed else (inner, columns))
    bias = random.standard_normal(columns).astype("float32")
    arrays = (left, right.astype("float32"), bias)
    machine = relax.VirtualMachine(executable, device_of("cuda"))
    wanted = left.astype("float64") @ (arrays[1].T if transposed else arrays[1])
    if follows:
        wanted = np.maximum(wanted + bias, 0)
    # A caller's tensors may begin between two vectors.
    for shift in (0, 1):
        found = machine["main"](*(at(each, shift) for each in arrays)).numpy()
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


def at(array, shift):
    """A tensor that begins so many elements behind the begin of its memory."""
    whole = tvm.runtime.empty((array.size + shift,), "float32", device_of("cuda"))
    view = at_its_address(whole._create_view(array.shape, "float32", 4 * shift))
    view.copyfrom(array)
    return view


def test_which_have_what_tile():
    """In shared memory lines are four numbers longer, that threads do not wait for a bank."""
    many, terms = 100_000, 64
    assert tile(module(many, 128, terms)) == (128, [32 * (64 + 4), 32 * (128 + 4)])
    assert tile(module(None, 256, terms)) == (128, [32 * (64 + 4), 32 * (128 + 4)])
    assert tile(module(many, 128, 33)) == (128, [16 * (64 + 4), 16 * (128 + 4)])
    assert tile(module(many, 64, terms)) == (128, [32 * (64 + 4), 32 * (64 + 4)])
    assert tile(module(many, 64, 33)) == (64, [16 * (64 + 4), 16 * (64 + 4)])
    assert tile(module(many, 96, terms)) == (64, [16 * (32 + 4), 16 * (64 + 4)])
    assert tile(module(500, 128, terms)) == (64, [16 * (32 + 4), 16 * (32 + 4)])


@pytest.mark.parametrize("columns", [64, 200])
def test_blocks_of_unknown_rows_divide_nothing(columns):
    """A remainder of 64 bits takes longer than a row of the tile."""
    kernel = cuda(module(None, columns, 64)).rpartition("__global__")[2]
    assert " % " not in kernel


def test_which_have_none():
    own = tile(module(100_000, 128, 64))
    others = [
        tile(module(100_000, 128, 64), products=False),
        tile(module(100_000, 15, 64)),
        tile(module(15, 128, 64)),
    ]
    assert own not in others


def kernels(mod, **options):
    """The names of the kernels that a model launches, without views of tensors."""
    names = re.findall(r"void __launch_bounds__\(\d+\) (\w+)_kernel\w*\(", cuda(mod, **options))
    return sorted({name for name in names if not name.startswith("reshape")})


def test_transposed_factors_are_read_where_they_lie():
    assert kernels(module(1000, 64, 32, transposed=True)) == ["fused_matmul_of_transposed_add_relu"]
    assert len(kernels(module(1000, 64, 32, transposed=True), products=False)) == 2

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([6, 40, 33], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            across = builder.emit(relax.op.permute_dims(x, [0, 2, 1]))
            pair = [relax.op.matmul(x, across), relax.op.matmul(across, x)]
            outputs = [builder.emit_output(each) for each in map(builder.emit, pair)]
        builder.emit_func_output(relax.Tuple(outputs))
    assert kernels(builder.get()) == ["matmul_of_transposed", "matmul_of_transposed1"]
    array = np.random.default_rng(0).standard_normal((6, 40, 33)).astype("float32")
    executable = tvm.compile(builder.get(), target_of("cuda"))
    machine = relax.VirtualMachine(executable, device_of("cuda"))
    first, second = machine["main"](at(array, 0))
    np.testing.assert_allclose(first.numpy(), array @ array.swapaxes(1, 2), 1e-4, 1e-4)
    np.testing.assert_allclose(second.numpy(), array.swapaxes(1, 2) @ array, 1e-4, 1e-4)


@pytest.mark.parametrize(
    "unknown", [pytest.param(False, marks=pytest.mark.exhaustive), True], ids=["known", "unknown"]
)
def test_what_follows_a_product_of_any_rank_is_computed_in_it(unknown):
    torch = pytest.importorskip("torch")
    from torch.export import Dim
    from torch_harness import check, export
    from tvm.relax.frontend.torch import from_exported_program

    def layers(x, first, bias, second):
        rows = torch.relu(x @ first + bias)
        rows = (rows @ second).view(-1, 5, second.shape[1]).sigmoid() * 2 + bias[: second.shape[1]]
        return rows, rows.amax(1)

    inputs = [torch.randn(*shape) for shape in ((3, 5, 20), (20, 33), (33,), (33, 17))]
    dynamic = [{0: Dim.AUTO}, None, None, None] if unknown else None
    mod = from_exported_program(export(layers, inputs, dynamic))
    names = kernels(mod)
    assert len([name for name in names if "matmul" in name]) == 2, names
    assert not any("sigmoid" in name and "matmul" not in name for name in names), names
    check(layers, *inputs, dynamic=dynamic, device="cuda")


def test_results_of_other_types():
    torch = pytest.importorskip("torch")
    from torch_harness import check

    def results(x, weight):
        found = x @ weight
        kinds = (torch.float64, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8)
        casts = [found.to(kind) for kind in kinds]
        return (*casts, found > 3, (found > 1) & (found < 5), found.where(found < 4, -torch.inf))

    # Whole numbers, which no type rounds.
    x, weight = torch.arange(70 * 3).view(70, 3) % 3, torch.arange(3 * 128).view(3, 128) % 5
    check(results, x.repeat(1, 2).float(), weight.repeat(2, 1).float(), device="cuda")


def test_one_of_several_matrices_is_multiplied(caplog):
    torch = pytest.importorskip("torch")
    from torch_harness import check

    x, weight = torch.randn(3, 20, 33), torch.randn(33, 47)
    check(lambda x, w: (x[0] @ w, x[0].mT @ x[1]), x, weight, device="cuda")
    assert not [each for each in caplog.records if each.name == "tvm_scatter"], "a schedule fails"
