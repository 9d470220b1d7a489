"""A whole call of a compiled function as one CUDA graph.

TVM's own graphs exclude every kernel that reads an input or writes an output of the function. Here
inputs and outputs have fixed buffers, and are copied to and from them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.relax import VirtualMachine
from tvm.runtime import Tensor

from tvm_scatter.errors import ScatterError

from . import cuda_driver

_ALLOCATE = "vm.builtin.alloc_storage"
_TVMS_GRAPH = "vm.builtin.cuda_graph.run_or_capture"


def graphed(vm: VirtualMachine, name: str, example_inputs: Sequence[Any]) -> Graphed:
    """Capture one call of a function. Call the result in its place.

    Each call copies its inputs to fixed buffers, runs all captured kernels by one launch, and
    copies the outputs to new tensors.

    Parameters
    ----------
    vm : tvm.relax.VirtualMachine
        A virtual machine of a module compiled for CUDA. An instrument set on it is removed.
    name : str
        The function, such as ``"main"``.
    example_inputs : sequence
        Arguments of the function. All calls must have the same shapes and data types, and the same
        values of arguments that are not tensors.

    Returns
    -------
    call : Graphed
        Takes arguments like ``example_inputs``, and optionally ``out``, tensors to write to.

    Raises
    ------
    ScatterError
        If there is no such function, or a CUDA graph cannot hold it. It must not wait for the
        device, as the bounds policy ``"raise"`` does.
    """
    return Graphed(vm, name, example_inputs)


class Graphed:
    """A captured call, as :func:`graphed` returns it.

    Attributes
    ----------
    inputs : list
        The buffers that the captured kernels read. Passing a buffer itself as argument saves the
        copy.
    outputs
        The buffers that the captured kernels write, structured as the function's result.
    """

    def __init__(self, vm: VirtualMachine, name: str, example_inputs: Sequence[Any]) -> None:
        _check_call(vm, name, example_inputs)
        self._vm = vm  # keeps the constants and kernels of the graph alive
        self._name = name
        self._lock = threading.Lock()
        examples = [_as_tensors(value) for value in example_inputs]
        self._device = _device_of(name, examples)
        self.inputs = [_map(lambda tensor: _buffer_like(tensor, self._device), v) for v in examples]
        run = _Run(vm, name, self.inputs)
        self._fill(examples)
        # Nothing can be allocated during a capture, so the pool must hold enough memory for one run
        # and for the last result, which the virtual machine keeps until the next one.
        for _ in range(2):
            run()
            run.let_go()
        try:
            with cuda_driver.new_stream() as stream, tvm_ffi.use_raw_stream(self._device, stream):
                self._graph = cuda_driver.captured(stream, run)
        except Exception as error:
            reason = str(error).strip().splitlines()
            raise ScatterError(
                f"graphed: {name!r} cannot be captured; nothing in it may wait for the device, as "
                "bounds='raise' does, or allocate anew, as memory_cfg='naive' does "
                f"({reason[-1] if reason else type(error).__name__})."
            ) from error
        self._kept = run.kept
        self._allocate = run.allocate
        self.outputs = _map(lambda tensor: tensor, run.result)
        # The runs so far may have overwritten a donated input.
        self._fill(examples)

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """The function's result for the given inputs.

        Parameters
        ----------
        *inputs
            Tensors on the GPU or the host, NumPy arrays, or objects with ``__dlpack__``.
        out : optional
            Tensors to write to, structured as the result. By default, new tensors.

        Raises
        ------
        ScatterError
            If a shape, a data type, or a value that is not a tensor differs from the example's.
        """
        if len(inputs) != len(self.inputs):
            raise ScatterError(
                f"graphed: {self._name!r} takes {len(self.inputs)} inputs, not {len(inputs)}."
            )
        given = [_as_tensors(value) for value in inputs]
        for at, (value, buffer) in enumerate(zip(given, self.inputs, strict=True)):
            _check_same(f"input {at} of {self._name!r}", value, buffer)
        if out is None:
            out = _map(self._new_like, self.outputs)
        else:
            _check_same(f"out of {self._name!r}", out, self.outputs)
        with self._lock:
            self._fill(given)
            self.replay()
            _copy_all(out, self.outputs, self._stream())
        return out

    def replay(self) -> None:
        """Run the captured kernels on the contents of :attr:`inputs`."""
        self._graph.enter()
        self._graph.launch(self._stream())

    def _fill(self, values: Sequence[Any]) -> None:
        if hasattr(self, "_graph"):
            self._graph.enter()
        _copy_all(self.inputs, list(values), self._stream())

    def _stream(self) -> int:
        return int(tvm_ffi.get_raw_stream(self._device))

    def _new_like(self, tensor: Tensor) -> Tensor:
        if self._allocate is None:
            return _buffer_like(tensor, self._device)
        return self._allocate(tensor)


def _check_call(vm: Any, name: Any, example_inputs: Any) -> None:
    """Raise if the arguments are not a virtual machine, a function of it, and a list of inputs."""
    if not isinstance(vm, VirtualMachine):
        raise ScatterError(
            f"graphed: it takes a tvm.relax.VirtualMachine, not {type(vm).__name__}."
        )
    if not isinstance(name, str) or not vm.module.implements_function(name):
        raise ScatterError(f"graphed: there is no function {name!r} in the virtual machine.")
    if isinstance(example_inputs, str | Tensor) or not isinstance(example_inputs, Iterable):
        raise ScatterError(
            "graphed: example_inputs must be a list of the function's arguments, not "
            f"{type(example_inputs).__name__}."
        )


class _Run:
    """Calls a function and keeps all memory that it allocates alive.

    Captured kernels hold addresses. Memory that a virtual machine frees returns to a pool that all
    virtual machines of the process share.
    """

    def __init__(self, vm: VirtualMachine, name: str, inputs: Sequence[Any]) -> None:
        self._vm = vm
        self._name = name
        self._inputs = inputs
        self.kept: list[Any] = []
        self.result: Any = None
        self.allocate: Callable[[Tensor], Tensor] | None = None

    def __call__(self) -> None:
        self._vm.set_instrument(self._keep)
        try:
            self.result = self._vm[self._name](*self._inputs)
        finally:
            self._vm.set_instrument(None)
        if any(symbol == _TVMS_GRAPH for symbol, _, _ in self.kept):
            raise ScatterError(
                f"graphed: {self._name!r} is compiled with cuda_graph=True and holds graphs of its "
                "own; compile it without."
            )
        if not self.kept:
            raise ScatterError(
                f"graphed: {self._name!r} is compiled with exec_mode='compiled'; it must be "
                "'bytecode', the default."
            )

    def let_go(self) -> None:
        """Free the memory that the last call allocated."""
        self.kept.clear()
        self.result = None

    def _keep(self, _function: Any, symbol: str, before: bool, result: Any, *arguments: Any) -> int:
        self.kept.append((symbol, arguments, result))
        if symbol == _ALLOCATE and not before:
            self._learn_to_allocate(*arguments)
        return 0

    def _learn_to_allocate(self, context: Any, _shape: Any, device: int, *_more: Any) -> None:
        """Allocate outputs from the virtual machine's pool, which needs no synchronisation."""
        storage = tvm_ffi.get_global_func(_ALLOCATE)
        tensor = tvm_ffi.get_global_func("vm.builtin.alloc_tensor")

        def allocate(like: Tensor) -> Tensor:
            size = tvm_ffi.Shape([max(_bytes(like), 1)])
            return tensor(
                storage(context, size, device, "uint8", "global"), 0, like.shape, like.dtype
            )

        if device == 0:
            self.allocate = allocate


def _map(change: Callable[[Tensor], Any], value: Any) -> Any:
    """Apply ``change`` to every tensor of nested tuples."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tvm_ffi.Shape):
        return value
    if isinstance(value, tuple | list | tvm_ffi.Array):
        return tuple(_map(change, item) for item in value)
    return value


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _map(found.append, value)
    return found


def _as_tensors(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return tvm.runtime.tensor(value)
    if isinstance(value, tvm_ffi.Shape):
        return value
    if isinstance(value, tuple | list | tvm_ffi.Array):
        return tuple(_as_tensors(item) for item in value)
    if hasattr(value, "__dlpack__"):
        return tvm.runtime.from_dlpack(value)
    return value


def _device_of(name: str, values: Sequence[Any]) -> Any:
    devices = {tensor.device for tensor in _tensors(values)}
    gpus = [
        device
        for device in devices
        if device.dlpack_device_type() == tvm.cuda().dlpack_device_type()
    ]
    if len(gpus) > 1:
        raise ScatterError(f"graphed: the inputs of {name!r} are on several GPUs.")
    if not gpus and not tvm.cuda(0).exist:
        raise ScatterError(f"graphed: {name!r} runs on a CPU; only a GPU has CUDA graphs.")
    return gpus[0] if gpus else tvm.cuda(0)


def _buffer_like(tensor: Tensor, device: Any) -> Tensor:
    return tvm.runtime.empty(tensor.shape, tensor.dtype, device)


def _bytes(tensor: Tensor) -> int:
    return (tensor.numel() * tensor.dtype.bits * tensor.dtype.lanes + 7) // 8


def _copy_all(to: Any, source: Any, stream: int) -> None:
    for left, right in zip(_tensors(to), _tensors(source), strict=True):
        if left.data_ptr() != right.data_ptr():
            cuda_driver.copy(left.data_ptr(), right.data_ptr(), _bytes(left), stream)


def _check_same(what: str, value: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        items = value if isinstance(value, tuple | list | tvm_ffi.Array) else ()
        if len(items) != len(expected):
            raise ScatterError(f"graphed: {what} must be a tuple of {len(expected)}.")
        for at, (item, buffer) in enumerate(zip(items, expected, strict=True)):
            _check_same(f"{what}[{at}]", item, buffer)
    elif not isinstance(expected, Tensor):
        if value != expected:
            raise ScatterError(f"graphed: {what} is {value} and was {expected} when captured.")
    elif not isinstance(value, Tensor) or _type(value) != _type(expected):
        got = _type(value) if isinstance(value, Tensor) else repr(value)
        raise ScatterError(
            f"graphed: {what} is {got} and was {_type(expected)} when captured; capture it again "
            "for other shapes and types."
        )


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"
