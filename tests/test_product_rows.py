"""Products that read the rows that they multiply by index, on GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from cuda_on_cpu import status
from harness import at_its_address, device_of, target_of
from machine_code import cuda
from tvm import relax

import tvm_scatter
from tvm_scatter.passes.analysis import matrix_products

NODES = 9


@pytest.fixture(params=["cuda", pytest.param("gpu", marks=pytest.mark.gpu)])
def kind(request) -> str:
    """The CPU that runs kernels, and a GPU."""
    if request.param == "cuda" and not status():
        pytest.skip(status().reason)
    return request.param


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch):
    for number in ("_BUSY", "_MANY"):
        monkeypatch.setattr(matrix_products, number, 1)


class Messages:
    """A product of rows that are made of nodes' rows, for each edge.

    Parameters
    ----------
    message : callable
        Given the functions of a block builder and the rows of both ends, the rows to multiply.
    inner : int
        The columns of these rows.
    """

    def __init__(self, message, inner, *, width=6, columns=128, edges=37, is_known=True, more=0):
        self.message, self.inner, self.width = message, inner, width
        self.columns, self.edges, self.more = columns, edges, more
        self.builder = builder = relax.BlockBuilder()
        number = edges if is_known else tvm.tirx.Var("edges", "int64")
        x = relax.Var("x", relax.TensorType([NODES, width], "float32"))
        ends = [relax.Var(name, relax.TensorType([number], "int64")) for name in ("to", "from")]
        weight = relax.Var("weight", relax.TensorType([inner, columns], "float32"))
        bias = relax.Var("bias", relax.TensorType([columns], "float32"))
        given = relax.Var("given", relax.TensorType([number, max(more, 1)], "float32"))
        with builder.function("main", [x, *ends, weight, bias, given]):
            with builder.dataflow():
                rows = [builder.emit(relax.op.take(x, end, 0, mode="fast")) for end in ends]
                taken = self._message(relax.op, builder.emit, rows, given)
                product = builder.emit(relax.op.matmul(taken, weight))
                result = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(product, bias))))
                output = builder.emit_output(result)
            builder.emit_func_output(output)
        self.module = builder.get()

    def _message(self, operators: Any, emit: Any, rows: Any, given: Any) -> Any:
        return self.message(operators, emit, *rows, given)

    def arrays(self, seed=0):
        random = np.random.default_rng(seed)
        number = random.standard_normal
        return [
            number((NODES, self.width)).astype("float32"),
            *random.integers(0, NODES, (2, self.edges)),
            number((self.inner, self.columns)).astype("float32"),
            number(self.columns).astype("float32"),
            number((self.edges, max(self.more, 1))).astype("float32"),
        ]

    def run(self, arrays, kind, **options):
        with tvm_scatter.options(**options):
            executable = tvm.compile(self.module, target_of(kind))
        on = device_of(kind)
        machine = relax.VirtualMachine(executable, on)
        return machine["main"](*(tvm.runtime.tensor(each, on) for each in arrays)).numpy()


def difference(operators, emit, to, source, _given):
    return emit(operators.concat([to, emit(operators.subtract(source, to))], 1))


def with_features(operators, emit, to, source, given):
    return emit(operators.concat([to, source, given], 1))


def total(operators, emit, to, source, _given):
    return emit(operators.add(to, emit(operators.nn.relu(source))))


def one_end(_operators, _emit, _to, source, _given):
    return source


#: The message, what numpy makes of both ends and the features, and the sizes.
CASES = {
    "one end": (one_end, lambda to, source, given: source, {"inner": 6}),
    "sum": (total, lambda to, source, given: to + np.maximum(source, 0), {"inner": 6}),
    "difference": (difference, lambda a, b, _: np.hstack([a, b - a]), {"inner": 12}),
    "parts of whole tiles": (
        difference,
        lambda a, b, _: np.hstack([a, b - a]),
        {"inner": 64, "width": 32, "edges": 70},
    ),
    "features": (
        with_features,
        lambda a, b, c: np.hstack([a, b, c]),
        {"inner": 37, "width": 16, "more": 5},
    ),
    "two blocks of columns": (one_end, lambda a, b, _: b, {"inner": 6, "columns": 256}),
    "rows of odd length": (one_end, lambda a, b, _: b, {"inner": 17, "width": 17}),
    "one edge": (difference, lambda a, b, _: np.hstack([a, b - a]), {"inner": 12, "edges": 1}),
    "no edge": (difference, lambda a, b, _: np.hstack([a, b - a]), {"inner": 12, "edges": 0}),
}


def wanted(case, arrays):
    x, to, source, weight, bias, given = arrays
    rows = np.zeros((NODES + 1, x.shape[1]))
    rows[:NODES] = x

    def read(index):
        return rows[np.where((index >= 0) & (index < NODES), index, NODES)]

    return np.maximum(case(read(to), read(source), given) @ weight + bias, 0)


def reads_itself(module, **options):
    with tvm_scatter.options(**options):
        text = str(tvm_scatter.explain(module, target_of("cuda")))
    return "reads its rows itself" in text


def in_turns():
    """Every case with sizes that are known and that are not, of which one is tried by default."""
    return [
        pytest.param(
            *(name, is_known),
            marks=() if at % 2 == is_known else pytest.mark.exhaustive,
            id=f"{name}, sizes {'known' if is_known else 'open'}",
        )
        for at, name in enumerate(CASES)
        for is_known in (True, False)
    ]


@pytest.mark.parametrize(("name", "is_known"), in_turns())
def test_results(kind, name, is_known):
    message, reference, sizes = CASES[name]
    messages = Messages(message, is_known=is_known, **sizes)
    # A product of one row or none is something else to TVM.
    assert reads_itself(messages.module) or (is_known and messages.edges < 2)
    arrays = messages.arrays()
    found = messages.run(arrays, kind)
    np.testing.assert_allclose(found, wanted(reference, arrays), 1e-4, 1e-5)


@pytest.mark.parametrize("is_known", [True, False], ids=["sizes known", "sizes open"])
@pytest.mark.turns(2)
def test_bits_are_those_of_rows_in_memory(kind, is_known):
    messages = Messages(difference, 64, width=32, edges=70, is_known=is_known)
    arrays = messages.arrays(1)
    apart = messages.run(arrays, kind, gather=False)
    assert not reads_itself(messages.module, gather=False)
    np.testing.assert_array_equal(messages.run(arrays, kind), apart)


def test_a_bad_index_reads_zeros(kind):
    messages = Messages(difference, 12)
    arrays = messages.arrays(2)
    arrays[1][:3], arrays[2][2:5] = [NODES, -NODES - 1, 2**40], [-(2**40), NODES + 5, NODES]
    reference = CASES["difference"][1]
    np.testing.assert_allclose(messages.run(arrays, kind), wanted(reference, arrays), 1e-4, 1e-5)


def test_a_bad_index_is_said(kind):
    messages = Messages(difference, 12)
    arrays = messages.arrays(3)
    found = messages.run(arrays, kind, bounds="raise")
    np.testing.assert_allclose(found, wanted(CASES["difference"][1], arrays), 1e-4, 1e-5)
    arrays[2][7] = NODES
    with pytest.raises(Exception, match=f"{NODES}"):
        messages.run(arrays, kind, bounds="raise")


@pytest.mark.parametrize(
    "offset", [1, *(pytest.param(at, marks=pytest.mark.exhaustive) for at in (2, 3))]
)
def test_rows_at_any_address(kind, offset):
    messages = Messages(difference, 64, width=32)
    arrays = messages.arrays(4)
    executable = tvm.compile(messages.module, target_of(kind))
    on = device_of(kind)
    given = [tvm.runtime.tensor(each, on) for each in arrays]
    long = np.concatenate([np.zeros(offset, "float32"), arrays[0].ravel()])
    buffer = tvm.runtime.tensor(long, on)
    view = at_its_address(buffer._create_view(arrays[0].shape, "float32", 4 * offset))
    machine = relax.VirtualMachine(executable, on)
    found = machine["main"](view, *given[1:]).numpy()
    np.testing.assert_allclose(found, wanted(CASES["difference"][1], arrays), 1e-4, 1e-5)


def test_vectors_are_read_where_parts_are_whole_vectors():
    inside = Messages(difference, 24, width=12).module
    assert "float4*)(operand0_ptr" in cuda(inside).replace("x_ptr", "operand0_ptr")


def test_which_are():
    def kept(operators, emit, to, source, given):
        rows = emit(operators.concat([to, source], 1))
        return emit(operators.add(rows, rows))

    assert reads_itself(Messages(kept, 12).module), "what is read twice by the product alone"
    assert not reads_itself(Messages(one_end, 6).module, products=False)
    assert not reads_itself(Messages(one_end, 6, columns=12).module), "a small part of a tile"
    assert not reads_itself(Messages(one_end, 6, columns=384).module), "three blocks of columns"


def test_rows_that_others_read_are_in_memory():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([NODES, 6], "float32"))
    end = relax.Var("end", relax.TensorType([37], "int64"))
    weight = relax.Var("weight", relax.TensorType([6, 128], "float32"))
    with builder.function("main", [x, end, weight]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, end, 0))
            product = builder.emit(relax.op.matmul(rows, weight))
            outputs = builder.emit_output(relax.Tuple([product, builder.emit(relax.op.exp(rows))]))
        builder.emit_func_output(outputs)
    assert not reads_itself(builder.get())
