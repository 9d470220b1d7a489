"""Random programs that compute indices: as Relax, and as what NumPy computes.

Inputs are hostile: the least and greatest integers, "not a number", and no elements at all. The
number of elements is a symbolic size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.compaction import true_positions

Array = np.ndarray[Any, Any]

#: Parameters of every program: vectors of as many elements as the run time says.
PARAMETERS = {
    "wide": "int64",
    "narrow": "int32",
    "byte": "uint8",
    "real": "float32",
    "mask": "bool",
}
SIZES = (0, 1, 2, 7)
WIDTH = 3


@dataclass
class Program:
    """A program: the module's function, and how NumPy computes each of its values.

    Attributes
    ----------
    variables : list
        The variables of Relax.
    compute : list of callable
        For each variable a function of the arrays of the earlier ones, and of the inputs.
    size : tvm.tirx.Var
        The symbolic number of elements.
    """

    size: Any
    variables: list[Any] = field(default_factory=list)
    compute: list[Callable[[list[Array]], Array]] = field(default_factory=list)

    def evaluate(self, arrays: dict[str, Array]) -> list[Array]:
        """The values that NumPy computes, those of the parameters first."""
        values = list(arrays.values())
        for each in self.compute:
            with np.errstate(all="ignore"):
                values.append(np.asarray(each(values)))
        return values


def inputs(size: int, seed: int) -> dict[str, Array]:
    """The arguments of every program."""
    generator = np.random.default_rng(seed)

    def integers(dtype: str) -> Array:
        limits = np.iinfo(dtype)
        special = [limits.min, limits.max, limits.min + 1, 0, 1, 2, limits.max - 1]
        some = generator.integers(0, size + 2, size).astype(dtype)
        return np.where(generator.random(size) < 0.5, some, generator.choice(special, size)).astype(
            dtype
        )

    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5], "float32")
    real = generator.standard_normal(size).astype("float32")
    return {
        "wide": integers("int64"),
        "narrow": integers("int32"),
        "byte": integers("uint8"),
        "real": np.where(generator.random(size) < 0.5, real, generator.choice(special, size)),
        "mask": generator.random(size) < 0.5,
    }


def draw(seed: int, builder: relax.BlockBuilder, length: int = 9) -> Program:
    """Add a random program to a module as ``main``. It returns all of its values."""
    random = Random(seed)
    program = Program(tirx.Var("n", "int64"))
    program.variables = [
        relax.Var(name, relax.TensorType([program.size], dtype))
        for name, dtype in PARAMETERS.items()
    ]
    with builder.function("main", list(program.variables)):
        with builder.dataflow():
            for _ in range(length):
                _Step(random, builder, program).add()
            output = builder.emit_output(relax.Tuple(program.variables[len(PARAMETERS) :]))
        builder.emit_func_output(output)
    return program


def scattering(seed: int, length: int = 7) -> tvm.IRModule:
    """A program that scatters rows and reads rows by each vector of indices that it computes."""
    builder, random = relax.BlockBuilder(), Random(seed)
    program = Program(tirx.Var("n", "int64"))
    program.variables = [
        relax.Var(name, relax.TensorType([program.size], dtype))
        for name, dtype in PARAMETERS.items()
    ]
    emit = builder.emit
    with builder.function("main", list(program.variables)):
        with builder.dataflow():
            for _ in range(length):
                _Step(random, builder, program).add()
            results = []
            for index in program.variables[len(PARAMETERS) :]:
                if str(index.ty.dtype) != "int64" or index.ty.ndim != 1:
                    continue
                [count] = index.ty.shape.values
                extent = random.choice([program.size, 4, count])
                places = emit(relax.op.arange(0, extent, 1, "int64"))
                table = emit(relax.op.add(emit(relax.op.zeros([extent], "int64")), places))
                results.append(emit(relax.op.take(table, index, 0)))
                updates = emit(relax.op.add(emit(relax.op.zeros([count], "int64")), index))
                wrap, reduction = random.random() < 0.5, random.choice(["add", "update", "max"])
                put = ops.index_put(table, [index], updates, [0], reduction, wrap_negative=wrap)
                results.append(emit(put))
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get()


class _Step:
    """Adds one value to a program."""

    def __init__(self, random: Random, builder: relax.BlockBuilder, program: Program) -> None:
        self.random = random
        self.emit = builder.emit
        self.builder = builder
        self.program = program

    def add(self) -> None:
        while True:
            step = self.random.choice(_STEPS)
            made = step(self)
            if made is not None:
                break
        value, compute = made
        var = self.emit(value)
        self.program.variables.append(var)
        self.program.compute.append(compute)

    def pick(self, kind: str = "int", rank: int | None = None) -> int | None:
        """The number of an earlier value of a kind; later ones are more likely."""
        found = [
            at
            for at, each in enumerate(self.program.variables)
            if kind in str(each.ty.dtype) and rank in (None, each.ty.ndim)
        ]
        if not found:
            return None
        return max(self.random.choices(found, k=2))

    def var(self, at: int) -> Any:
        return self.program.variables[at]

    def dtype(self, at: int) -> str:
        return str(self.var(at).ty.dtype)


def _arange(step: _Step) -> Any:
    n, dtype = step.program.size, step.random.choice(["int64", "int64", "int32"])
    begin, factor = step.random.choice([-3, 0, 0, 2]), step.random.choice([1, 1, 2, 3])
    if step.random.random() < 0.5:
        end = begin + step.random.randint(0, 9)
        return (
            relax.op.arange(begin, end, factor, dtype),
            lambda _: np.arange(begin, end, factor, dtype),
        )
    value = relax.op.arange(begin, n * factor + begin, factor, dtype)
    return value, lambda v: np.arange(begin, len(v[0]) * factor + begin, factor, dtype)


def _constant(step: _Step) -> Any:
    generator = np.random.default_rng(step.random.randint(0, 99))
    count = step.random.choice([0, 1, 4])
    array = step.random.choice(
        [
            generator.permutation(count),
            generator.integers(-3, 4, count),
            np.sort(generator.integers(0, 5, count)),
            generator.integers(0, 9, (count, WIDTH)),
        ]
    ).astype(step.random.choice(["int64", "int32"]))
    return relax.const(array, str(array.dtype)), lambda _: array


def _sort_positions(step: _Step) -> Any:
    at = step.pick(step.random.choice(["int", "int", "float"]))
    if at is None or not step.var(at).ty.ndim or step.dtype(at) in ("uint8",):
        return None
    axis = step.var(at).ty.ndim - 1
    dtype = step.random.choice(["int64", "int64", "int32"])
    value = relax.op.argsort(step.var(at), axis, step.random.random() < 0.3, dtype)
    down = bool(value.attrs.descending)

    def compute(v: list[Array]) -> Array:
        keys = ~v[at] if down and v[at].dtype.kind == "i" else -v[at] if down else v[at]
        return np.argsort(keys, axis, kind="stable").astype(dtype)

    return value, compute


def _sorted(step: _Step) -> Any:
    at = step.pick("int", 1)
    if at is None or step.dtype(at) == "uint8":
        return None
    return relax.op.sort(step.var(at), 0), lambda v: np.sort(v[at])


def _largest(step: _Step) -> Any:
    at = step.pick("int", 2)
    if at is None or step.dtype(at) == "uint8":
        return None
    value = relax.op.topk(step.var(at), 2, 1, "indices", True, "int64")
    if not _is_wide(step.var(at)):
        return None
    return value, lambda v: np.argsort(~v[at], 1, kind="stable")[:, :2].astype("int64")


def _is_wide(var: Any) -> bool:
    last = var.ty.shape.values[1]
    return isinstance(last, tirx.IntImm) and int(last) == WIDTH


def _cast(step: _Step) -> Any:
    at = step.pick(step.random.choice(["int", "int", "bool"]))
    if at is None:
        return None
    dtype = step.random.choice(["int64", "int32", "int8", "uint8"])
    return relax.op.astype(step.var(at), dtype), lambda v: v[at].astype(dtype)


_BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "bitwise_and": np.bitwise_and,
}


def _with_number(step: _Step) -> Any:
    at = step.pick("int")
    if at is None:
        return None
    name = step.random.choice([*_BINARY, "floor_divide", "floor_mod", "floor_mod", "mod", "divide"])
    divides = name in ("floor_divide", "floor_mod", "mod", "divide")
    numbers = [1, 2, 3, 7] if divides else [-1, 0, 1, 2, 3, 100]
    dtype = step.dtype(at)
    number = np.asarray(step.random.choice(numbers)).astype(dtype)
    value = getattr(relax.op, name)(step.var(at), relax.const(number, dtype))
    if name == "mod":
        return value, lambda v: np.fmod(v[at], number)
    if name == "divide":
        return value, lambda v: _truncated(v[at], number)
    function = _BINARY.get(name) or {"floor_divide": np.floor_divide, "floor_mod": np.mod}[name]
    return value, lambda v: function(v[at], number).astype(dtype)


def _truncated(array: Array, number: Array) -> Array:
    quotient = np.floor_divide(array, number)
    inexact = (np.mod(array, number) != 0) & (array < 0)
    return (quotient + inexact).astype(array.dtype)


def _with_value(step: _Step) -> Any:
    one = step.pick("int")
    other = step.pick("int")
    if one is None or other is None or step.dtype(one) != step.dtype(other):
        return None
    left, right = step.var(one), step.var(other)
    if [str(s) for s in left.ty.shape.values] != [str(s) for s in right.ty.shape.values]:
        return None
    if step.random.random() < 0.2 and left.ty.ndim == 1:
        mask = step.emit(relax.op.less(left, right))
        return relax.op.where(mask, left, right), lambda v: np.where(
            v[one] < v[other], v[one], v[other]
        )
    name = step.random.choice([*_BINARY])
    value = getattr(relax.op, name)(left, right)
    return value, lambda v: _BINARY[name](v[one], v[other])


def _unary(step: _Step) -> Any:
    at = step.pick("int")
    if at is None or step.dtype(at) == "uint8":
        return None
    if step.random.random() < 0.4:
        low, high = step.random.choice([(0, 5), (-2, 2), (3, 3)])
        return relax.op.clip(step.var(at), low, high), lambda v: np.clip(v[at], low, high)
    name = step.random.choice(["negative", "abs", "bitwise_not"])
    function = {"negative": np.negative, "abs": np.abs, "bitwise_not": np.invert}[name]
    return getattr(relax.op, name)(step.var(at)), lambda v: function(v[at])


def _view(step: _Step) -> Any:
    at = step.pick("int")
    if at is None:
        return None
    var, rank = step.var(at), step.var(at).ty.ndim
    shape = list(var.ty.shape.values)
    if rank == 1:
        axis = step.random.choice([0, 1])
        kind = step.random.choice(["expand", "broadcast", "stack"])
        if kind == "expand":
            return relax.op.expand_dims(var, axis), lambda v: np.expand_dims(v[at], axis)
        if kind == "broadcast":
            column = step.emit(relax.op.expand_dims(var, 1))
            value = relax.op.broadcast_to(column, [*shape, WIDTH])
            return value, lambda v: np.repeat(v[at][:, None], WIDTH, 1)
        value = relax.op.concat(
            [step.emit(relax.op.expand_dims(each, 1)) for each in [var] * WIDTH], 1
        )
        return value, lambda v: np.stack([v[at]] * WIDTH, 1)
    if step.random.random() < 0.5:
        size = shape[0] * shape[1]
        if isinstance(size, tirx.IntImm) and not int(size):
            # TVM takes a zero for the size that there was.
            return None
        return relax.op.reshape(var, [size]), lambda v: v[at].reshape(-1)
    return relax.op.permute_dims(var), lambda v: v[at].T


def _part(step: _Step) -> Any:
    at = step.pick("int", 1)
    if at is None:
        return None
    var = step.var(at)
    kind = step.random.choice(["flip", "twice", "concat", "running", "running"])
    if kind == "flip":
        return relax.op.flip(var, 0), lambda v: v[at][::-1]
    if kind == "twice":
        return relax.op.repeat(var, 2, 0), lambda v: np.repeat(v[at], 2)
    if kind == "running":
        if step.dtype(at) == "uint8":
            return None
        dtype = step.dtype(at)
        return relax.op.cumsum(var, 0), lambda v: np.cumsum(v[at], dtype=dtype)
    other = step.pick("int", 1)
    if other is None or step.dtype(other) != step.dtype(at):
        return None
    value = relax.op.concat([var, step.var(other)], 0)
    return value, lambda v: np.concatenate([v[at], v[other]])


def _read(step: _Step) -> Any:
    at, index = step.pick("int", 1), step.pick("int64", 1)
    if at is None or index is None:
        return None
    value = relax.op.take(step.var(at), step.var(index), 0)

    def compute(v: list[Array]) -> Array:
        count, places = len(v[at]), v[index]
        good = (places >= -count) & (places < count)
        if not count:
            return np.zeros(places.shape, v[at].dtype)
        return np.where(good, v[at][np.where(good, places, 0)], 0).astype(v[at].dtype)

    return value, compute


def _computed(step: _Step) -> Any:
    """A function of TIR, such as importers write."""
    at = step.pick("int64", 1)
    if at is None:
        return None
    start = step.random.choice([0, 0, 2])
    kind = step.random.choice(["places", "table", "moved"])
    if kind == "places":

        def places(data: te.Tensor) -> te.Tensor:
            return te.compute(data.shape, lambda i: i.astype("int64") * 2 + start)

        return _te(step, places, at), lambda v: np.arange(len(v[at])) * 2 + start
    if kind == "table":

        def table(data: te.Tensor) -> te.Tensor:
            return te.compute(
                (data.shape[0], WIDTH),
                lambda i, j: tirx.Select(data(i) > 0, j.astype("int64"), start - i * WIDTH),
            )

        def compute(v: list[Array]) -> Array:
            i, j = np.indices((len(v[at]), WIDTH))
            return np.where(v[at][:, None] > 0, j, start - i * WIDTH)

        return _te(step, table, at), compute

    def moved(data: te.Tensor) -> te.Tensor:
        return te.compute(
            data.shape, lambda i: tirx.floormod(data(i), data.shape[0].astype("int64") + 1)
        )

    return _te(step, moved, at), lambda v: np.mod(v[at], len(v[at]) + 1)


def _te(step: _Step, function: Any, at: int) -> Any:
    return step.builder.call_te(function, step.var(at))


def _scatter(step: _Step) -> Any:
    at, index = step.pick("int64", 1), step.pick("int64", 1)
    if at is None or index is None:
        return None
    data, places = step.var(at), step.var(index)
    updates = step.emit(relax.op.add(places, relax.const(1, "int64")))
    value = ops.index_put(data, [places], updates, [0], wrap_negative=False, ordered=True)

    def compute(v: list[Array]) -> Array:
        result = v[at].copy()
        for place in v[index]:
            if 0 <= place < len(result):
                result[place] = place + 1
        return result

    return value, compute


def _true_places(step: _Step) -> Any:
    [at] = [at for at, name in enumerate(PARAMETERS) if name == "mask"]
    count = tirx.Var(f"count{len(step.program.variables)}", "int64")
    found = step.emit(true_positions(step.var(at)))
    found = step.builder.match_cast(found, relax.TensorType([count], "int64"))
    return found, lambda v: np.flatnonzero(v[at])


_STEPS = (
    *(_arange, _sort_positions, _sort_positions, _sorted, _largest, _cast, _with_number),
    *(_with_number, _with_number, _with_value, _unary, _view, _view, _part, _part, _read),
    *(_read, _computed, _scatter, _constant, _true_places),
)
