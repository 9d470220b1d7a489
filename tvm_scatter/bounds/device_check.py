"""The ``raise`` policy on a device, where the host has to learn what a kernel has found.

A kernel writes into page-locked memory, which the host reads over and over until all is there. Who
looks for bad indices, and when, is up to the problem: see :class:`CheckKind`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.drop_signal import DropSignal
from tvm_scatter.emit.host_stream import HostStream
from tvm_scatter.emit.index_check import DeviceCheck, IndexCheck
from tvm_scatter.emit.kept_memory import counter, data_of, device_id_of, page_locked
from tvm_scatter.emit.mailbox import DropMailbox, Findings
from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, opaque_block
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem

from .host_check import CHECK_NAME, check_arguments, check_function, check_operands, raise_for

#: Bytes of indices from which on reading them once more takes an H200 longer than the way to the
#: host and back that follows a scatter (tuning/notes, "What the bounds policies cost").
_ON_DROP_BYTES = 32 << 20


#: Marks a wait that may come later in a function, with any tensor of the device to return.
CAN_WAIT = "tvm_scatter.can_wait"

#: Where a scatter signals that it has dropped an update.
DROP_MAILBOX = DropMailbox()


class CheckKind(Enum):
    """Who looks for bad indices of a scatter under ``raise``, and when.

    Attributes
    ----------
    HOST
        The host itself, before the scatter, where it can read the indices.
    BEFORE
        A launch before the scatter, which overwrites a caller's data and waits for the flags.
    BESIDE
        The same launch, but the scatter writes what nobody has seen yet: it follows at once and
        passes over what the check will report.
    ON_DROP
        The scatter itself signals that it has dropped an update, and the check is launched only
        then, to tell which index was bad. Indices are not read once more, but the host waits for
        the scatter, or for that part of it which reads them.
    """

    HOST = "host"
    BEFORE = "before"
    BESIDE = "beside"
    ON_DROP = "on drop"

    @staticmethod
    def of(problem: ScatterProblem, temporary: bool = False) -> CheckKind:
        """The kind of check that a problem gets on a device.

        Parameters
        ----------
        temporary : bool
            Whether its data is no caller's, so that overwriting it in vain does no harm.
        """
        if problem.in_place and not temporary:
            return CheckKind.BEFORE
        if problem.is_static and problem.index_size.constant >= _ON_DROP_BYTES // item_bytes(
            problem.index_dtype
        ):
            return CheckKind.ON_DROP
        return CheckKind.BESIDE

    @property
    def bounds(self) -> str:
        """The policy of the scatter itself: whether it meets bad indices."""
        if self is CheckKind.HOST:
            return "raise"
        return "trust" if self is CheckKind.BEFORE else "drop"


def check_before(
    bb: relax.BlockBuilder, check: IndexCheck, device_check: DeviceCheck
) -> relax.Expr:
    """Emit a check that is over before what takes its result, a token, begins."""
    findings = Findings(_parts(check, device_check))
    memory = _launch(bb, check, device_check, findings)
    return _wait(bb, check, findings, [check.data, memory], returned=1)


def check_beside(
    bb: relax.BlockBuilder,
    check: IndexCheck,
    device_check: DeviceCheck,
    compute: Callable[[relax.Expr], relax.Expr],
) -> relax.Expr:
    """Emit a check whose flags are awaited only when the scatter has been launched.

    Parameters
    ----------
    compute : callable
        Emits what computes the result, given a token of the check's launch.

    Returns
    -------
    result : relax.Expr
        The tensor; the host has it only if all indices are good.
    """
    findings = Findings(_parts(check, device_check))
    memory = _launch(bb, check, device_check, findings)
    arguments = [bb.emit(compute(memory)), memory]
    return _wait(bb, check, findings, arguments, returned=0, can_wait=True)


def check_on_drop(
    bb: relax.BlockBuilder,
    check: IndexCheck,
    device_check: DeviceCheck,
    compute: Callable[..., relax.Expr],
) -> relax.Expr:
    """Emit a check that is launched only if the scatter has dropped an update.

    Parameters
    ----------
    compute : callable
        Emits what computes the tensor, given what makes a drop signal of two tensors that a
        PrimFunc takes as bare handles, and these tensors.

    Returns
    -------
    result : relax.Expr
        The tensor; the host has it only if all indices are good.
    """
    findings = Findings(_parts(check, device_check))
    memory = page_locked(bb, DROP_MAILBOX.size)
    result = bb.emit(compute(partial(drop_signal_in, device_check), counter(bb), memory))
    # What stands for the data has its shape, and is there still if the data was overwritten.
    indices = check.indices
    arguments = [result, *indices, result, memory, page_locked(bb, findings.size)]
    with check_function(check) as (builder, parameters):
        handles = [T.arg(name, T.handle()) for name in ("out", "mailbox", "memory")]
        with parameters.in_body() as buffers:
            operands = check_operands(parameters, buffers, check)
            mailbox, found = DROP_MAILBOX.of(handles[1]), findings.of(handles[2])
            mailbox.await_all(HostStream(device_id_of(handles[0])))
            call = found.next_call()
            with T.If(mailbox.words[mailbox.dropped] != 0):
                with T.Then():
                    device_check.emit(operands, found, call)
                with T.Else():
                    found.expect(0)
    func = bb.add_func(builder.get(), "check_if_dropped")
    last = len(arguments) - 1
    found_type = arguments[last].ty
    checked = bb.emit(relax.op.call_tir_inplace(func, arguments, last, found_type))
    return _wait(bb, check, findings, [result, checked], returned=0)


def drop_signal_in(device_check: DeviceCheck, counter: Any, memory: Any) -> DropSignal:
    """A signal in memory of the device and of the host, which a PrimFunc takes as bare handles."""
    here = DROP_MAILBOX.of(memory)
    call = here.next_call()
    here.expect(1)
    T.buffer_store(here.words, tirx.IntImm("int64", 0), [here.dropped])
    return DropSignal(here, call, data_of(counter), partial(device_check.complete, here, call))


def _parts(check: IndexCheck, device_check: DeviceCheck) -> int:
    shapes = [shape[:-1] if check.interleaved else shape for shape in check.shapes]
    known = all(isinstance(dim, int) for shape in shapes for dim in shape)
    return device_check.parts(max(map(prod, shapes)) if known else None)


def _launch(
    bb: relax.BlockBuilder, check: IndexCheck, device_check: DeviceCheck, findings: Findings
) -> relax.Expr:
    """Emit the launch of a check; the result is the memory of its mailbox."""
    with check_function(check) as (builder, parameters):
        memory = T.arg("memory", T.handle())
        with parameters.in_body() as buffers:
            operands = check_operands(parameters, buffers, check)
            here = findings.of(memory)
            device_check.emit(operands, here, here.next_call())
    func = bb.add_func(builder.get(), CHECK_NAME)
    arguments = [*check_arguments(check), page_locked(bb, findings.size)]
    last = len(arguments) - 1
    return bb.emit(relax.op.call_tir_inplace(func, arguments, last, arguments[last].ty))


def _wait(
    bb: relax.BlockBuilder,
    check: IndexCheck,
    findings: Findings,
    arguments: list[relax.Expr],
    returned: int,
    can_wait: bool = False,
) -> relax.Expr:
    """Emit the wait for the flags: the arguments are a tensor of the device and the memory.

    It can itself be put off if it returns a tensor that nobody is to have before the flags.
    """
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.is_host_func": True})
            if can_wait:
                T.func_attr({CAN_WAIT: True})
            tensor, memory = T.arg("tensor", T.handle()), T.arg("memory", T.handle())
            with opaque_block():
                stream, here = HostStream(device_id_of(tensor)), findings.of(memory)
                here.await_all(stream)
                first_bad = here.first_bad()
                with T.If(first_bad[0] >= 0):
                    with T.Then():
                        # So that nothing runs on.
                        stream.synchronize()
                        raise_for(check, first_bad)
    func = bb.add_func(builder.get(), "raise_if_bad_index")
    return bb.emit(relax.op.call_tir_inplace(func, arguments, returned, arguments[returned].ty))
