"""The peers: every form of a workload in every other library that is installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from tvm_scatter.problem.reductions import Rounding
from tvm_scatter.tuning.space.workloads import Workload

Call = Callable[[], Any]
#: What PyTorch, CuPy and JAX call the reductions.
TORCH_REDUCE = {"add": "sum", "max": "amax", "min": "amin", "mul": "prod"}
_CUPY_UFUNCS = {"add": "add", "max": "maximum", "min": "minimum"}
_JAX_METHODS = {"update": "set", "add": "add", "max": "max", "min": "min", "mul": "multiply"}


def torch_forms(workload: Workload, data: Any, index: Any, updates: Any) -> dict[str, Call]:
    """PyTorch's functional forms of a workload.

    Parameters
    ----------
    data, index, updates : torch.Tensor
        Of shapes (batch, extent, slice), ``workload.index_shape`` and (batch, count, slice).
    """
    import torch

    if index.ndim > 1:
        flat, source = _like(index, data), _like(index, updates)
        named: dict[str, dict[str, Call]] = {
            "update": {"torch scatter": lambda: torch.scatter(flat, 1, index, source)},
            "add": {"torch scatter_add": lambda: torch.scatter_add(flat, 1, index, source)},
        }
        if workload.reduction in named:
            return named[workload.reduction]
        reduce = TORCH_REDUCE[workload.reduction]
        return {
            "torch scatter_reduce": lambda: torch.scatter_reduce(flat, 1, index, source, reduce)
        }
    rows, source, axis = _rows(workload, data, updates)
    expanded = index[:, None].expand_as(source)
    put = partial(torch.ops.aten.index_put, rows, [*[None] * axis, index], source)
    named = {
        "update": {
            "torch index_copy": lambda: torch.index_copy(rows, axis, index, source),
            "torch index_put": put,
            "torch scatter": lambda: torch.scatter(rows, axis, expanded, source),
        },
        "add": {
            "torch index_add": lambda: torch.index_add(rows, axis, index, source),
            "torch scatter_add": lambda: torch.scatter_add(rows, axis, expanded, source),
            "torch scatter_reduce": lambda: torch.scatter_reduce(
                rows, axis, expanded, source, "sum"
            ),
            "torch index_put": partial(put, accumulate=True),
        },
    }
    if workload.reduction in named:
        return named[workload.reduction]
    reduce = TORCH_REDUCE[workload.reduction]
    return {
        "torch scatter_reduce": lambda: torch.scatter_reduce(rows, axis, expanded, source, reduce),
        "torch index_reduce": lambda: torch.index_reduce(rows, axis, index, source, reduce),
    }


def _rows(workload: Workload, data: Any, updates: Any) -> tuple[Any, Any, int]:
    """Data and updates, and the axis of an index that all lines share."""
    return (data[0], updates[0], 0) if workload.batch == 1 else (data, updates, 1)


def torch_forms_into(workload: Workload, data: Any, index: Any, updates: Any) -> dict[str, Call]:
    """PyTorch's forms that write to memory which is there already, as our kernels do.

    On a CPU a functional form takes fresh memory from the operating system for every large result,
    and spends more on that than on the scatter.
    """
    import torch

    by_line = index.ndim > 1
    if by_line:
        rows, source, axis = _like(index, data), _like(index, updates), 1
    else:
        rows, source, axis = _rows(workload, data, updates)
    expanded = index if by_line else index[:, None].expand_as(source)
    out, places = rows.clone(), [*[None] * axis, index]
    put = torch.ops.aten.index_put_

    def scatter_reduce(reduce: str) -> Call:
        return lambda: out.copy_(rows).scatter_reduce_(axis, expanded, source, reduce)

    whole: dict[str, dict[str, Call]] = {
        "update": {"torch scatter_": lambda: out.copy_(rows).scatter_(axis, expanded, source)},
        "add": {
            "torch scatter_add_": lambda: out.copy_(rows).scatter_add_(axis, expanded, source),
            "torch scatter_reduce_": scatter_reduce("sum"),
        },
    }
    by_rows: dict[str, dict[str, Call]] = {
        "update": {
            "torch index_put_": lambda: put(out.copy_(rows), places, source),
            "torch index_copy_": lambda: out.copy_(rows).index_copy_(axis, index, source),
        },
        "add": {
            "torch index_put_": lambda: put(out.copy_(rows), places, source, accumulate=True),
            "torch index_add_": lambda: out.copy_(rows).index_add_(axis, index, source),
        },
    }
    if workload.reduction not in whole:
        return {"torch scatter_reduce_": scatter_reduce(TORCH_REDUCE[workload.reduction])}
    return whole[workload.reduction] | ({} if by_line else by_rows[workload.reduction])


def _like(index: Any, tensor: Any) -> Any:
    """A tensor with as many axes as an index of each line has: without the last, which is one."""
    return tensor if index.ndim == tensor.ndim else tensor[:, :, 0]


def torch_compiled(workload: Workload, data: Any, index: Any, updates: Any) -> Call:
    """PyTorch's first form through ``torch.compile``."""
    import torch

    form = next(iter(torch_forms(workload, data, index, updates).values()))
    return torch.compile(form, dynamic=False)


def cupy_forms(workload: Workload, data: Any, index: Any, updates: Any) -> dict[str, Call]:
    """CuPy's forms, on the memory of PyTorch tensors; empty where CuPy has none."""
    if importlib.util.find_spec("cupy") is None or workload.dtype == "bfloat16":
        return {}
    import cupy

    # CuPy writes in place, so each form begins with a copy, as the functional forms do inside.
    places = cupy.from_dlpack(index)
    if index.ndim > 1:
        flat, source = (cupy.from_dlpack(_like(index, t)) for t in (data, updates))
        target: Any = _line_places(workload, cupy, places)
    else:
        *tensors, axis = _rows(workload, data, updates)
        flat, source = map(cupy.from_dlpack, tensors)
        target = (*[slice(None)] * axis, places)

    def assign() -> Any:
        out = flat.copy()
        out[target] = source
        return out

    def at(function: Any) -> Call:
        def call() -> Any:
            out = flat.copy()
            function.at(out, target, source)
            return out

        return call

    if workload.reduces.is_store:
        return {"cupy assign": assign}
    name = _CUPY_UFUNCS.get(workload.reduction)
    if name is None:
        return {}
    forms = {f"cupy {name}.at": at(getattr(cupy, name))}
    is_sum = workload.reduces.rounding is Rounding.SUM
    if is_sum and workload.slice == 1 and workload.batch == 1:
        weights = source[:, 0]
        forms["cupy bincount"] = lambda: (
            flat[:, 0]
            + cupy.bincount(places, weights=weights, minlength=workload.extent).astype(flat.dtype)
        )
    return forms


def jax_form(workload: Workload, data: Any, index: Any, updates: Any) -> Call:
    """JAX's ``x.at[i]``, jitted, on the memory of PyTorch tensors."""
    # JAX would otherwise take most of the memory, and know no int64.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    jax.config.update("jax_enable_x64", True)
    x, i, u = (jax.dlpack.from_dlpack(t.contiguous()) for t in (data, index, updates))
    method = _JAX_METHODS[workload.reduction]
    if index.ndim > 1:
        function = jax.jit(
            lambda x, i, u: getattr(x.at[_line_places(workload, jax.numpy, i)], method)(u)
        )
    else:
        function = jax.jit(lambda x, i, u: getattr(x.at[:, i], method)(u))
    return lambda: function(x, i, u).block_until_ready()


def _line_places(workload: Workload, library: Any, places: Any) -> tuple[Any, ...]:
    """The numbers that name an element, where each line or each element has an index of its own."""
    lines = library.arange(workload.batch)
    if places.ndim == 2:
        return lines[:, None], places
    return lines[:, None, None], places, library.arange(workload.slice)
