"""Reductions along rows that are read by index compute the rows themselves."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from harness import (
    at_its_address,
    compile_all,
    device_of,
    relax_function,
    run_compiled,
    target_of,
)
from machine_code import cuda, needs_nvrtc, ptx
from random_reads import numpy_dtype
from random_row_sums import draw_row_sum, with_symbols
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter.lowering.row_reductions import REDUCES_ROWS
from tvm_scatter.options import current_options
from tvm_scatter.passes import passes
from tvm_scatter.passes.analysis.bindings import Bindings


def check(seeds: Any, device: str, bad: bool, **options: Any) -> None:
    drawn = {f"f{seed}": draw_row_sum(seed, bad) for seed in seeds}
    calls = {name: each[:2] for name, each in drawn.items()}
    machine = compile_all(calls, device, row_sums=True, **options)
    results = run_compiled(machine, calls, device)
    for name, each in drawn.items():
        assert results[name].dtype == each.expected.dtype, name
        found, expected = (a.astype("float64") for a in (results[name], each.expected))
        # Sums of these are exact; the division of a mean is off by a bit on a GPU.
        np.testing.assert_allclose(found, expected, rtol=2e-7, err_msg=name)


def notes_of(mod: tvm.IRModule, device: str, **options: Any) -> list[str]:
    """What the pass says of a module's reductions."""
    with tvm_scatter.options(**{"row_sums": True, **options}):
        notes = tvm_scatter.explain(mod, target_of(device)).notes
    return [str(note) for note in notes if note.switch == "row_sums"]


def module(build: Any, arrays: Any, symbolic: bool = False) -> tvm.IRModule:
    """A function of parameters like these arrays; numbers of nodes and edges may be symbolic."""
    if symbolic:
        return module_of(build, with_symbols(arrays))
    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, arrays)
    return builder.get()


def module_of(build: Any, parameters: Any) -> tvm.IRModule:
    """A function of these parameters."""
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            output = builder.emit_output(build(*parameters))
        builder.emit_func_output(output)
    return builder.get()


def compiled(mod: tvm.IRModule, device: str, **options: Any) -> Any:
    with tvm_scatter.options(**{"row_sums": True, **options}):
        executable = tvm.compile(mod, target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


def call(machine: Any, device: str, arrays: Any) -> Any:
    return machine["main"](*[tvm.runtime.tensor(a, device_of(device)) for a in arrays]).numpy()


@pytest.mark.turns(2)
@pytest.mark.parametrize("bad", [False, True])
def test_random_row_sums(device: str, bad: bool, caplog: pytest.LogCaptureFixture) -> None:
    check(range(12), device, bad, bounds="drop")
    assert not caplog.records


@pytest.mark.turns(2)
@pytest.mark.parametrize("bounds", ["raise", "trust"])
def test_random_row_sums_of_good_indices(device: str, bounds: str) -> None:
    check(range(100, 108), device, False, bounds=bounds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1000, 2000, 40))
def test_many_random_row_sums(device: str, seed: int) -> None:
    check(range(seed, seed + 40), device, bool(seed % 80), bounds="drop")


@pytest.mark.parametrize("seed", [3, 5, 20])
def test_symbolic_sizes(device: str, seed: int) -> None:
    drawn = draw_row_sum(seed)
    mod = module(drawn.build, drawn.arrays, symbolic=True)
    [note] = notes_of(mod, device)
    assert "computes its rows itself" in note
    result = call(compiled(mod, device, bounds="drop"), device, drawn.arrays)
    np.testing.assert_array_equal(result, drawn.expected)


def test_random_row_sums_are_all_fused(device: str) -> None:
    for seed in range(12):
        [note] = notes_of(module(*draw_row_sum(seed)[:2]), device)
        assert "computes its rows itself: take" in note


def scores(x: Any, y: Any, attention: Any, src: Any, dst: Any) -> Any:
    """The logits of GATv2."""
    emit = relax.BlockBuilder.current().emit
    rows = emit(relax.op.add(emit(relax.op.take(x, src, 0)), emit(relax.op.take(y, dst, 0))))
    rows = emit(relax.op.multiply(emit(relax.op.nn.leakyrelu(rows, 0.25)), attention))
    return emit(relax.op.sum(rows, [-1]))


def draw(
    nodes: int, edges: int, *row: int, dtype: str = "float32", seed: int = 0
) -> tuple[Any, ...]:
    random = np.random.default_rng(seed)
    x, y = random.integers(-3, 4, (2, nodes, *row)).astype(dtype)
    attention = random.integers(-3, 4, (1, *row)).astype(dtype)
    return (x, y, attention, *random.integers(0, nodes, (2, edges)))


def typed(nodes: int, edges: int, row: Any, dtype: str) -> list[relax.Var]:
    """Parameters of ``scores`` of some sizes."""
    shapes = [(nodes, *row), (nodes, *row), (1, *row), (edges,), (edges,)]
    types = [dtype] * 3 + ["int64"] * 2
    return [
        relax.Var(f"p{at}", relax.TensorType(*each))
        for at, each in enumerate(zip(shapes, types, strict=True))
    ]


def expected_scores(x: Any, y: Any, attention: Any, src: Any, dst: Any) -> Any:
    rows = x[src] + y[dst]
    return (np.where(rows > 0, rows, rows / 4) * attention).sum(-1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_after_each_step(device: str, dtype: str) -> None:
    """As in memory. One column of each row is not zero, so its sum is what that step gives."""
    typed = numpy_dtype(dtype)
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 9, 3, 32)).astype(typed)
    attention = (random.standard_normal((1, 3, 32)) * (np.arange(32) == 5)).astype(typed)
    arrays = (x, y, attention, *random.integers(0, 9, (2, 40)))
    result = call(compiled(module(scores, arrays), device, bounds="drop"), device, arrays)
    rows = x[arrays[3]] + y[arrays[4]]
    rows = np.where(rows > 0, rows, rows * np.asarray(0.25, typed)) * attention
    np.testing.assert_array_equal(result, rows[..., 5])


def test_sums_of_halves_are_rounded_once(device: str) -> None:
    """In 16 bits, 2 000 ones would be added up to 256."""
    width, typed = 2000, numpy_dtype("bfloat16")
    arrays = (np.ones((9, 1, width), typed), np.zeros((9, 1, width), typed))
    arrays = (*arrays, np.ones((1, 1, width), typed), *np.zeros((2, 40), "int64"))
    result = call(compiled(module(scores, arrays), device, bounds="drop"), device, arrays)
    np.testing.assert_array_equal(result, np.full((40, 1), width, typed))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cpus_read_heads_within_a_row_by_vectors(dtype: str) -> None:
    """The heads of a row lie side by side. Element by element they would be gathered."""

    def build(x: Any, y: Any, attention: Any, src: Any, dst: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        rows = emit(relax.op.add(emit(relax.op.take(x, src, 0)), emit(relax.op.take(y, dst, 0))))
        heads = emit(relax.op.reshape(rows, (40, 4, 32)))
        return emit(relax.op.sum(emit(relax.op.multiply(heads, attention)), [-1]))

    typed = numpy_dtype(dtype)
    arrays = (*np.ones((2, 9, 128), typed), np.ones((1, 4, 32), typed))
    mod = module(build, (*arrays, *np.zeros((2, 40), "int64")))
    target = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    with tvm_scatter.options(bounds="drop"):
        executable = tvm.compile(mod, target)
    text = "\n".join(each.inspect_source("s") for each in executable.mod.imports)
    assert "zmm" in text
    assert "gather" not in text


@pytest.mark.parametrize("bounds", ["drop", "raise"])
def test_no_edges(device: str, bounds: str) -> None:
    mod = module(scores, draw(9, 40, 2, 16), symbolic=True)
    machine = compiled(mod, device, bounds=bounds)
    for edges in (40, 0, 1, 300):
        arrays = draw(9, edges, 2, 16)
        result = call(machine, device, arrays)
        np.testing.assert_array_equal(result, expected_scores(*arrays))


@pytest.mark.parametrize("which", [3, 4])
@pytest.mark.each_device
def test_a_bad_index_raises(device: str, which: int) -> None:
    arrays = draw(9, 40, 2, 16)
    arrays[which][17] = 9
    machine = compiled(module(scores, arrays), device, bounds="raise")
    with pytest.raises(IndexError, match=r"index 9 at position \(17\)"):
        call(machine, device, arrays)


def test_off_leaves_the_module_alone(device: str) -> None:
    mod = module(scores, draw(9, 40, 2, 16))
    assert notes_of(mod, device, row_sums=False) == []
    with target_of(device), tvm_scatter.options(row_sums=True, enabled=False):
        assert passes(current_options()) == []


def test_what_computes_no_row_by_index_is_left(device: str) -> None:
    """Nothing is said of sums without reads by index."""

    def build(x: Any, w: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return emit(relax.op.sum(emit(relax.op.multiply(x, w)), [-1]))

    mod = module(build, [np.zeros((30, 8), "float32")] * 2)
    assert notes_of(mod, device) == []


@pytest.mark.each_device
def test_a_message_with_another_reader_stays_in_memory(device: str) -> None:
    def build(x: Any, y: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        rows = emit(relax.op.multiply(emit(relax.op.take(x, i, 0)), y))
        return emit(relax.op.multiply(rows, emit(relax.op.sum(rows, [-1], True))))

    random = np.random.default_rng(0)
    x, y = random.integers(-3, 4, (9, 8)), random.integers(-3, 4, (40, 8))
    arrays = (x.astype("float32"), y.astype("float32"), random.integers(0, 9, 40))
    mod = module(build, arrays)
    [note] = notes_of(mod, device)
    assert re.search(r"reads its rows from memory: \w+ has other readers", note)
    rows = arrays[0][arrays[2]] * arrays[1]
    result = call(compiled(mod, device), device, arrays)
    np.testing.assert_array_equal(result, rows * rows.sum(-1, keepdims=True))


def test_a_read_with_another_reader_is_computed_again(device: str) -> None:
    """To read a row of the nodes moves as many bytes as to read it in memory once more."""

    def build(x: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        rows = emit(relax.op.take(x, i, 0))
        square = emit(relax.op.sum(emit(relax.op.multiply(rows, rows)), [-1], True))
        return emit(relax.op.subtract(rows, square))

    x = np.random.default_rng(0).integers(-3, 4, (9, 8)).astype("float32")
    arrays = (x, np.arange(40) % 9)
    mod = module(build, arrays)
    [note] = notes_of(mod, device)
    assert "computes its rows itself: take, multiply" in note
    rows = x[arrays[1]]
    result = call(compiled(mod, device), device, arrays)
    np.testing.assert_array_equal(result, rows - (rows * rows).sum(-1, keepdims=True))


def test_a_read_in_another_shape_with_another_reader_is_computed_again(device: str) -> None:
    """As the values of an attention with several heads, of which its logits are computed."""

    def build(x: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        rows = emit(relax.op.reshape(emit(relax.op.take(x, i, 0)), (40, 2, 8)))
        square = emit(relax.op.sum(emit(relax.op.multiply(rows, rows)), [-1], True))
        return emit(relax.op.subtract(rows, square))

    x = np.random.default_rng(0).integers(-3, 4, (9, 16)).astype("float32")
    arrays = (x, np.arange(40) % 9)
    mod = module(build, arrays)
    [note] = notes_of(mod, device)
    assert "computes its rows itself: take, reshape, multiply" in note
    rows = x[arrays[1]].reshape(40, 2, 8)
    result = call(compiled(mod, device), device, arrays)
    np.testing.assert_array_equal(result, rows - (rows * rows).sum(-1, keepdims=True))


@pytest.mark.parametrize(("row", "elements"), [((4, 8), 4), ((4, 6), 2), ((4, 5), 1)])
def test_rows_in_another_shape_are_read_in_vectors(row: Any, elements: int) -> None:
    """A row of the result begins inside a row of what is read."""

    def build(x: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return emit(
            relax.op.sum(emit(relax.op.reshape(emit(relax.op.take(x, i, 0)), (40, *row))), [-1])
        )

    mod = module(build, (np.zeros((9, row[0] * row[1]), "float32"), np.arange(40) % 9))
    with tvm_scatter.options(row_sums=True):
        [note] = tvm_scatter.explain(mod, target_of("cuda")).reads
    assert f"{elements} element" in str(note)


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_along_other_axes_are_left(device: str, axis: int) -> None:
    def build(x: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return emit(relax.op.sum(emit(relax.op.take(x, i, 0)), [axis]))

    mod = module(build, [np.zeros((9, 3, 8), "float32"), np.arange(9)])
    assert notes_of(mod, device) == []


def test_rows_too_long_for_a_warp_are_left() -> None:
    def build(x: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return emit(relax.op.sum(emit(relax.op.take(x, i, 0)), [-1]))

    mod = module(build, [np.zeros((9, 5000), "float32"), np.arange(9)])
    assert "a row of 5000 elements is too long for a warp" in notes_of(mod, "cuda")[0]
    assert "computes its rows itself" in notes_of(mod, "llvm")[0]


def test_elements_that_are_no_neighbours_are_left_to_memory_on_cpus() -> None:
    def build(x: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return emit(relax.op.sum(emit(relax.op.take(x, i, 1)), [-1]))

    mod = module(build, [np.zeros((9, 50), "float32"), np.arange(9)])
    assert "what are no neighbours" in notes_of(mod, "llvm")[0]
    assert "computes its rows itself" in notes_of(mod, "cuda")[0]


@pytest.mark.parametrize(
    ("row", "dtype", "form"),
    [
        ((128,), "float32", "32 threads to a row, 4 rows at a time, 4 elements"),
        ((4, 32), "float32", "8 threads to a row, 4 rows at a time, 4 elements"),
        ((4, 32), "bfloat16", "4 threads to a row, 4 rows at a time, 8 elements"),
        ((512,), "float32", "32 threads to a row, 1 row at a time, 4 elements"),
        ((48,), "float32", "16 threads to a row, 4 rows at a time, 4 elements"),
        ((8, 3), "float32", "4 threads to a row, 4 rows at a time, 1 element"),
        ((100,), "float32", "32 threads to a row, 4 rows at a time, 4 elements"),
    ],
)
def test_how_rows_are_spread(row: Any, dtype: str, form: str) -> None:
    mod = module_of(scores, typed(100_000, 1_000_000, row, dtype))
    with tvm_scatter.options(row_sums=True):
        [note] = tvm_scatter.explain(mod, target_of("cuda")).reads
    assert form in str(note)


@needs_nvrtc
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.turns(2)
def test_the_code_of_scores(dtype: str) -> None:
    """All indices, then all rows in accesses of 16 bytes, and nothing in local memory."""
    parameters = typed(100_000, 1_000_000, (4, 32), dtype)
    text = ptx(cuda(module_of(scores, parameters), row_sums=True))
    loads = re.findall(r"ld\.global(?:\.nc)?\.(u64|v4\.[bfu]32)", text)
    assert [each[:2] for each in loads] == ["u6"] * 8 + ["v4"] * 9
    assert len(re.findall(r"st\.global", text)) == 4
    assert ".local" not in text


def test_rows_that_are_aligned_to_their_elements_only() -> None:
    """What is read may be a view of another tensor."""
    arrays = draw(9, 300, 2, 16)
    machine = compiled(module(scores, arrays), "cuda")
    on = device_of("cuda")
    whole = np.concatenate([np.full(1, np.nan, "float32"), arrays[0].reshape(-1)])
    view = tvm.runtime.tensor(whole, device=on)._create_view(arrays[0].shape, "float32", 4)
    given = [at_its_address(view), *(tvm.runtime.tensor(each, device=on) for each in arrays[1:])]
    np.testing.assert_array_equal(machine["main"](*given).numpy(), expected_scores(*arrays))


def made(mod: tvm.IRModule, device: str, sizes: Any = None, **options: Any) -> list[int]:
    """The elements of each tensor that a module's functions compute, before TVM fuses any."""
    with target_of(device), tvm_scatter.options(row_sums=True, **options):
        mod = tvm.transform.Sequential(passes(current_options()))(mod)
        mod = relax.transform.LegalizeOps()(mod)
    functions = [each for _, each in mod.functions_items() if REDUCES_ROWS in (each.attrs or {})]
    assert functions
    assert not any(each.body.block.alloc_buffers for each in functions)
    found: list[int] = []
    for binding in Bindings(mod["main"]):
        fields = getattr(binding.var.ty, "fields", [binding.var.ty])
        shapes = [each.shape for each in fields if isinstance(each, relax.TensorType)]
        found += [int(np.prod([_number(size, sizes) for size in shape])) for shape in shapes]
    return found


def _number(size: Any, sizes: Any) -> int:
    return int(size) if isinstance(size, tvm.tirx.IntImm) else sizes


@pytest.mark.each_device
def test_nothing_is_computed_in_memory(device: str) -> None:
    """No function writes anything of (edges, features), on CPUs without a schedule either."""
    mod = module(scores, draw(9, 40, 2, 16))
    assert max(made(mod, device, bounds="drop")) == 40 * 2


def _note_allocation(sizes: list[int], _: Any, name: str, before: bool, __: Any, *of: Any) -> int:
    if before and name == "vm.builtin.alloc_storage":
        sizes.append(int(of[1][0]))
    return 0


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("layer", "dynamic"),
    [
        ("GATv2Conv", True),
        ("TransformerConv", False),
        pytest.param("GATv2Conv", False, marks=pytest.mark.exhaustive),
        pytest.param("TransformerConv", True, marks=pytest.mark.exhaustive),
    ],
)
def test_attention_of_graphs(device: str, layer: str, dynamic: bool) -> None:
    """No tensor of (edges, features) is ever allocated, and the layer's results are right."""
    torch = pytest.importorskip("torch")
    nn = pytest.importorskip("torch_geometric.nn")
    nodes, edges, features = 50, 4000, 16
    more = {"add_self_loops": False} if layer == "GATv2Conv" else {}
    torch.manual_seed(0)
    model = getattr(nn, layer)(features, 8, heads=4, **more).eval()
    inputs = (torch.randn(nodes, features), torch.randint(nodes, (2, edges)))
    sizes = (None, {1: torch.export.Dim("edges", min=2, max=edges)}) if dynamic else None
    mod = from_exported_program(torch.export.export(model, inputs, dynamic_shapes=sizes))
    with tvm_scatter.options(row_sums=True, fuse=True):
        executable = tvm.compile(mod, target_of(device))
    on = device_of(device)
    machine = relax.VirtualMachine(executable, on)
    arguments = [tvm.runtime.tensor(each.numpy(), on) for each in inputs]
    sizes: list[int] = []
    machine.set_instrument(partial(_note_allocation, sizes))
    result = machine["main"](*arguments)
    expected = model(*inputs).detach().numpy()
    np.testing.assert_allclose(result[0].numpy(), expected, rtol=1e-4, atol=1e-5)
    messages = edges * 4 * 8
    assert max(made(mod, device, edges, fuse=True, sum_logits=False)) < messages
    assert 0 < max(sizes) < 4 * messages
