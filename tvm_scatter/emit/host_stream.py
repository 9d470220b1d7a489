"""Waiting for a GPU's stream from compiled host code."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T
from tvm_ffi import DLDeviceType

#: Numbers from TVM's code generator: fields of a packed argument, and type codes of ``None`` (the
#: result before the call), of an integer and of a device.
_TYPE, _PADDING, _VALUE = 13, 14, 15
_NONE, _INT, _DEVICE = 0, 1, 6


class HostStream:
    """The stream on which the current function launches kernels.

    Parameters
    ----------
    device_id : int32 expression
        The number of the GPU.
    """

    def __init__(self, device_id: Any) -> None:
        self._device_id = device_id
        # Stack space for two arguments and the result. It is allocated once, because calls stand in
        # loops.
        self._stack = T.bind(T.tvm_stack_alloca("tvm_ffi_any", 3))

    def synchronize(self) -> None:
        """Emit a wait for all launches. It fails if a kernel failed or the stream is captured."""
        cuda = tirx.IntImm("int32", int(DLDeviceType.kDLCUDA))
        # The stream is a pointer, and is passed as an integer.
        stream = T.call_extern("int64", "TVMFFIEnvGetStream", cuda, self._device_id)
        # A device is one word: its type in the lower half and its number in the upper half.
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
