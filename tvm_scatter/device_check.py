"""The ``raise`` policy on a device: a check that the host waits for, but for nothing else.

Parts of the indices are checked by themselves, and each leaves an answer in page-locked memory,
which the host reads over and over until all are there. A scatter into a new tensor, which nobody
has seen yet, is launched before that and passes over what the check will report; one that
overwrites its data is launched after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .bounds import (
    CHECK_NAME,
    STATUS,
    CheckOperands,
    check_arguments,
    check_function,
    check_operands,
    raise_for,
)
from .emission import PRIM_FUNC_ATTRS
from .host_stream import HostStream
from .lower import Lowered
from .page_locked import data_of, device_id_of, page_locked
from .problem import ScatterProblem

#: How often the host looks for an answer before it waits for the stream, which tells it if the GPU
#: will never give one.
_TURNS = 1 << 15


@dataclass(frozen=True)
class Answers:
    """Where a check leaves what it finds.

    Word 0 is the number of the call, which tells its answers from those of earlier calls. A word
    for each part is that number if the part has no bad entry, and its negative if it has. Then the
    first bad entry of each part follows, as :data:`~tvm_scatter.bounds.STATUS` has it.
    """

    parts: int
    words: Any = None

    @property
    def size(self) -> int:
        """How many words there are."""
        return 1 + self.parts * (1 + len(STATUS))

    @property
    def first_answer(self) -> int:
        """The word with the answer of the first part."""
        return 1

    @property
    def first_entry(self) -> int:
        """The word at which the bad entry of the first part begins."""
        return 1 + self.parts

    def of(self, tensor: Any) -> Answers:
        """These answers, in a tensor that a PrimFunc takes as a bare handle."""
        words = T.decl_buffer((self.size,), "int64", data=data_of(tensor))
        return Answers(self.parts, words)

    def answer(self, part: Any) -> Any:
        """The answer of a part."""
        return self.words[part + self.first_answer]

    def entry(self, part: Any) -> list[Any]:
        """The bad entry of a part."""
        begin = part * len(STATUS) + self.first_entry
        return [self.words[begin + j] for j in range(len(STATUS))]


@dataclass(frozen=True)
class DeviceCheck:
    """How a device checks indices.

    Attributes
    ----------
    parts : callable
        In how many parts it checks a number of entries, which is symbolic or an ``int``.
    emit : callable
        Adds the launch. It is given the operands, the answers to fill, and the number of the call.
    """

    parts: Callable[[Any], int]
    emit: Callable[[CheckOperands, Answers, Any], None]


def is_beside(problem: ScatterProblem) -> bool:
    """Whether a scatter under ``raise`` is computed while its indices are still being checked."""
    return not problem.in_place


def check_before(bb: relax.BlockBuilder, lowered: Lowered, device_check: DeviceCheck) -> relax.Expr:
    """Emit a check that is over before what takes its result, a token, begins."""
    answers = Answers(_parts(lowered, device_check))
    memory = _launch(bb, lowered, device_check, answers)
    return _wait(bb, lowered, answers, [lowered.data, memory], returned=1)


def check_beside(
    bb: relax.BlockBuilder,
    lowered: Lowered,
    device_check: DeviceCheck,
    compute: Callable[[relax.Expr], relax.Expr],
) -> relax.Expr:
    """Emit a check whose answers are awaited only when a new tensor is being computed.

    Parameters
    ----------
    compute : callable
        Emits what computes the tensor, given a token of the check's launch.

    Returns
    -------
    result : relax.Expr
        The tensor; the host has it only if all indices are good.
    """
    answers = Answers(_parts(lowered, device_check))
    memory = _launch(bb, lowered, device_check, answers)
    return _wait(bb, lowered, answers, [bb.emit(compute(memory)), memory], returned=0)


def _parts(lowered: Lowered, device_check: DeviceCheck) -> int:
    check = lowered.check
    shapes = [shape[:-1] if check.interleaved else shape for shape in check.shapes]
    known = all(isinstance(dim, int) for shape in shapes for dim in shape)
    return device_check.parts(max(map(prod, shapes)) if known else None)


def _launch(
    bb: relax.BlockBuilder, lowered: Lowered, device_check: DeviceCheck, answers: Answers
) -> relax.Expr:
    """Emit the launch of a check; the result is the memory for its answers."""
    with check_function(lowered) as (builder, parameters):
        memory = T.arg("memory", T.handle())
        operands = check_operands(parameters, parameters.buffers(), lowered)
        with T.sblock("root"):
            T.reads()
            T.writes()
            here = answers.of(memory)
            call = T.bind(here.words[0] + 1)
            T.buffer_store(here.words, call, [0])
            device_check.emit(operands, here, call)
    func = bb.add_func(builder.get(), CHECK_NAME)
    arguments = [*check_arguments(lowered), page_locked(bb, answers.size)]
    last = len(arguments) - 1
    return bb.emit(relax.op.call_tir_inplace(func, arguments, last, arguments[last].ty))


def _wait(
    bb: relax.BlockBuilder,
    lowered: Lowered,
    answers: Answers,
    arguments: list[relax.Expr],
    returned: int,
) -> relax.Expr:
    """Emit the wait for the answers: the arguments are a tensor of the device and the memory."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("raise_if_bad_index")
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.is_host_func": True})
            tensor, memory = T.arg("tensor", T.handle()), T.arg("memory", T.handle())
            with T.sblock("root"):
                T.reads()
                T.writes()
                stream = HostStream(device_id_of(tensor))
                here = answers.of(memory)
                with T.If(_any_bad(here, stream)[0]):
                    with T.Then():
                        # So that what the check has found is there as well, and nothing runs on.
                        stream.synchronize()
                        raise_for(lowered, _first_bad(here))
    func = bb.add_func(builder.get(), "raise_if_bad_index")
    return bb.emit(relax.op.call_tir_inplace(func, arguments, returned, arguments[returned].ty))


def _any_bad(answers: Answers, stream: HostStream) -> Any:
    """Wait for all answers; the entry of the buffer says whether one of them is bad."""
    any_bad = T.alloc_buffer((1,), "bool", scope="global")
    turns = T.alloc_buffer((1,), "int32", scope="global")
    T.buffer_store(any_bad, tirx.const(False, "bool"), [0])
    T.buffer_store(turns, tirx.IntImm("int32", 0), [0])
    good = T.bind(answers.words[0])
    bad = T.bind(0 - good)
    with T.serial(answers.parts) as part:
        with T.While(tirx.all(answers.answer(part) != good, answers.answer(part) != bad)):
            # A call that the compiler cannot look into, so that memory is read anew.
            T.evaluate(T.call_extern("int32", "sched_yield"))
            T.buffer_store(turns, turns[0] + 1, [0])
            with T.If(turns[0] == _TURNS):
                with T.Then():
                    T.buffer_store(turns, tirx.IntImm("int32", 0), [0])
                    stream.synchronize()
        with T.If(answers.answer(part) == bad):
            with T.Then():
                T.buffer_store(any_bad, tirx.const(True, "bool"), [0])
    return any_bad


def _first_bad(answers: Answers) -> Any:
    """The first bad entry of all parts."""
    status = T.alloc_buffer((len(STATUS),), "int64", scope="global")
    T.buffer_store(status, tirx.IntImm("int64", -1), [0])
    with T.serial(answers.parts) as part:
        entry = answers.entry(part)
        earlier = tirx.any(status[0] < 0, entry[0] < status[0])
        with T.If(tirx.all(answers.answer(part) != answers.words[0], earlier)):
            with T.Then():
                for j, word in enumerate(entry):
                    T.buffer_store(status, word, [j])
    return status
