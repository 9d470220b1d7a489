"""Sizes that must be equal and are known at run time only: one clear error, under every policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put, scatter_nd
from tvm_scatter.problem.scatter_problem import BOUNDS

Array = np.ndarray[Any, Any]
Shape = tuple[int | str, ...]


def put(axes: Sequence[int]) -> Callable[..., Any]:
    return lambda data, *rest: index_put(data, rest[:-1], rest[-1], axes)


def stock_put(data: Any, *rest: Any) -> Any:
    return relax.op.index_put(data, relax.Tuple(list(rest[:-1])), rest[-1])


def same_index(data: Any, index: Any, values: Any) -> Any:
    return index_put(data, [index, index], values, [0, 1])


def known_index(data: Any, values: Any) -> Any:
    return index_put(data, [relax.const(np.array([2, 0, 1]), "int64")], values, [0])


def twice(data: Any, index: Any, values: Any) -> Any:
    first = relax.BlockBuilder.current().emit(index_put(data, [index], values, [0]))
    return index_put(first, [index], values, [0])


def tuples_twice(data: Any, index: Any, updates: Any) -> Any:
    first = relax.BlockBuilder.current().emit(scatter_nd(data, index, updates))
    return scatter_nd(first, index, updates)


class Form(NamedTuple):
    """What is built, the operands' shapes, sizes that fit, and others with what is said of them."""

    build: Callable[..., Any]
    shapes: tuple[Shape, ...]
    axes: tuple[int, ...] | None
    fit: list[dict[str, int]]
    unfit: list[tuple[dict[str, int], str]]


M3 = {"m": 3, "n": 3}
ROWS: tuple[Shape, ...] = ((7, 3), ("m",), ("n", 3))
COUNTS = [M3, {"m": 1, "n": 1}, {"m": 0, "n": 0}]
OTHERS = [
    ({"m": 3, "n": 2}, "values of size 2 in dimension 0 must have the size of index in dimension"),
    ({"m": 2, "n": 3}, "0, which is 2"),
    ({"m": 3, "n": 1}, "0, which is 3"),
    ({"m": 1, "n": 3}, "0, which is 1"),
    ({"m": 0, "n": 1}, "0, which is 0"),
]
TUPLES: tuple[Shape, ...] = ((7, 3), ("m", 1), ("n", 3))
BETWEEN = [({"m": 3, "n": 2}, "updates of size 2 .* indices in dimension 0, which is 3")]
FORMS = {
    "rows": Form(put([0]), ROWS, (0,), COUNTS, OTHERS),
    "stock": Form(
        stock_put,
        ((7, 5), ("m",), ("k",), ("n",)),
        (0, 1),
        [{"k": 3, **M3}],
        [({"k": 2, **M3}, "index 1 of size 2")],
    ),
    "twice": Form(twice, ROWS, (0,), COUNTS, OTHERS),
    "pairs": Form(
        put([0, 1]),
        ((7, 5), ("m",), ("k",), ("n",)),
        (0, 1),
        [{"m": 3, "n": 3, "k": 3}],
        [
            ({"m": 3, "n": 3, "k": 2}, "index 1 of size 2 .* index 0 in dimension 0, which is 3"),
            ({"m": 3, "n": 3, "k": 1}, "index 1 of size 1"),
            ({"m": 3, "n": 4, "k": 3}, "values of size 4"),
        ],
    ),
    "apart": Form(
        put([0, 2]),
        ((7, 2, 5), ("m",), ("k",), ("n", 2)),
        (0, 2),
        [{"m": 3, "n": 3, "k": 3}],
        [({"m": 3, "n": 3, "k": 4}, "index 1"), ({"m": 3, "n": 2, "k": 3}, "values of size 2")],
    ),
    "width": Form(
        put([0]),
        ((7, "w"), ("m",), ("m", "v")),
        (0,),
        [{"m": 3, "w": 4, "v": 4}],
        [({"m": 3, "w": 4, "v": 3}, "values of size 3 in dimension 1 .* data in dimension 1")],
    ),
    "partly": Form(
        put([0]),
        ((9, 3), ("m", 2), ("n", 1, 3)),
        (0,),
        [M3],
        [({"m": 3, "n": 2}, "values of size 2"), ({"m": 2, "n": 3}, "values of size 3")],
    ),
    "one_index": Form(
        put([0]), ((7, 3), (1,), ("n", 3)), (0,), [{"n": 1}], [({"n": 2}, "0, which is 1")]
    ),
    "known_values": Form(
        put([0]), ((7, 3), ("m",), (2, 3)), (0,), [{"m": 2}], [({"m": 3}, "0, which is 3")]
    ),
    "extent": Form(
        put([0]),
        (("d", 3), ("m",), ("n", 3)),
        (0,),
        [{"d": 5, **M3}],
        [({"d": 5, "m": 2, "n": 3}, "values of size 3")],
    ),
    "same_index": Form(
        same_index, ((7, 7), ("m",), ("n",)), None, [M3], [({"m": 3, "n": 4}, "values of size 4")]
    ),
    "known_index": Form(
        known_index, ((7, 3), ("n", 3)), None, [{"n": 3}], [({"n": 4}, "which is 3")]
    ),
    "tuples": Form(scatter_nd, TUPLES, (0,), COUNTS, BETWEEN),
    "tuples_twice": Form(tuples_twice, TUPLES, (0,), COUNTS, BETWEEN),
    "tuple_width": Form(
        scatter_nd,
        ((7, "w"), ("m", 1), ("m", "v")),
        (0,),
        [{"m": 3, "w": 4, "v": 4}],
        [({"m": 3, "w": 3, "v": 4}, "updates of size 4 .* data in dimension 1, which is 3")],
    ),
}
_FEW = {"raise": ("stock", "rows", "tuples"), "drop": ("rows",), "trust": ("rows",)}


@pytest.mark.turns(3)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_sizes_that_differ(device: str, bounds: str) -> None:
    builder = relax.BlockBuilder()
    # Kernels take long to compile for a simulated device, and the host's part is the same.
    forms = FORMS if device == "llvm" else {name: FORMS[name] for name in _FEW[bounds]}
    for name, form in forms.items():
        _add(builder, name, form)
    with tvm_scatter.options(bounds=bounds):
        executable = tvm.compile(builder.get(), target_of(device))
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    for name, form in forms.items():
        for sizes in form.fit:
            arrays = _arrays(form, sizes)
            tensors = [tvm.runtime.tensor(array, device=on) for array in arrays]
            expected = _expected(name, form, arrays)
            np.testing.assert_array_equal(machine[name](*tensors).numpy(), expected, name)
        for sizes, said in form.unfit:
            tensors = [tvm.runtime.tensor(array, device=on) for array in _arrays(form, sizes)]
            with pytest.raises(ValueError, match=f"(index_put|scatter_nd): .*{said}"):
                machine[name](*tensors)


def test_sizes_that_are_known_to_differ() -> None:
    builder = relax.BlockBuilder()
    with pytest.raises(tvm_scatter.ScatterError, match="do not broadcast"):
        _add(builder, "main", Form(put([0]), ((7, "w"), (4,), (3, "w")), (0,), [], []))
        tvm.compile(builder.get(), target_of("llvm"))


def _add(builder: relax.BlockBuilder, name: str, form: Form) -> None:
    sizes: dict[str, Any] = {}
    parameters = []
    for each, shape in enumerate(form.shapes):
        dims = [
            sizes.setdefault(d, tvm.tirx.Var(d, "int64")) if isinstance(d, str) else d
            for d in shape
        ]
        index = 0 < each < len(form.shapes) - 1
        dtype = "int64" if index else "float32"
        parameters.append(relax.Var(f"p{each}", relax.TensorType(dims, dtype)))
    with builder.function(name, parameters):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(form.build(*parameters)))
        builder.emit_func_output(output)


def _arrays(form: Form, sizes: dict[str, int]) -> list[Array]:
    shapes = [tuple(sizes[d] if isinstance(d, str) else d for d in shape) for shape in form.shapes]
    count = [int(np.prod(shape)) for shape in shapes]
    indices = [
        np.arange(n)[::-1].reshape(s) for n, s in zip(count[1:-1], shapes[1:-1], strict=True)
    ]
    values = np.arange(1, count[-1] + 1, dtype="float32").reshape(shapes[-1])
    return [np.zeros(shapes[0], "float32"), *indices, values]


def _expected(name: str, form: Form, arrays: Sequence[Array]) -> Array:
    data, *indices, values = arrays
    out = data.copy()
    if name == "known_index":
        out[[2, 0, 1]] = values
    elif name == "same_index":
        out[indices[0], indices[0]] = values
    else:
        indices = [index[:, 0] if "tuple" in name else index for index in indices]
        place: list[Any] = [slice(None)] * data.ndim
        for axis, index in zip(form.axes or (), indices, strict=True):
            place[axis] = index
        out[tuple(place)] = values
    return out


#: PyTorch's writes whose index and source have one size.
BRANCHES = ("index_add", "index_copy", "index_put", "index_reduce")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.turns(4)
def test_a_branch_of_pytorch_with_dynamic_sizes(name: str) -> None:
    """The branch is a function of its own, which does not know which sizes are equal."""
    torch = pytest.importorskip("torch")
    from torch_harness import check

    write = {
        "index_add": lambda x, i, v: x.index_add(0, i, v),
        "index_copy": lambda x, i, v: x.index_copy(0, i, v),
        "index_put": lambda x, i, v: x.index_put((i,), v),
        "index_reduce": lambda x, i, v: x.index_reduce(0, i, v, "mean"),
    }[name]

    def model(x: Any, i: Any, v: Any) -> Any:
        return torch.cond(x.sum() > 0, write, lambda x, _i, _v: x * 2, (x, i, v))

    rows, count = torch.export.Dim("rows", min=2, max=99), torch.export.Dim("count", max=99)
    dynamic = ({0: rows}, {0: count}, {0: count})
    for sign in (1, -1):
        data, index = sign * torch.rand(5, 3), torch.tensor([3, 0, 4, 1])
        check(model, data, index, torch.randn(4, 3), dynamic=dynamic)
