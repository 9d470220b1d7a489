"""Cells of LSTMs and GRUs that were exported on a GPU, where PyTorch has fused operators of them.

Their tensors are said to be on a GPU, without data, so that no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALF = 0.5


@contextmanager
def known_shapes() -> Iterator[None]:
    """Without a GPU, PyTorch cannot tell the shapes of the results of a GRU's cell."""
    with torch.library._scoped_library("aten", "FRAGMENT") as library:

        def shapes(gates: Any, _: Any, hidden: Any, *__: Any) -> tuple[Any, Any]:
            return torch.empty_like(hidden), hidden.new_empty(hidden.shape[0], hidden.shape[1] * 5)

        torch.library.register_fake(
            "aten::_thnn_fused_gru_cell", shapes, lib=library, allow_override=True
        )
        yield


def imported_from_gpu(
    function: Callable[..., Any], inputs: Sequence[Any], dynamic: Any = None
) -> Any:
    """What a function is imported as that was exported on a GPU."""
    with known_shapes(), FakeTensorMode(allow_non_fake_inputs=True):
        there = [torch.empty(each.shape, dtype=each.dtype, device="cuda") for each in inputs]
        program = export(function, there, dynamic)
    return from_exported_program(program)


def moved_to_gpu(program: Any) -> Any:
    """A program that says its tensors are on a GPU."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        for node in program.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                node.meta["val"] = torch.empty(value.shape, dtype=value.dtype, device="cuda")
    return program


def weights_of(cell: Any) -> list[Any]:
    """The weights and the biases of a cell."""
    return [each.detach() for each in cell.parameters()]


def lstm(x: Any, hidden: Any, cell: Any, *weights: Any) -> Any:
    """What ``nn.LSTMCell`` calls."""
    return torch.lstm_cell(x, (hidden, cell), *weights)


def lstm_of_gates(of_input: Any, of_hidden: Any, cell: Any, *biases: Any) -> Any:
    """The operator on GPUs, all results. PyTorch does not know its shapes without biases."""
    return torch.ops.aten._thnn_fused_lstm_cell(of_input, of_hidden, cell, *biases)


def gru_of_gates(of_input: Any, of_hidden: Any, hidden: Any, *biases: Any) -> Any:
    """The operator on GPUs, all results."""
    return torch.ops.aten._thnn_fused_gru_cell(of_input, of_hidden, hidden, *biases)


def compare(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    expected: Sequence[Any],
    dynamic: Any = None,
) -> None:
    """Compare what was exported on a GPU with what PyTorch says."""
    results = run(compile_for(imported_from_gpu(function, inputs, dynamic)), inputs)
    for actual, wanted in zip(results, expected, strict=True):
        assert_same(actual, wanted)


def test_lstm_cell() -> None:
    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(4, 5)
    inputs = [torch.randn(3, 4), torch.randn(3, 5), torch.randn(3, 5), *weights_of(cell)]
    compare(lstm, inputs, lstm(*inputs))


@pytest.mark.parametrize("bias", [True, False])
def test_gru_cell(bias: bool) -> None:
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(4, 5, bias=bias)
    inputs = [torch.randn(3, 4), torch.randn(3, 5), *weights_of(cell)]
    compare(torch.gru_cell, inputs, [torch.gru_cell(*inputs)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_cells_of_which_no_shapes_are_known(kind: str, bias: bool) -> None:
    """PyTorch decomposes them into operators whose shapes it does not always know."""
    torch.manual_seed(0)
    weights = weights_of(getattr(torch.nn, kind)(4, 5, bias=bias))
    function, states = (lstm, 2) if kind == "LSTMCell" else (torch.gru_cell, 1)
    inputs = [torch.randn(3, 4), *(torch.randn(3, 5) for _ in range(states)), *weights]
    program = moved_to_gpu(export(function, inputs))
    results = run(compile_for(from_exported_program(program)), inputs)
    wanted = function(*inputs)
    for actual, each in zip(results, wanted if states == 2 else [wanted], strict=True):
        assert_same(actual, each)


def test_any_batch() -> None:
    torch.manual_seed(0)
    batch = {0: Dim("batch", min=1, max=64)}
    long, short = weights_of(torch.nn.LSTMCell(4, 5)), weights_of(torch.nn.GRUCell(4, 5))

    def both(x: Any, hidden: Any, cell: Any, *weights: Any) -> Any:
        return (*lstm(x, hidden, cell, *weights[:4]), torch.gru_cell(x, hidden, *weights[4:]))

    weights = [*long, *short]
    first = [torch.randn(3, 4), torch.randn(3, 5), torch.randn(3, 5), *weights]
    module = imported_from_gpu(both, first, (batch,) * 3 + (None,) * 8)
    machine = compile_for(module)
    for rows in (1, 3, 17):
        inputs = [torch.randn(rows, 4), torch.randn(rows, 5), torch.randn(rows, 5), *weights]
        for actual, wanted in zip(run(machine, inputs), both(*inputs), strict=True):
            assert_same(actual, wanted)


def _gates(rows: int, columns: int, several: int, dtype: Any) -> list[Any]:
    shapes = [(rows, columns * several)] * 2 + [(rows, columns)] + [(columns * several,)] * 2
    return [torch.randn(shape).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", TYPES)
def test_lstm_gates_by_hand(dtype: Any) -> None:
    """16-bit floats are computed in float32, of which each result is rounded once."""
    torch.manual_seed(1)
    inputs = _gates(3, 5, 4, dtype)
    wide = torch.promote_types(dtype, torch.float32)
    x, h, c, bx, bh = (each.to(wide) for each in inputs)
    i, f, g, o = (x + h + bx + bh).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * c + i * g
    expected = o * after.tanh(), after, torch.cat([i, f, g, o], 1)
    _compare_closely(lstm_of_gates, inputs, [each.to(dtype) for each in expected])


@pytest.mark.parametrize("dtype", TYPES)
def test_gru_gates_by_hand(dtype: Any) -> None:
    torch.manual_seed(1)
    inputs = _gates(3, 5, 3, dtype)
    wide = torch.promote_types(dtype, torch.float32)
    x, h, before, bx, bh = (each.to(wide) for each in inputs)
    (ir, iu, ic), (hr, hu, hc) = (x + bx).chunk(3, 1), (h + bh).chunk(3, 1)
    reset, update = (ir + hr).sigmoid(), (iu + hu).sigmoid()
    candidate = (ic + reset * hc).tanh()
    after = (1 - update) * candidate + update * before
    expected = after, torch.cat([reset, update, candidate, before, hc], 1)
    _compare_closely(gru_of_gates, inputs, [each.to(dtype) for each in expected])


def _compare_closely(function: Any, inputs: Sequence[Any], expected: Sequence[Any]) -> None:
    """To within one unit of the last place of 16 bits, which rounding each step would exceed."""
    results = run(compile_for(imported_from_gpu(function, inputs)), inputs)
    for actual, wanted in zip(results, expected, strict=True):
        assert actual.dtype == wanted.dtype
        of_type = torch.finfo(wanted.dtype).eps
        torch.testing.assert_close(actual, wanted, rtol=max(of_type, 1e-15) * 16, atol=of_type)


def test_gates_of_zero() -> None:
    """Then half of a cell is kept, nothing enters, and half of it leaves."""
    inputs = [torch.zeros(1, 8), torch.zeros(1, 8), torch.tensor([[2.0, -4.0]])]
    inputs += [torch.zeros(8)] * 2
    cell = torch.tensor([[1.0, -2.0]])
    workspace = torch.tensor([[HALF, HALF, HALF, HALF, 0.0, 0.0, HALF, HALF]])
    compare(lstm_of_gates, inputs, [HALF * cell.tanh(), cell, workspace])


def test_gates_of_zero_of_a_gru() -> None:
    inputs = [torch.zeros(1, 6), torch.zeros(1, 6), torch.tensor([[2.0, -4.0]])]
    workspace = torch.tensor([[HALF, HALF, HALF, HALF, 0.0, 0.0, 2.0, -4.0, 0.0, 0.0]])
    compare(gru_of_gates, inputs, [torch.tensor([[1.0, -2.0]]), workspace])


def test_messages_into_a_cell() -> None:
    """A step of ``GatedGraphConv``, twice."""
    torch.manual_seed(0)
    x, source, target = torch.randn(6, 5), *torch.randint(0, 6, (2, 20))
    weights = weights_of(torch.nn.GRUCell(5, 5))

    def model(x: Any, source: Any, target: Any, *weights: Any) -> Any:
        for _ in range(2):
            messages = torch.zeros_like(x).index_add(0, target, x.index_select(0, source))
            x = torch.gru_cell(messages, x, *weights)
        return x

    inputs = [x, source, target, *weights]
    compare(model, inputs, [model(*inputs)])


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_cells_in_a_branch(kind: str) -> None:
    """PyTorch makes the fused operators there while it decomposes the program."""
    torch.manual_seed(0)
    function, states = (lstm, 2) if kind == "LSTMCell" else (torch.gru_cell, 1)
    weights = weights_of(getattr(torch.nn, kind)(4, 5))

    def updated(x: Any, *others: Any) -> Any:
        result = function(x, *others)
        return result[0] if states == 2 else result

    def model(chosen: Any, *inputs: Any) -> Any:
        return torch.cond(chosen, updated, lambda x, hidden, *_: hidden * 2, inputs)

    inputs = [torch.randn(3, 4), *(torch.randn(3, 5) for _ in range(states)), *weights]
    program = moved_to_gpu(export(model, [torch.tensor(True), *inputs]))
    with known_shapes():
        machine = compile_for(from_exported_program(program))
    for chosen in (torch.tensor(True), torch.tensor(False)):
        [actual] = run(machine, [chosen, *inputs])
        assert_same(actual, updated(*inputs) if chosen else inputs[1] * 2)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_on_a_gpu(kind: str) -> None:
    """PyTorch with CUDA exports there, and is compared there."""
    if not torch.cuda.is_available():
        pytest.skip("PyTorch is one without CUDA")
    torch.manual_seed(0)
    cell = getattr(torch.nn, kind)(4, 5).cuda()
    function = lstm if kind == "LSTMCell" else torch.gru_cell
    states = 2 if kind == "LSTMCell" else 1
    inputs = [torch.randn(3, 4), *(torch.randn(3, 5) for _ in range(states))]
    there = [*(each.cuda() for each in inputs), *weights_of(cell)]
    wanted = function(*there)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    module = from_exported_program(export(function, there))
    here = [each.cpu() for each in there]
    for actual, each in zip(run(compile_for(module, "cuda"), here, "cuda"), wanted, strict=True):
        assert_same(actual, each.cpu())
