"""Random programs in which memory is shared: views, packed functions, branches, called functions.

Nothing but TVM says what they compute: a program is compared with itself, compiled without passes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from hypothesis import strategies as st
from programs import COLUMNS, COUNT, FORMS, PARAMETERS, ROWS, SHAPE, Instruction, relax_scatter
from programs import inputs as arrays_of
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T

from tvm_scatter.ops import operators as ops

#: What packed functions have kept in this run.
KEPT = threading.local()
OTHERS_CODE = ("keep", "same", "return_kept", "fill")
PURE = (
    *("view", "view_bits", "view_rows", "reshape", "squeeze", "neutral", "tuple", "constant"),
    *("zeros", "add", "negative", "broadcast", "call_same", "call_put", "call_both", "in_place"),
    *("scatter", "late"),
)
#: They stand outside of dataflow blocks.
IMPURE = ("write", "write_kept", "choose", "branch", "print")
_TYPE = relax.TensorType(SHAPE, "float32")


@dataclass(frozen=True)
class Program:
    """Instructions; from one of them on, those that may stand in a dataflow block do."""

    instructions: tuple[Instruction, ...]
    block: int
    outputs: tuple[int, ...]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs that use recent values more often than old ones, and scatter every other time."""
    instructions: list[Instruction] = []
    length = draw(st.integers(2, 9))
    block = draw(st.integers(0, length))
    form = draw(st.sampled_from(FORMS))
    for at in range(length):
        kinds = PURE if at >= block else PURE + IMPURE
        others = st.sampled_from(kinds + OTHERS_CODE)
        after_scatter = not instructions or instructions[-1].kind == "scatter"
        kind = draw(others if after_scatter else st.one_of(st.just("scatter"), others))
        last = at + len(PARAMETERS) - 1
        value = st.one_of(st.just(last), st.just(last), st.integers(0, last))
        instructions.append(
            Instruction(
                kind,
                draw(value),
                draw(value),
                draw(st.sampled_from((form, "rows", *FORMS))),
                draw(st.sampled_from(("update", "update", "add", "max"))),
                draw(st.booleans()),
                draw(st.integers(0, 3)),
            )
        )
    last = len(PARAMETERS) + length - 1
    more = draw(st.lists(st.integers(0, last), max_size=2))
    return Program(tuple(instructions), block, tuple(dict.fromkeys([last, *more])))


def inputs(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """The arguments of every program; the last says which branch is taken."""
    return arrays_of(seed) | {"condition": np.array(bool(seed % 2))}


@tvm.register_global_func("tvm_scatter.test.programs.keep", override=True)
def _keep(given: Any) -> Any:
    KEPT.tensors.append(given)
    return tvm.runtime.tensor(given.numpy() + 1)


@tvm.register_global_func("tvm_scatter.test.programs.same", override=True)
def _same(given: Any) -> Any:
    return given


@tvm.register_global_func("tvm_scatter.test.programs.return_kept", override=True)
def _return_kept(given: Any) -> Any:
    KEPT.tensors.append(tvm.runtime.tensor(given.numpy() * 2))
    return KEPT.tensors[-1]


@tvm.register_global_func("tvm_scatter.test.programs.fill", override=True)
def _fill(given: Any, result: Any) -> None:
    result.copyfrom(given.numpy() - 1)
    KEPT.tensors.append(result)


@tvm.register_global_func("tvm_scatter.test.programs.write", override=True)
def _write(given: Any) -> None:
    given.copyfrom(given.numpy() + 3)


@tvm.register_global_func("tvm_scatter.test.programs.write_kept", override=True)
def _write_kept() -> None:
    for tensor in KEPT.tensors:
        _write(tensor)


@T.prim_func(s_tir=True)
def _double(tensor: T.Buffer(SHAPE, "float32")):  # type: ignore[valid-type]
    # TVM 0.27 fuses a function in place with its producer, and fails: this one is opaque.
    T.func_attr({"op_pattern": 8})
    for i, j in T.grid(*SHAPE):
        with T.sblock("double"):
            row, column = T.axis.remap("SS", [i, j])
            tensor[row, column] = tensor[row, column] * T.float32(2)


class Builder:
    """Builds programs as functions of one module."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self.double = self.builder.add_func(_double.without_attr("global_symbol"), "double")
        self.called = {name: self._function(name) for name in ("same", "put", "both")}
        self.parameters: dict[str, Any] = {}
        self.values: list[Any] = []
        #: What is returned beside the outputs: computed where it stands, or last of all.
        self.early: list[Any] = []
        self.late: list[Any] = []
        self.in_block = False

    def module(self) -> tvm.IRModule:
        """All of it."""
        return self.builder.get()

    def _function(self, name: str) -> Any:
        x, rows = relax.Var("x", _TYPE), relax.Var("rows", relax.TensorType((COUNT,), "int64"))
        with self.builder.function(f"called_{name}", [x, rows], private=True):
            with self.builder.dataflow():
                result: Any = x
                if name != "same":
                    update = relax.const(np.full((COUNT, COLUMNS), 4, "float32"))
                    result = self.builder.emit(ops.index_put(x, [rows], update))
                if name == "both":
                    result = relax.Tuple([result, x])
                output = self.builder.emit_output(result)
            self.builder.emit_func_output(output)
        return self.builder.get().get_global_var(f"called_{name}")

    def add(self, name: str, program: Program) -> None:
        """Add a program as a function."""
        self.parameters = {
            each: relax.Var(each, relax.TensorType(array.shape, str(array.dtype)))
            for each, array in inputs(0).items()
        }
        self.values = [self.parameters[each] for each in PARAMETERS]
        self.early, self.late, self.in_block = [], [], False
        before = program.instructions[: program.block]
        pure = all(each.kind not in ("write", "write_kept", "print") for each in before)
        with self.builder.function(name, list(self.parameters.values()), pure=pure):
            for instruction in before:
                self._step(instruction)
            with self.builder.dataflow():
                self.in_block = True
                for instruction in program.instructions[program.block :]:
                    self._step(instruction)
                results = [self.values[at] for at in program.outputs] + self.early
                results += [self.builder.emit(op.negative(tensor)) for tensor in self.late]
                output = self.builder.emit_output(relax.Tuple(results))
            self.builder.emit_func_output(output)

    def _step(self, instruction: Instruction) -> None:
        make = getattr(self, f"_{instruction.kind}")
        self.values.append(make(instruction, *self._operands(instruction)))

    def _operands(self, instruction: Instruction) -> tuple[Any, Any]:
        return self.values[instruction.a], self.values[instruction.b]

    def _rows(self, instruction: Instruction) -> Any:
        return self.parameters[f"rows{instruction.seed}"]

    def _emit(self, value: Any) -> Any:
        return self.builder.emit(value)

    def _scatter(self, instruction: Instruction, a: Any, b: Any) -> Any:
        rows = self._rows(instruction)
        if instruction.known:
            places = np.random.default_rng(instruction.seed).permutation(8)[:COUNT]
            rows = relax.const(places.astype("int64"), "int64")
        updates = self.parameters["updates"]
        if instruction.seed % 2:
            updates = self._emit(op.strided_slice(b, [0], [0], [COUNT]))
        return self._emit(relax_scatter(self._emit, a, rows, updates, instruction))

    # Views

    def _memory_view(self, tensor: Any, rows: int, dtype: str | None, row: int = 0) -> Any:
        offset = relax.prim_value(tirx.IntImm("int64", row * COLUMNS * 4))
        shape = relax.ShapeExpr((rows, COLUMNS))
        return self._emit(op.memory.view(tensor, shape, dtype, offset))

    def _view(self, _: Instruction, a: Any, _b: Any) -> Any:
        return self._memory_view(a, ROWS, None)

    def _view_bits(self, _: Instruction, a: Any, _b: Any) -> Any:
        bits = self._memory_view(a, ROWS, "int32")
        self.late.append(bits)
        return self._memory_view(bits, ROWS, "float32")

    def _view_rows(self, instruction: Instruction, a: Any, _b: Any) -> Any:
        part = self._memory_view(a, 10, None, instruction.seed)
        self.late.append(self._emit(op.memory.ensure_zero_offset(part)))
        return a

    def _reshape(self, _: Instruction, a: Any, _b: Any) -> Any:
        return self._emit(op.reshape(self._emit(op.reshape(a, [ROWS * COLUMNS])), SHAPE))

    def _squeeze(self, _: Instruction, a: Any, _b: Any) -> Any:
        wide = self._emit(op.permute_dims(self._emit(op.expand_dims(a, 0)), [1, 0, 2]))
        return self._emit(op.squeeze(wide, [1]))

    def _neutral(self, instruction: Instruction, a: Any, _b: Any) -> Any:
        one, zero = relax.const(1, "float32"), tirx.FloatImm("float32", 0)
        return self._emit(
            (op.multiply(a, one), op.add(a, zero), op.maximum(a, a), op.concat([a], 0))[
                instruction.seed
            ]
        )

    def _late(self, _: Instruction, a: Any, _b: Any) -> Any:
        self.late.append(a)
        return a

    # New memory

    def _zeros(self, *_: Any) -> Any:
        return self._emit(op.zeros(SHAPE, "float32"))

    def _constant(self, instruction: Instruction, *_: Any) -> Any:
        return self._emit(relax.const(np.full(SHAPE, instruction.seed, "float32")))

    def _add(self, _: Instruction, a: Any, b: Any) -> Any:
        return self._emit(op.minimum(self._emit(op.add(a, b)), relax.const(1000, "float32")))

    def _negative(self, _: Instruction, a: Any, _b: Any) -> Any:
        return self._emit(op.negative(a))

    def _broadcast(self, _: Instruction, a: Any, _b: Any) -> Any:
        row = self._emit(op.strided_slice(a, [0], [1], [2]))
        return self._emit(op.broadcast_to(row, SHAPE))

    def _in_place(self, _: Instruction, a: Any, _b: Any) -> Any:
        new = self._emit(op.negative(a))
        return self._emit(op.call_tir_inplace(self.double, [new], 0, _TYPE))

    # Others' code

    def _read_now(self, tensor: Any) -> None:
        """Return a part of a tensor: a function whose result nothing reads might not be called."""
        first = self._emit(op.strided_slice(tensor, [0], [0], [1]))
        self.early.append(self._emit(op.negative(first)))

    def _pure(self, name: str, a: Any) -> Any:
        function = f"tvm_scatter.test.programs.{name}"
        result = self._emit(op.call_pure_packed(function, a, ty_args=[_TYPE]))
        self._read_now(result)
        return result

    def _keep(self, _: Instruction, a: Any, _b: Any) -> Any:
        return self._pure("keep", a)

    def _same(self, _: Instruction, a: Any, _b: Any) -> Any:
        return self._pure("same", a)

    def _return_kept(self, _: Instruction, a: Any, _b: Any) -> Any:
        return self._pure("return_kept", a)

    def _fill(self, _: Instruction, a: Any, _b: Any) -> Any:
        function = "tvm_scatter.test.programs.fill"
        result = self._emit(op.call_dps_packed(function, relax.Tuple([a]), _TYPE))
        self._read_now(result)
        return result

    def _packed(self, name: str, *operands: Any) -> None:
        function = relax.ExternFunc(f"tvm_scatter.test.programs.{name}")
        self._emit(relax.Call(function, list(operands), ty_args=[relax.TupleType([])]))

    def _write(self, _: Instruction, a: Any, _b: Any) -> Any:
        self._packed("write", a)
        return a

    def _write_kept(self, _: Instruction, a: Any, _b: Any) -> Any:
        self._packed("write_kept")
        return a

    def _print(self, _: Instruction, a: Any, _b: Any) -> Any:
        self._emit(op.assert_op(relax.const(True, "bool"), [a], format="{}"))
        return a

    # Functions, tuples and branches

    def _call(self, name: str, instruction: Instruction, a: Any) -> Any:
        return self._emit(relax.Call(self.called[name], [a, self._rows(instruction)]))

    def _call_same(self, instruction: Instruction, a: Any, _b: Any) -> Any:
        return self._call("same", instruction, a)

    def _call_put(self, instruction: Instruction, a: Any, _b: Any) -> Any:
        return self._call("put", instruction, a)

    def _call_both(self, instruction: Instruction, a: Any, _b: Any) -> Any:
        both = self._call("both", instruction, a)
        return self._emit(relax.TupleGetItem(both, instruction.seed % 2))

    def _tuple(self, instruction: Instruction, a: Any, b: Any) -> Any:
        both = relax.Tuple([b, a])
        if not self.in_block:
            # TVM 0.27 cannot fuse what takes tuples apart only.
            both = relax.TupleGetItem(self._emit(relax.Tuple([a, both])), 1)
        return self._emit(relax.TupleGetItem(self._emit(both), instruction.seed % 2))

    def _choose(self, _: Instruction, a: Any, b: Any) -> Any:
        return self._emit(relax.If(self.parameters["condition"], _branch(a), _branch(b)))

    def _branch(self, instruction: Instruction, a: Any, b: Any) -> Any:
        other = _branch(b) if instruction.known else self._written(instruction, b)
        taken = self._written(instruction, a)
        return self._emit(relax.If(self.parameters["condition"], taken, other))

    def _written(self, instruction: Instruction, tensor: Any) -> relax.SeqExpr:
        """A branch that writes to a tensor, and to one that it computes of it."""
        bindings: list[Any] = []

        def emit(value: Any) -> Any:
            value = self.builder.normalize(value)
            bindings.append(relax.VarBinding(relax.Var("step", value.ty), value))
            return bindings[-1].var

        rows, updates = self._rows(instruction), self.parameters["updates"]
        for data in (tensor, emit(op.negative(tensor))):
            tensor = emit(op.add(emit(ops.index_put(data, [rows], updates)), tensor))
        return relax.SeqExpr([relax.BindingBlock(bindings)], tensor)


def _branch(value: Any) -> relax.SeqExpr:
    result = relax.Var("result", value.ty)
    return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, value)])], result)
