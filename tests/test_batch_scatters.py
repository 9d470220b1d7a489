"""Scatters of one shape that do not depend on each other are computed at once, and as before."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tvm
from harness import device_of, orders, signature_of, target_of
from test_pass_properties import fusing_pipeline
from tvm import relax

import tvm_scatter
from tvm_scatter.lowering.emission import build_prim_func, workspace_size
from tvm_scatter.ops import operators as ops
from tvm_scatter.options import Options
from tvm_scatter.passes import HorizontalFusion, ReuseBuffers
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.strategy import strategy_for

_ROWS, _COLUMNS, _COUNT = 32, 8, 5
_LLVM = tvm.target.Target("llvm")
_CUDA = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})


class Program:
    """A function under construction: Relax and NumPy side by side."""

    def __init__(self, heads, donate=()):
        generator = np.random.default_rng(0)
        self.arrays = {}
        for head in range(heads):
            self.arrays[f"x{head}"] = generator.integers(-9, 9, (_ROWS, _COLUMNS)).astype("float32")
            self.arrays[f"i{head}"] = generator.permutation(_ROWS)[:_COUNT].astype("int64")
            updates = generator.integers(-9, 9, (_COUNT, _COLUMNS)).astype("float32")
            self.arrays[f"u{head}"] = updates
        self.parameters = {
            name: relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
            for name, array in self.arrays.items()
        }
        self.builder, self.donate = relax.BlockBuilder(), donate
        self.results = []

    def take(self, name):
        return self.parameters[name], self.arrays[name]

    def put(self, data, index, updates, reduction="update"):
        """A scatter of pairs of Relax's and NumPy's values."""
        call = ops.index_put(data[0], [index[0]], updates[0], [0], reduction)
        out = data[1].copy()
        if reduction == "update":
            out[index[1]] = updates[1]
        else:
            np.add.at(out, index[1], updates[1])
        return self.builder.emit(call), out

    def assign(self, data, rows):
        """The first rows of data are written over."""
        count = len(rows[1])
        call = ops.copy_ranges(data[0], [rows[0]], [(0, 0, 0, count)], axis=0)
        return self.builder.emit(call), np.concatenate([rows[1], data[1][count:]])

    def head(self, number, **named):
        return self.put(*(self.take(f"{kind}{number}") for kind in "xiu"), **named)

    def add(self, left, right, returned=False):
        emit = self.builder.emit_output if returned else self.builder.emit
        return emit(relax.op.add(left[0], right[0])), left[1] + right[1]

    def first_rows(self, tensor):
        rows = self.builder.emit(relax.op.strided_slice(tensor[0], [0], [0], [_COUNT]))
        return rows, tensor[1][:_COUNT]

    def module(self, build):
        with self.builder.function("main", list(self.parameters.values())):
            with self.builder.dataflow():
                self.results = build(self)
                outputs = [
                    self.builder.emit_output(each) if isinstance(each, relax.DataflowVar) else each
                    for each, _ in self.results
                ]
            self.builder.emit_func_output(relax.Tuple(outputs))
        return self.builder.get()

    def check(self, module, device, make=None, **switches):
        switches = {"batch": True, "bounds": "drop", "donate": self.donate, **switches}
        make = make or partial(tvm_scatter.pipeline, target_of(device))
        pipeline = make(**switches)
        executable = tvm.compile(module, target_of(device), relax_pipeline=pipeline)
        machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
        for _ in orders(device):
            arguments = {name: tvm.runtime.tensor(array, on) for name, array in self.arrays.items()}
            results = machine["main"](*arguments.values())
            for at, (result, (_, right)) in enumerate(zip(results, self.results, strict=True)):
                np.testing.assert_array_equal(result.numpy(), right, err_msg=f"result {at}")
            for name, array in self.arrays.items():
                if name not in self.donate:
                    np.testing.assert_array_equal(arguments[name].numpy(), array, err_msg=name)


def heads(program):
    """Four scatters, each read before the next is made."""
    found = []
    for head in range(4):
        result = program.head(head, reduction="add")
        found.append(program.add(result, program.take(f"x{head}")))
    return found


def batches(module, target=_LLVM, donate=(), always=True, **options):
    """How many scatters each batch of a module holds."""
    with target, tvm_scatter.options(bounds="drop", **options):
        module = tvm.transform.Sequential([ReuseBuffers(donate), HorizontalFusion(always)])(module)
    found = []

    def visit(expression):
        if getattr(getattr(expression, "op", None), "name", "") == "relax.tvm_scatter.batch":
            found.append(int(expression.attrs["scatters"]))

    relax.analysis.post_order_visit(module["main"], visit)
    return found


def test_heads(device) -> None:
    program = Program(4)
    module = program.module(heads)
    assert batches(module) == [4]
    program.check(module, device)


def overwritten_after_it_is_read(program):
    """The second overwrites what the first reads as its updates."""
    order = np.arange(_ROWS)[::-1].copy()
    rows = (relax.const(order, "int64"), order)
    first = program.put(program.take("x0"), rows, program.take("x1"))
    return [first, program.put(program.take("x1"), rows, program.take("x2"))]


def overwritten_after_a_copy_is_made(program):
    """The second overwrites what the updates of the first are computed from."""
    rows = program.first_rows(program.take("x1"))
    first = program.put(program.take("x0"), program.take("i0"), rows)
    return [first, program.head(1), program.add(first, first)]


def read_after_the_other_is_written(program):
    """What is computed from the second one's data is needed only with the first one's result."""
    first = program.head(0)
    doubled = program.add(program.take("x1"), program.take("x1"))
    both = program.add(doubled, first, returned=True)
    return [both, program.head(1)]


def read_between_the_two(program):
    """What reads the second one's data needs the first one's result, so it lies between them."""
    both = program.add(program.take("x1"), program.head(0), returned=True)
    return [both, program.head(1)]


@pytest.mark.parametrize(
    ("build", "in_place"),
    [
        (read_between_the_two, []),
        (overwritten_after_it_is_read, []),
        (overwritten_after_a_copy_is_made, [2]),
        (read_after_the_other_is_written, [2]),
    ],
)
def test_in_place(build, in_place) -> None:
    donate = ("x0", "x1")
    program = Program(3, donate)
    module = program.module(build)
    assert batches(module) == [2]
    assert batches(module, donate=donate) == in_place
    program.check(module, "llvm")


def assigned_between_the_two(program):
    """What is computed with the first one's result comes behind the assignment with both.

    The assignment waits for other reads of its data in any case.
    """
    doubled = program.add(program.take("x1"), program.take("x1"))
    both = program.add(program.take("x1"), program.take("x3"))
    first = program.add(doubled, program.head(0), returned=True)
    assigned = program.assign(program.take("x1"), program.take("u1"))
    second = program.put(program.take("x2"), program.take("i2"), program.first_rows(assigned))
    return [first, assigned, program.add(both, second)]


@pytest.mark.parametrize("build", [read_after_the_other_is_written, assigned_between_the_two])
def test_fusion_leaves_reads_in_front(build) -> None:
    """TVM fuses what reads data with what needs the result, behind the scatter, unless told."""
    program = Program(4, donate=("x0", "x1", "x2"))
    module = program.module(build)
    assert batches(module, donate=program.donate) == [2]
    program.check(module, "llvm", make=fusing_pipeline)


def test_caches_of_one_layer(device) -> None:
    """Keys and values, both donated, are overwritten by one call."""
    donate = ("x0", "x1")
    program = Program(2, donate)
    module = program.module(lambda each: [each.head(0), each.head(1)])
    assert batches(module, donate=donate) == [2]
    program.check(module, device)


def test_dependent_scatters_stay_apart() -> None:
    def build(program):
        first = program.head(0)
        second = program.put(first, program.take("i1"), program.take("u1"))
        third = program.put(
            program.take("x1"), program.take("i1"), program.first_rows(program.add(second, first))
        )
        return [first, second, third, program.head(2)]

    program = Program(3)
    module = program.module(build)
    # Only the first and the last: every other one waits for one before it.
    assert batches(module) == [2]
    program.check(module, "llvm", bulk=False)


def test_two_kinds_that_cross() -> None:
    """Each of two batches would wait for a part of the other."""

    def build(program):
        first = program.head(0)
        added = program.put(first, program.take("i0"), program.take("u0"), "add")
        other = program.put(program.take("x1"), program.take("i1"), program.take("u1"), "add")
        return [added, program.put(other, program.take("i1"), program.take("u1"))]

    program = Program(2)
    module = program.module(build)
    assert batches(module) == []
    program.check(module, "llvm")


@pytest.mark.parametrize("changed", ["reduction", "shape", "dtype"])
def test_what_differs_stays_apart(changed) -> None:
    def build(program):
        data, index, updates = (program.take(f"{kind}1") for kind in "xiu")
        if changed == "shape":
            data = program.first_rows(data)
        if changed == "dtype":
            index = (program.builder.emit(relax.op.astype(index[0], "int32")), index[1])
        reduction = "add" if changed == "reduction" else "update"
        out = program.builder.emit(ops.index_put(data[0], [index[0]], updates[0], [0], reduction))
        return [program.head(0), (out, None)]

    assert batches(Program(2).module(build)) == []


def test_only_small_ones_on_a_gpu_by_default() -> None:
    module = Program(4).module(heads)
    assert batches(module, _CUDA, always=False) == [4]
    assert batches(module, _LLVM, always=False) == []
    builder = relax.BlockBuilder()
    parameters = [
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape, dtype in (
            ("x", (1 << 20, 4), "float32"),
            ("i", (5,), "int64"),
            ("u", (5, 4), "float32"),
        )
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            x, i, u = parameters
            pair = [builder.emit(ops.index_put(x, [i], u, [0], each)) for each in ("add", "add")]
            output = builder.emit_output(relax.Tuple(pair))
        builder.emit_func_output(output)
    assert batches(builder.get(), _CUDA, always=False) == []
    assert batches(builder.get(), _CUDA) == [2]


def test_explain_says_so() -> None:
    module = Program(4).module(heads)
    with tvm_scatter.options(bounds="drop"):
        text = str(tvm_scatter.explain(module, _CUDA))
    assert "batch: main.lv6_together is 4 x index_put at once" in text
    assert "main.lv6_together = 4 x index_put [cuda]" in text
    with tvm_scatter.options(batch=False):
        assert "together" not in str(tvm_scatter.explain(module, _CUDA))


def test_equal_zeros_are_made_once() -> None:
    """On 300 rows: up to 1024 elements TVM makes zeros a constant."""

    def build(program):
        found = []
        for head in range(3):
            zeros = program.builder.emit(relax.op.zeros((300, _COLUMNS), "float32"))
            index, updates = (program.take(f"{kind}{head}") for kind in "iu")
            data = (zeros, np.zeros((300, _COLUMNS), "float32"))
            found.append(program.put(data, index, updates))
        return found

    program = Program(3)
    module = program.module(build)
    with _LLVM, tvm_scatter.options(bounds="drop"):
        passes = [ReuseBuffers(), HorizontalFusion(always=True)]
        text = str(tvm.transform.Sequential(passes)(module)["main"])
    assert text.count("R.zeros(") == 1
    assert "in_place=True" not in text
    program.check(module, "llvm")


@pytest.mark.each_device
def test_every_implementation_serves_several(device) -> None:
    """Three scatters by one function, with tensors and workspace of their own."""
    fields = {"data_dtype": "float32", "index_dtype": "int64"}
    problems = {
        "elements": ScatterProblem(
            SymbolicSize(), (SymbolicSize(50),), SymbolicSize(), SymbolicSize(60), **fields
        ),
        "rows": ScatterProblem(
            SymbolicSize(2), (SymbolicSize(9),), SymbolicSize(4), SymbolicSize(70), **fields
        ),
    }
    strategy, target, on = strategy_for(device), target_of(device), device_of(device)
    functions, cases = {}, {}
    posed = {
        f"{shape}_{reduction}": replace(plain, reduction=reduction)
        for shape, plain in problems.items()
        for reduction in ("update", "mean")
    }
    takes = {key: strategy.applicable(problem, target) for key, problem in posed.items()}
    for name in strategy.implementations:
        taken = [key for key in posed if name in takes[key]]
        # Of four these are both shapes and both reductions.
        for which in dict.fromkeys([*taken[:1], *taken[-1:]]):
            problem = posed[which]
            selection = strategy.select(problem, target, Options(name))
            key = f"{which}_{name}"
            function = build_prim_func(
                problem, signature_of(problem), selection, target, scatters=3
            )
            functions[key] = function.with_attr("global_symbol", key)
            cases[key] = (problem, workspace_size(problem, selection, {}, target))
    module = tvm.compile(tvm.IRModule(functions), target)
    generator = np.random.default_rng(0)
    for key, (problem, workspace) in cases.items():
        shapes = signature_of(problem)
        operands, expected = [], []
        for _ in range(3):
            data = generator.integers(-9, 9, shapes.data).astype("float32")
            # Distinct places, so that each plain update is defined; the rest is out of bounds.
            index = generator.permutation(problem.count.constant)
            updates = generator.integers(-9, 9, shapes.updates).astype("float32")
            operands += [data, index, updates]
            expected.append(scatter_reference(problem, data, [index], updates))
        arguments = [tvm.runtime.tensor(each, on) for each in operands]
        outs = [tvm.runtime.tensor(np.zeros_like(each), on) for each in operands[::3]]
        scratch = [
            tvm.runtime.tensor(np.full(workspace, 171, "uint8"), on)
            for _ in range(3 if workspace is not None else 0)
        ]
        module[key](*arguments, *outs, *scratch)
        for out, right in zip(outs, expected, strict=True):
            np.testing.assert_allclose(
                out.numpy().reshape(-1), np.asarray(right).reshape(-1), rtol=1e-6, err_msg=key
            )
