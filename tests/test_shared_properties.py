"""Random programs of scatters by few indices give what NumPy gives, where they share orders."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import tvm
from harness import device_of, orders, target_of
from tally import Tally
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put, scatter_elements

COMBINE = {"add": np.add, "max": np.maximum, "min": np.minimum}
WIDTH = 4


class Program:
    """A random program in Relax and its result by NumPy, one step after the other.

    Rows are whole numbers, so that sums in any order are equal.
    """

    def __init__(self, seed, builder, name, symbolic):
        self.random = Random(seed)
        generator = np.random.default_rng(seed)
        nodes, edges = self.random.choice([(20, 60), (7, 200), (90, 40), (3, 0), (1, 1)])
        low, high = (-nodes, nodes) if self.random.random() < 0.5 else (-nodes - 2, nodes + 2)
        self.arrays = {
            "x": generator.integers(-2, 3, (nodes, WIDTH)).astype("float32"),
            "first": generator.integers(low, high, edges),
            "second": generator.integers(0, nodes, edges),
            "rows": generator.integers(-2, 3, (edges, WIDTH)).astype("float32"),
        }
        self.builder, self.nodes, self.edges = builder, nodes, edges
        sizes = {nodes: nodes, edges: edges}
        if symbolic:
            sizes = {each: tvm.tirx.Var(f"n{each}", "int64") for each in sizes}
        self.size = sizes[nodes]
        self.parameters = {
            key: relax.Var(
                key,
                relax.TensorType([sizes[len(array)], *array.shape[1:]], str(array.dtype)),
            )
            for key, array in self.arrays.items()
        }
        self.known = {key: (self.parameters[key], array) for key, array in self.arrays.items()}
        with builder.function(name, list(self.parameters.values())):
            with builder.dataflow():
                results = [self._scatter(at) for at in range(self.random.randint(2, 4))]
                chosen = [each for each, _ in results]
                output = builder.emit_output(relax.Tuple(chosen))
            builder.emit_func_output(output)
        self.expected = [array for _, array in results]

    def _index(self):
        """An index, by the parameter itself or by an expression that is written again."""
        index, array = self.known[self.random.choice(["first", "first", "second"])]
        # TVM 0.27 cannot compile views and slices of a tensor without elements.
        if self.random.random() < 0.5 and self.edges:
            one = self.builder.emit(relax.op.expand_dims(index, 0))
            index = self.builder.emit(relax.op.squeeze(one, 0))
        return index, array

    def _scatter(self, at):
        random, emit = self.random, self.builder.emit
        index, places = self._index()
        data, into = self.known["x"]
        if random.random() < 0.6:
            data = emit(relax.op.zeros([self.size, WIDTH], "float32"))
            into = np.zeros_like(into)
        updates, rows = self.known["rows"]
        if random.random() < 0.5 and self.edges:
            source, _ = self.known["second"]
            state, values = self.known["state"] if "state" in self.known else self.known["x"]
            updates = emit(relax.op.take(state, source, axis=0))
            rows = values[self.arrays["second"]]
        reduction, include_self = random.choice(list(COMBINE)), random.random() < 0.6
        single = random.random() < 0.3 and self.edges
        if single:
            column = [relax.op.strided_slice(each, [1], [0], [1]) for each in (data, updates)]
            data, updates = (emit(relax.op.squeeze(emit(each), 1)) for each in column)
            into, rows = into[:, 0], rows[:, 0]
            call = scatter_elements(
                data, index, updates, 0, reduction, include_self=include_self, wrap_negative=True
            )
        else:
            call = index_put(data, [index], updates, [0], reduction, include_self=include_self)
        result = emit(call)
        wanted = self._expected(into, places, rows, reduction, include_self)
        if not single:
            self.known["state"] = result, wanted
        return result, wanted

    def _expected(self, into, places, rows, reduction, include_self):
        places = np.where(places < 0, places + self.nodes, places)
        good = (places >= 0) & (places < self.nodes)
        result = into.copy()
        if not include_self:
            start = {"add": 0, "max": -np.inf, "min": np.inf}[reduction]
            result[places[good]] = start
        COMBINE[reduction].at(result, places[good], rows[good])
        return result


def check(device, tally, seeds, **options):
    builder = relax.BlockBuilder()
    programs = {
        f"seed{seed}": Program(seed, builder, f"seed{seed}", symbolic=seed % 3 == 0)
        for seed in seeds
    }
    module = builder.get()
    wanted = {"share_order": True, "fill": True, "deterministic": True, "bounds": "drop", **options}
    with tvm_scatter.options(**wanted):
        notes = tvm_scatter.explain(module, target_of(device)).notes
        machine = relax.VirtualMachine(tvm.compile(module, target_of(device)), device_of(device))
    for name, program in programs.items():
        tensors = [tvm.runtime.tensor(a, device_of(device)) for a in program.arrays.values()]
        for _ in orders(device):
            results = machine[name](*tensors)
            for result, expected in zip(results, program.expected, strict=True):
                np.testing.assert_array_equal(result.numpy(), expected, err_msg=name)
    if device != "llvm":
        for switch in ("share_order", "fill"):
            tally(f"random programs: {switch}", sum(note.switch == switch for note in notes))


@pytest.mark.turns(4)
@pytest.mark.parametrize("fuse", [False, True])
def test_random_programs(device, tally: Tally, fuse):
    check(device, tally, range(4) if fuse else range(4, 8), fuse=fuse)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(100, 400, 10))
def test_many_random_programs(device, tally: Tally, first):
    check(device, tally, range(first, first + 10), fuse=first % 20 == 0)
