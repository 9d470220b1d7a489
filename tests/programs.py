"""Random programs of scatters, reads and reuses: as Relax, and as what NumPy computes.

Values are small whole numbers, so that sums are exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tvm import relax

from tvm_scatter.ops import operators as ops

#: More than the 1024 elements up to which TVM evaluates a tensor at compile time.
ROWS, COLUMNS = 270, 4
SHAPE = (ROWS, COLUMNS)
COUNT = 5
PARAMETERS = ("x", "y")
FORMS = ("rows", "stock_rows", "columns", "elements", "stock_elements", "tuples", "pairs")
REDUCTIONS = ("update", "add", "max")


@dataclass(frozen=True)
class Instruction:
    """One value: of ``a`` and ``b``, which are earlier values, counted from the parameters."""

    kind: str
    a: int = 0
    b: int = 0
    form: str = "rows"
    reduction: str = "update"
    known: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Program:
    """Instructions, and which values they return."""

    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of a few instructions that use recent values more often than old ones."""
    instructions = []
    usual = (draw(st.sampled_from(FORMS)), draw(st.sampled_from(REDUCTIONS)))
    length = draw(st.integers(2, 8))
    for at in range(len(PARAMETERS), len(PARAMETERS) + length):
        value = st.one_of(st.just(at - 1), st.just(at - 1), st.integers(0, at - 1))
        other = (draw(st.sampled_from(FORMS)), draw(st.sampled_from(REDUCTIONS)))
        form, reduction = draw(st.sampled_from([usual, usual, usual, other]))
        kind = draw(st.sampled_from(("scatter",) * 6 + ("add", "view", "zeros", "small", "pair")))
        instructions.append(
            Instruction(
                kind,
                draw(value),
                draw(value),
                form,
                reduction,
                draw(st.booleans()),
                draw(st.integers(0, 3)),
            )
        )
    last = len(PARAMETERS) + length - 1
    more = draw(st.lists(st.integers(0, last), max_size=2))
    return Program(tuple(instructions), tuple(dict.fromkeys([last, *more])))


def inputs(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """The arguments of every program: tensors, indices that are only known then, and updates."""
    generator = np.random.default_rng(seed)

    def whole(*shape: int) -> np.ndarray[Any, Any]:
        return generator.integers(-9, 9, shape).astype("float32")

    arrays = {name: whole(*SHAPE) for name in PARAMETERS}
    for each in range(4):
        arrays[f"rows{each}"] = _rows(generator)
    return arrays | {"updates": whole(COUNT, COLUMNS)}


def evaluate(program: Program, arrays: dict[str, np.ndarray[Any, Any]]) -> list[Any]:
    """What NumPy computes."""
    values = [arrays[name] for name in PARAMETERS]
    for instruction in program.instructions:
        a, b = values[instruction.a], values[instruction.b]
        if instruction.kind == "scatter":
            rows = _known(instruction) if instruction.known else arrays[f"rows{instruction.seed}"]
            updates = b[:COUNT] if instruction.seed % 2 else arrays["updates"]
            values.append(_numpy_scatter(a, rows, updates, instruction))
        else:
            values.append(
                {
                    "add": lambda a=a, b=b: a + b,
                    "view": lambda a=a: a,
                    "zeros": lambda: np.zeros(SHAPE, "float32"),
                    "small": lambda a=a: (
                        a
                        + np.concatenate(
                            [np.ones((ROWS - 2, COLUMNS)), np.zeros((2, COLUMNS))]
                        ).astype("float32")
                    ),
                    "pair": lambda a=a: a,
                }[instruction.kind]()
            )
    return [values[at] for at in program.outputs]


def build(program: Program, builder: relax.BlockBuilder, dataflow: bool = True) -> None:
    """Add the program to a module as ``main``."""
    parameters = {
        name: relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
        for name, array in inputs().items()
    }
    with builder.function("main", list(parameters.values())):
        if dataflow:
            with builder.dataflow():
                results = _emit(program, builder, parameters)
                output = builder.emit_output(relax.Tuple(results))
        else:
            output = builder.emit(relax.Tuple(_emit(program, builder, parameters)))
        builder.emit_func_output(output)


def _emit(program: Program, builder: relax.BlockBuilder, parameters: dict[str, Any]) -> list[Any]:
    emit = builder.emit
    values = [parameters[name] for name in PARAMETERS]
    for instruction in program.instructions:
        a, b = values[instruction.a], values[instruction.b]
        if instruction.kind == "add":
            value = relax.op.add(a, b)
        elif instruction.kind == "view":
            value = relax.op.reshape(emit(relax.op.reshape(a, [ROWS * COLUMNS])), SHAPE)
        elif instruction.kind == "zeros":
            value = relax.op.zeros(SHAPE, "float32")
        elif instruction.kind == "small":
            ones = emit(relax.op.ones((ROWS - 2, COLUMNS), "float32"))
            zeros = emit(relax.op.zeros((2, COLUMNS), "float32"))
            value = relax.op.add(a, emit(relax.op.concat([ones, zeros], 0)))
        elif instruction.kind == "pair":
            value = relax.TupleGetItem(emit(relax.Tuple([a, b])), 0)
        else:
            if instruction.known:
                rows = relax.const(_known(instruction), "int64")
            else:
                rows = parameters[f"rows{instruction.seed}"]
            updates = parameters["updates"]
            if instruction.seed % 2:
                updates = emit(relax.op.strided_slice(b, [0], [0], [COUNT]))
            value = relax_scatter(emit, a, rows, updates, instruction)
        values.append(emit(value))
    return [values[at] for at in program.outputs]


def _known(instruction: Instruction) -> np.ndarray[Any, Any]:
    return _rows(np.random.default_rng(instruction.seed))


def _rows(generator: np.random.Generator) -> np.ndarray[Any, Any]:
    # Few places, so that scatters meet; distinct ones, so that each plain update is defined.
    return generator.permutation(8)[:COUNT].astype("int64")


def relax_scatter(emit: Any, a: Any, rows: Any, updates: Any, instruction: Instruction) -> Any:
    form, reduction = instruction.form, instruction.reduction
    if form == "rows":
        return ops.index_put(a, [rows], updates, [0], reduction)
    if form == "stock_rows":
        # TVM's own has no maximum and no trailing dimensions of the data.
        return relax.op.scatter_nd(a, emit(relax.op.reshape(rows, [COUNT, 1])), updates, reduction)
    if form == "tuples":
        return ops.scatter_nd(a, emit(relax.op.reshape(rows, [COUNT, 1])), updates, reduction)
    if form == "columns":
        column = emit(relax.op.strided_slice(updates, [1], [0], [1]))
        column = emit(relax.op.broadcast_to(emit(relax.op.sum(column)), [ROWS, 2]))
        return ops.index_put(
            a, [relax.const(_columns(instruction), "int64")], column, [1], reduction
        )
    if form == "pairs":
        first = emit(
            relax.op.reshape(emit(relax.op.strided_slice(updates, [1], [0], [1])), [COUNT])
        )
        places = relax.const(np.arange(COUNT) % COLUMNS, "int64")
        return ops.index_put(a, [rows, places], first, [0, 1], reduction)
    index = emit(relax.op.broadcast_to(emit(relax.op.reshape(rows, [COUNT, 1])), [COUNT, COLUMNS]))
    if form == "elements":
        return ops.scatter_elements(a, index, updates, 0, reduction)
    return relax.op.scatter_elements(a, index, updates, 0, reduction)


def _numpy_scatter(
    a: np.ndarray[Any, Any],
    rows: np.ndarray[Any, Any],
    updates: np.ndarray[Any, Any],
    instruction: Instruction,
) -> np.ndarray[Any, Any]:
    out = a.copy()
    place: Any = (rows,)
    if instruction.form == "columns":
        place, updates = (slice(None), _columns(instruction)), updates[:, :1].sum()
    elif instruction.form == "pairs":
        place, updates = (rows, np.arange(COUNT) % COLUMNS), updates[:, 0]
    if instruction.reduction == "update":
        out[place] = updates
    elif instruction.reduction == "add":
        out[place] += updates
    else:
        out[place] = np.maximum(out[place], updates)
    return out


def _columns(instruction: Instruction) -> np.ndarray[Any, Any]:
    return np.random.default_rng(instruction.seed).permutation(COLUMNS)[:2].astype("int64")
