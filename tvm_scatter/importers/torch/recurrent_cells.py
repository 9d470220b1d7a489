"""Recurrent cells of CUDA, in PyTorch's own operators: what follows the products with weights."""

from __future__ import annotations

from typing import Any


def lstm_cell(
    input_gates: Any,
    hidden_gates: Any,
    cell: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
) -> tuple[Any, Any, Any]:
    """``_thnn_fused_lstm_cell``: the new hidden state, the new cell state, and the gates."""
    import torch

    dtype = input_gates.dtype
    gates = _widened(input_gates, input_bias) + _widened(hidden_gates, hidden_bias)
    entry, forget, candidate, exit_ = gates.chunk(4, 1)
    entry, forget, exit_ = (torch.sigmoid(gate) for gate in (entry, forget, exit_))
    candidate = torch.tanh(candidate)
    # The hidden state is computed from the cell state before that is rounded.
    updated = forget * _widened(cell) + entry * candidate
    hidden = exit_ * torch.tanh(updated)
    workspace = torch.cat([entry, forget, candidate, exit_], 1)
    return hidden.to(dtype), updated.to(dtype), workspace.to(dtype)


def gru_cell(
    input_gates: Any,
    hidden_gates: Any,
    hidden: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
) -> tuple[Any, Any]:
    """``_thnn_fused_gru_cell``: the new hidden state, and what a gradient reads."""
    import torch

    dtype = input_gates.dtype
    of_input = _widened(input_gates, input_bias).chunk(3, 1)
    of_hidden = _widened(hidden_gates, hidden_bias).chunk(3, 1)
    reset = torch.sigmoid(of_input[0] + of_hidden[0])
    update = torch.sigmoid(of_input[1] + of_hidden[1])
    candidate = torch.tanh(of_input[2] + reset * of_hidden[2])
    before = _widened(hidden)
    after = candidate + update * (before - candidate)
    workspace = torch.cat([reset, update, candidate, before, of_hidden[2]], 1)
    return after.to(dtype), workspace.to(dtype)


def lstm_cell_with_weights(
    data: Any,
    states: list[Any],
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
) -> tuple[Any, Any]:
    """``lstm_cell`` as a GPU computes it."""
    from torch.nn.functional import linear

    hidden, cell = states
    gates = linear(data, input_weight), linear(hidden, hidden_weight)
    return lstm_cell(*gates, cell, input_bias, hidden_bias)[:2]


def gru_cell_with_weights(
    data: Any,
    hidden: Any,
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
) -> Any:
    """``gru_cell`` as a GPU computes it."""
    from torch.nn.functional import linear

    gates = linear(data, input_weight), linear(hidden, hidden_weight)
    return gru_cell(*gates, hidden, input_bias, hidden_bias)[0]


def _widened(values: Any, bias: Any = None) -> Any:
    """The values, plus a bias if there is one. Halves are computed in single precision."""
    import torch

    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    values = values.to(wide)
    return values if bias is None else values + bias.to(wide)
