"""What several layers compute of one graph is computed once, whatever size only the data say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from test_written_between import clear
from tvm import relax
from tvm.relax import op

import tvm_scatter
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.compaction import true_positions
from tvm_scatter.ops.operators import index_put
from tvm_scatter.passes import passes
from tvm_scatter.passes.analysis.bindings import Bindings

NODES, EDGES, WIDTH = 150, 600, 32
TRUE_POSITIONS = "relax.tvm_scatter.true_positions"
SCATTER = "relax.tvm_scatter.index_put"


class Function:
    """A function of features ``x``, ends of edges ``ends`` and ``other``, and a size a ``count``.

    Unless ``nodes`` is given, it is one dataflow block.
    """

    def __init__(self, build, edges=EDGES, dataflow=True):
        self.builder, self._counts = relax.BlockBuilder(), 0
        self.edges = edges
        types = {"x": ([NODES, WIDTH], "float32")}
        types |= {name: ([2, edges], "int64") for name in ("ends", "other")}
        self.vars = {name: relax.Var(name, relax.TensorType(*of)) for name, of in types.items()}
        with self.builder.function("main", list(self.vars.values()), pure=dataflow):
            if dataflow:
                with self.builder.dataflow():
                    output = self.builder.emit_output(relax.Tuple(build(self)))
            else:
                output = self.emit(relax.Tuple(build(self)))
            self.builder.emit_func_output(output)
        self.module = self.builder.get()

    def __getitem__(self, name):
        return self.vars[name]

    def emit(self, value):
        return self.builder.emit(value)

    def row(self, ends, at):
        return self.emit(op.take(ends, relax.const(at, "int64"), axis=0))

    def places(self, mask):
        """The true positions of a mask, of a size of their own."""
        self._counts += 1
        count = tvm.tirx.Var(f"count{self._counts}", "int64")
        found = self.emit(true_positions(mask))
        return self.builder.match_cast(found, relax.TensorType([count], "int64"))

    def without_loops(self, ends):
        """The ends of the edges that are no loops."""
        mask = self.emit(op.not_equal(self.row(ends, 0), self.row(ends, 1)))
        kept = self.places(mask)
        return [self.emit(op.take(self.row(ends, at), kept, axis=0)) for at in range(2)]

    def sums(self, values, index):
        zeros = self.emit(op.zeros([NODES, *values.ty.shape.values[1:]], "float32"))
        return self.emit(index_put(zeros, [index], values, [0], "add"))

    def layer(self, x, ends):
        """Features summed over edges that are no loops, divided by their number at each end."""
        sources, targets = self.without_loops(ends)
        ones = self.emit(op.ones([sources.ty.shape.values[0]], "float32"))
        degree = self.emit(op.add(self.sums(ones, targets), relax.const(1.0, "float32")))
        weight = self.emit(
            op.divide(
                ones, self.emit(op.multiply(self.take(degree, sources), self.take(degree, targets)))
            )
        )
        rows = self.emit(op.multiply(self.take(x, sources), self.emit(op.expand_dims(weight, 1))))
        return self.sums(rows, targets)

    def take(self, values, index):
        return self.emit(op.take(values, index, axis=0))


def layer(x, ends):
    """What :meth:`Function.layer` computes."""
    sources, targets = ends[:, ends[0] != ends[1]]
    degree = 1 + np.bincount(targets, minlength=NODES).astype("float32")
    summed = np.zeros_like(x)
    np.add.at(summed, targets, x[sources] / (degree[sources] * degree[targets])[:, None])
    return summed


def arguments(edges=EDGES, loops=False):
    generator = np.random.default_rng(0)
    x = generator.random((NODES, WIDTH)).astype("float32")
    ends, other = generator.integers(0, NODES, (2, 2, edges))
    if loops:
        ends[0] = ends[1]
    return x, ends, other


def counts(module, device="llvm", **options):
    """How often each operator is called after the passes."""
    with tvm_scatter.options(**options) as current, target_of(device):
        module = tvm.transform.Sequential(passes(current))(module)
    relax.analysis.well_formed(module)
    return Counter(operator_of(each.value) for each in Bindings(module["main"]))


def run(module, device, *arrays, **options):
    with tvm_scatter.options(**options):
        executable = tvm.compile(module, target_of(device))
    on = device_of(device)
    results = relax.VirtualMachine(executable, on)["main"](
        *[tvm.runtime.tensor(each, on) for each in arrays]
    )
    return [each.numpy() for each in results]


def two_layers(f):
    return [f.layer(f.layer(f["x"], f["ends"]), f["ends"])]


@pytest.mark.turns(4)
@pytest.mark.parametrize("loops", [False, True])
def test_layers_share_what_they_compute_of_a_graph(device, loops):
    module = Function(two_layers).module
    found = counts(module, device)
    assert (found[TRUE_POSITIONS], found[SCATTER]) == (1, 3)
    x, ends, other = arguments(loops=loops)
    [result] = run(module, device, x, ends, other)
    np.testing.assert_allclose(result, layer(layer(x, ends), ends), 1e-5, 1e-6)


def test_a_graph_without_edges(device):
    # TVM compiles no slices of a tensor without elements.
    def build(f):
        masks = [f.emit(op.not_equal(f["ends"], f["other"])) for _ in range(2)]
        return [f.sums(f.take(f["x"], f.places(each)), f.places(each)) for each in masks]

    module = Function(build, edges=0).module
    assert counts(module, device)[SCATTER] == 1 or counts(module, device)[TRUE_POSITIONS] == 1
    for result in run(module, device, *arguments(0)):
        np.testing.assert_array_equal(result, np.zeros((NODES, WIDTH), "float32"))


def test_each_index_is_checked_once(device):
    module = Function(two_layers).module
    for fuse in (False, True):
        found = counts(module, device, bounds="raise", fuse=fuse)
        # The sources, the targets, and none of the places, which are known to be in range.
        assert found["relax.tvm_scatter.expect_indices"] == 2
    x, ends, other = arguments()
    ends[1, 7] = NODES
    with pytest.raises(Exception, match=f"index {NODES} at .* of extent {NODES}"):
        run(module, device, x, ends, other, bounds="raise")


def test_the_same_shape_is_the_same_value():
    def build(f):
        rows = [f.row(f["ends"], at) for at in (0, 1)]
        again = f.emit(op.broadcast_to(f.emit(op.reshape(rows[0], [EDGES])), [EDGES]))
        return [f.emit(op.sum(f.emit(op.multiply(*pair)))) for pair in (rows, [again, rows[1]])]

    found = counts(Function(build).module)
    assert found["relax.multiply"] == 1 and found["relax.reshape"] == 0


def test_the_switch():
    module = Function(two_layers).module
    found = counts(module, share_values=False)
    assert (found[TRUE_POSITIONS], found[SCATTER]) == (2, 4)


def test_other_masks_have_sizes_of_their_own(device):
    module = Function(lambda f: [f.layer(f.layer(f["x"], f["ends"]), f["other"])]).module
    found = counts(module, device)
    assert (found[TRUE_POSITIONS], found[SCATTER]) == (2, 4)
    x, ends, other = arguments()
    [result] = run(module, device, x, ends, other)
    np.testing.assert_allclose(result, layer(layer(x, ends), other), 1e-5, 1e-6)


def mask_is_cleared_between(f):
    """Somebody writes to the ends between two equal masks of them."""
    ends = f.emit(op.add(f["ends"], f["other"]))
    before = f.without_loops(ends)
    clear(f, ends)
    return [*before, *f.without_loops(ends)]


def mask_itself_is_cleared(f):
    """Of two equal masks, one is written to before both are read again."""
    masks = [f.emit(op.not_equal(f["ends"], f["other"])) for _ in range(2)]
    clear(f, masks[0])
    return [f.places(each) for each in masks]


def input_is_scattered_into(f):
    """A mask is computed again of what a scatter has overwritten."""
    ends = f.emit(op.add(f["ends"], f["other"]))
    zero = f.emit(op.zeros([2, 3], "int64"))
    before = f.without_loops(ends)
    index = relax.const(np.arange(3), "int64")
    f.emit(index_put(ends, [index], zero, [1], in_place=True))
    return [*before, *f.without_loops(ends)]


@pytest.mark.parametrize(
    "build", [mask_is_cleared_between, mask_itself_is_cleared, input_is_scattered_into]
)
def test_what_is_written_between_is_computed_again(build):
    module = Function(build, dataflow=False).module
    assert counts(module)[TRUE_POSITIONS] == 2
    assert counts(Function(two_layers, dataflow=False).module)[TRUE_POSITIONS] == 1
    x, ends, other = arguments()
    together = run(module, "llvm", x, ends, other)
    apart = run(module, "llvm", x, ends, other, share_values=False)
    for left, right in zip(together, apart, strict=True):
        np.testing.assert_array_equal(left, right)


def test_rows_for_each_edge_are_not_kept():
    """A scatter computes them itself; so does each of two layers that read the same rows."""

    def build(f):
        layers = [f.layer(f["x"], f["ends"]) for _ in range(2)]
        doubled = f.emit(op.add(f.take(f["x"], f.row(f["ends"], 0)), relax.const(1.0, "float32")))
        return [f.emit(op.subtract(layers[0], f.sums(doubled, f.row(f["other"], 0))))]

    module = Function(build).module
    with tvm_scatter.options(fuse=True), target_of("cuda"):
        notes = list(map(str, tvm_scatter.explain(module).notes))
    assert sum("computes its updates itself" in each for each in notes) == 2


def test_a_row_for_each_edge_is_computed_for_each_reader():
    def build(f):
        rows = [f.take(f["x"], f.row(f["ends"], 0)) for _ in range(2)]
        return [f.sums(rows[0], f.row(f["ends"], 1)), f.emit(op.mean(rows[1], 0))]

    module = Function(build).module
    with tvm_scatter.options(fuse=True), target_of("cuda"):
        notes = list(map(str, tvm_scatter.explain(module).notes))
    assert any("computes its updates itself: take" in each for each in notes)


def test_zeros_that_scatters_overwrite_are_not_shared():
    def build(f):
        return [f.sums(f["x"], f.row(f[ends], 0)) for ends in ("ends", "other")]

    module = Function(build, edges=NODES).module
    with tvm_scatter.options(batch=False), target_of("cuda"):
        notes = list(map(str, tvm_scatter.explain(module).notes))
    assert sum("overwrites" in each for each in notes) == 2


@pytest.mark.each_device
def test_what_is_returned_twice_is_in_memory_twice(device):
    def build(f):
        return [f.emit(op.add(f.row(f["ends"], 0), relax.const(1, "int64"))) for _ in range(2)]

    module = Function(build).module
    assert counts(module, device)["relax.add"] == 2
    x, ends, other = arguments()
    for result in run(module, device, x, ends, other):
        np.testing.assert_array_equal(result, ends[0] + 1)


def test_what_does_something_is_done_each_time():
    def build(f):
        rooms = [
            f.emit(op.builtin.alloc_tensor(relax.ShapeExpr([NODES]), "int64", 0)) for _ in range(2)
        ]
        drawn = [
            f.emit(relax.call_dps_packed("draw", [f["x"]], relax.TensorType([NODES], "int64")))
            for _ in range(2)
        ]
        return [f.emit(op.add(left, right)) for left, right in (rooms, drawn)]

    found = counts(Function(build).module)
    assert found["relax.builtin.alloc_tensor"] == found["relax.call_dps_packed"] == 2


def test_constants_are_compared_by_value():
    def build(f):
        shifted = [
            f.emit(op.add(f.row(f["ends"], 0), relax.const(by, "int64"))) for by in (1, 1, 2)
        ]
        return [f.emit(op.sum(f.emit(op.multiply(*shifted[at : at + 2])))) for at in range(2)]

    module = Function(build).module
    assert counts(module)["relax.add"] == 2


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.turns(2)
def test_cuda_graphs(captures):
    module = Function(two_layers).module
    x, ends, other = arguments()
    [result] = run(module, "cuda", x, ends, other, cuda_graph=captures)
    np.testing.assert_allclose(result, layer(layer(x, ends), ends), 1e-5, 1e-6)


def test_what_explain_says():
    with target_of("cuda"):
        notes = tvm_scatter.explain(Function(two_layers).module).notes
    said = [str(each) for each in notes if each.switch == "share_values"]
    assert said
    assert all("computed once" in each for each in said)
