"""The ``raise`` policy on a device: a kernel looks for bad indices and tells the host.

The kernel writes to page-locked memory, which the host polls. Which kernel looks for bad indices,
and when, depends on the problem: see :class:`CheckKind`.
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

#: From this many bytes of indices on, reading them once more takes an H200 longer than the round
#: trip to the host after a scatter (``tuning/notes/bounds.md``).
_ON_DROP_BYTES = 32 << 20


#: Attribute of a wait that may be moved to the end of a function, where it may return any tensor of
#: the device.
CAN_WAIT = "tvm_scatter.can_wait"

#: The mailbox in which a scatter signals a dropped update.
DROP_MAILBOX = DropMailbox()


class CheckKind(Enum):
    """How the bad indices of a scatter are found under ``raise``.

    Attributes
    ----------
    HOST
        The host checks the indices before the scatter, if it can read them.
    BEFORE
        A launch before the scatter checks them, and the host waits for its result. Used if the
        scatter overwrites a caller's data.
    BESIDE
        The same launch, but the scatter follows at once, drops updates with bad indices, and the
        host waits afterwards. Used if the scatter writes memory that no caller sees yet.
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
        """The kind of check for a problem on a device.

        Parameters
        ----------
        temporary : bool
            Whether the data is an intermediate value, which may be overwritten before an error.
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
        """The bounds policy that the scatter itself is compiled with."""
        if self is CheckKind.HOST:
            return "raise"
        return "trust" if self is CheckKind.BEFORE else "drop"


def check_before(
    bb: relax.BlockBuilder, check: IndexCheck, device_check: DeviceCheck
) -> relax.Expr:
    """Emit a check and a wait for it. The result is a token that the scatter must take."""
    findings = Findings(_parts(check, device_check))
    memory = _launch(bb, check, device_check, findings)
    return _wait(bb, check, findings, [check.data, memory], returned=1)


def check_beside(
    bb: relax.BlockBuilder,
    check: IndexCheck,
    device_check: DeviceCheck,
    compute: Callable[[relax.Expr], relax.Expr],
) -> relax.Expr:
    """Emit a check, then the scatter, then the host's wait for the check.

    Parameters
    ----------
    compute : callable
        Emits the scatter, given a token of the check's launch, and returns its result.

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
        Emits the scatter and returns its result. Its arguments are a function that makes the drop
        signal inside of the PrimFunc, and the two tensors, counter and mailbox, that the PrimFunc
        must pass to that function as bare handles.

    Returns
    -------
    result : relax.Expr
        The tensor; the host has it only if all indices are good.
    """
    findings = Findings(_parts(check, device_check))
    memory = page_locked(bb, DROP_MAILBOX.size)
    result = bb.emit(compute(partial(drop_signal_in, device_check), counter(bb), memory))
    # The check needs the data for its shape only. The result has that shape, and exists even if the
    # scatter has overwritten the data.
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
    """A drop signal of a device counter and a host mailbox, both bare handles of a PrimFunc."""
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
    """Emit the launch of a check and return the memory of its mailbox."""
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
    """Emit the wait for the flags; ``arguments`` are a tensor on the device and the mailbox.

    The wait may be moved to the end of a function (``can_wait``) if it returns the scatter's
    result.
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
                        # No kernel may still run when the error is raised.
                        stream.synchronize()
                        raise_for(check, first_bad)
    func = bb.add_func(builder.get(), "raise_if_bad_index")
    return bb.emit(relax.op.call_tir_inplace(func, arguments, returned, arguments[returned].ty))
