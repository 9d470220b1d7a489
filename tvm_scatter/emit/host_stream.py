"""Waiting for a GPU's stream from compiled host code."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T
from tvm_ffi import DLDeviceType

#: Fields of an argument of TVM's calling convention, as its code generator numbers them, and the
#: types of nothing, which the result is before the call, of a number and of a device.
_TYPE, _PADDING, _VALUE = 13, 14, 15
_NONE, _INT, _DEVICE = 0, 1, 6


class HostStream:
    """The stream that kernels on a GPU are launched on while a function runs.

    Parameters
    ----------
    device_id : int32 expression
        Which GPU.
    """

    def __init__(self, device_id: Any) -> None:
        self._device_id = device_id
        # Room for two arguments and the result, taken once: calls stand in loops.
        self._stack = T.bind(T.tvm_stack_alloca("tvm_ffi_any", 3))

    def synchronize(self) -> None:
        """Add a wait for all that was launched: an error if the GPU works no more, or captures."""
        cuda = tirx.IntImm("int32", int(DLDeviceType.kDLCUDA))
        # An address, which is passed on as a number.
        stream = T.call_extern("int64", "TVMFFIEnvGetStream", cuda, self._device_id)
        # A device is passed as its type and, in the upper half of a word, its number.
        device = tirx.Cast("int64", self._device_id) * (1 << 32) + int(DLDeviceType.kDLCUDA)
        self._pass(0, _DEVICE, device)
        self._pass(1, _INT, stream)
        self._pass(2, _NONE, tirx.IntImm("int64", 0))
        T.evaluate(T.call_packed_lowered("runtime.Device_StreamSync", self._stack, 0, 2))

    def _pass(self, at: int, kind: int, value: Any) -> None:
        for field, content in (
            (_TYPE, tirx.IntImm("int32", kind)),
            (_PADDING, tirx.IntImm("int32", 0)),
            (_VALUE, value),
        ):
            T.evaluate(T.tvm_struct_set(self._stack, at, field, content))
