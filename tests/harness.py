"""Build and run scatters in tests: one operator in a Relax module, or one problem by itself."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import tvm
from cuda_cases import cuda_target
from cuda_on_cpu import real_gpu, schedule, status
from tvm import relax
from tvm_ffi import DLDeviceType

import tvm_scatter
from tvm_scatter.bounds.device_check import DROP_MAILBOX, drop_signal_in
from tvm_scatter.lowering.emission import build_prim_func, workspace_size
from tvm_scatter.options import Options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Signature
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.strategy import strategy_for

Build = Callable[..., Any]
#: Bytes on both sides of what a kernel writes, and what they hold.
GUARD_BYTES = 4096
GUARD = 0xA5
#: In which threads and blocks of a simulated device can run.
ORDERS = ("forward", "reversed", "shuffled", "mixed", "eager")


def target_of(device: str) -> tvm.target.Target:
    """A target for a device name of the tests: ``llvm`` or ``cuda``."""
    if device == "llvm":
        return tvm.target.Target("llvm")
    if real_gpu():
        return tvm.target.Target.from_device(tvm.cuda(0))
    # Host code that is optimised takes half as long to compile as the kernels.
    host = {"kind": "llvm", "opt-level": 0}
    return tvm.target.Target({**dict(cuda_target("sm_90").export()), "host": host})


def device_of(device: str) -> Any:
    """The TVM device that runs code for a device name of the tests."""
    return tvm.cpu() if device == "llvm" else tvm.cuda(0)


def relax_function(
    builder: relax.BlockBuilder,
    name: str,
    build: Build,
    arrays: Sequence[np.ndarray[Any, Any]],
    symbolic: bool | Container[int] = False,
) -> None:
    """Add a function that computes ``build(*parameters)`` with parameters shaped like ``arrays``.

    Where ``symbolic``, every dimension is a symbolic size, or those of the sizes that it contains;
    equal sizes get one name.
    """
    sizes: dict[int, Any] = {}

    def dim(size: int) -> Any:
        if not (symbolic if isinstance(symbolic, bool) else size in symbolic):
            return size
        return sizes.setdefault(size, tvm.tirx.Var(f"d{size}", "int64"))

    parameters = [
        relax.Var(f"p{i}", relax.TensorType([dim(size) for size in array.shape], str(array.dtype)))
        for i, array in enumerate(arrays)
    ]
    with builder.function(name, parameters):
        with builder.dataflow():
            result = builder.emit(build(*parameters))
            output = builder.emit_output(result)
        builder.emit_func_output(output)


def run(
    build: Build,
    arrays: Sequence[np.ndarray[Any, Any]],
    device: str = "llvm",
    symbolic: bool | Container[int] = False,
    **options: Any,
) -> np.ndarray[Any, Any]:
    """Compile and run one expression over Relax parameters.

    Parameters
    ----------
    build : callable
        Gets one Relax variable for each array and returns a Relax expression.
    arrays : sequence of numpy.ndarray
        The arguments.
    **options
        Passed to :func:`tvm_scatter.options`.
    """
    return run_all({"main": (build, arrays)}, device, symbolic, **options)["main"]


def run_all(
    calls: Mapping[str, tuple[Build, Sequence[np.ndarray[Any, Any]]]],
    device: str = "llvm",
    symbolic: bool | Container[int] = False,
    **options: Any,
) -> dict[str, np.ndarray[Any, Any]]:
    """Compile many expressions as one module, far cheaper than one by one, and run each."""
    return run_compiled(compile_all(calls, device, symbolic, **options), calls, device)


def run_compiled(
    machine: relax.VirtualMachine,
    calls: Mapping[str, tuple[Build, Sequence[np.ndarray[Any, Any]]]],
    device: str,
) -> dict[str, np.ndarray[Any, Any]]:
    """Run each of the expressions that :func:`compile_all` has compiled."""
    on = device_of(device)
    return {
        name: machine[name](*[tvm.runtime.tensor(a, device=on) for a in arrays]).numpy()
        for name, (_, arrays) in calls.items()
    }


def orders(device: str) -> Iterator[str]:
    """Run what the loop holds once, and on a simulated device in another order of threads, too.

    An answer that depends on the order of threads or blocks has a race behind it.
    """
    yield "forward"
    if device == "cuda" and status():
        with in_order("mixed"):
            yield "mixed"


def compiled_with(module: tvm.IRModule, device: str, **options: Any) -> Any:
    """A virtual machine with a module that is compiled inside of options."""
    with tvm_scatter.options(**options):
        executable = tvm.compile(module, target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


def called(compiled: Any, device: str, arrays: Sequence[Any], name: str = "main") -> Any:
    """The result; on a simulated device it must not depend on the order of threads."""
    tensors = [tvm.runtime.tensor(each, device_of(device)) for each in arrays]
    first, *others = [compiled[name](*tensors).numpy() for _ in orders(device)]
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


def in_order(order: str) -> AbstractContextManager[None]:
    """Threads and blocks of a simulated device run in this order inside the block."""
    if order == "forward" or not status():
        return contextlib.nullcontext()
    if order == "mixed":
        return schedule(threads="reversed", blocks="shuffled", seed=1)
    return schedule(threads=order, blocks=order, seed=1)


def compile_all(
    calls: Mapping[str, tuple[Build, Sequence[np.ndarray[Any, Any]]]],
    device: str = "llvm",
    symbolic: bool | Container[int] = False,
    **options: Any,
) -> relax.VirtualMachine:
    """Compile many expressions as one module."""
    builder = relax.BlockBuilder()
    for name, (build, arrays) in calls.items():
        relax_function(builder, name, build, arrays, symbolic)
    with tvm_scatter.options(**options):
        executable = tvm.compile(builder.get(), target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


def problems(
    calls: Mapping[str, tuple[Build, Sequence[np.ndarray[Any, Any]]]], device: str, **options: Any
) -> dict[str, list[ScatterProblem]]:
    """What the scatters of each call are as problems under the options."""
    builder = relax.BlockBuilder()
    for name, (build, arrays) in calls.items():
        relax_function(builder, name, build, arrays)
    # Where an implementation is forced, lines stay lines.
    with tvm_scatter.options(turn_lines=False, **options):
        explanations = tvm_scatter.explain(builder.get(), target_of(device))
    found: dict[str, list[ScatterProblem]] = {name: [] for name in calls}
    for each in explanations:
        if each.problem is not None:
            found[each.where.split(".")[0]].append(each.problem)
    return found


def applicable(
    calls: Mapping[str, tuple[Build, Sequence[np.ndarray[Any, Any]]]],
    implementation: str,
    device: str,
    **options: Any,
) -> list[str]:
    """The names of the calls that an implementation takes under the options."""
    found = problems(calls, device, **options)
    return [name for name in calls if takes(implementation, found[name], device)]


def takes(implementation: str, problems: Sequence[ScatterProblem], device: str) -> bool:
    """Whether an implementation takes any of the problems."""
    strategy, target = strategy_for(device), target_of(device)
    assert strategy is not None
    chosen = strategy.implementations[implementation]
    return any(strategy.refusal(chosen, problem, target) is None for problem in problems)


def assert_same(
    actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], what: str, tolerance: float = 0
) -> None:
    """Equal type, shape and values; a NaN equals a NaN."""
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    left, right = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance, err_msg=what)


class ProblemRunner:
    """Problems compiled as one module, each by a forced implementation.

    Parameters
    ----------
    device : str
        ``llvm`` or ``cuda``.

    Attributes
    ----------
    workspace_byte : int
        What each byte of a workspace is before a run.
    """

    def __init__(self, device: str = "llvm") -> None:
        self.device = device
        self.workspace_byte = 171
        self._functions: dict[str, Any] = {}
        self._problems: dict[str, tuple[ScatterProblem, Any]] = {}
        self._signatures: dict[str, tuple[Signature, dict[str, int]]] = {}
        self._sizes: dict[str, int | None] = {}
        self.target = target_of(device)
        self._guards: list[Any] = []
        self._module: Any = None
        self._mailboxes: dict[str, Any] = {}
        self._counters: dict[str, Any] = {}

    def add(
        self,
        name: str,
        problem: ScatterProblem,
        implementation: str | None = None,
        knobs: Mapping[str, int] | None = None,
        sizes: Mapping[str, int] | None = None,
        signals_drops: bool = False,
    ) -> None:
        """Add a problem; ``sizes`` are the values of its symbols at run time.

        With ``signals_drops`` it tells the host of bad indices: see :meth:`dropped`.
        """
        target = self.target
        strategy = strategy_for(self.device)
        assert strategy is not None
        options = Options(implementation, tuple(sorted((knobs or {}).items())))
        selection = strategy.select(problem, target, options)
        signature = signature_of(problem)
        make_signal = partial(drop_signal_in, strategy.device_check) if signals_drops else None
        function = build_prim_func(
            problem,
            signature,
            selection,
            target,
            tokens=2 * int(signals_drops),
            make_signal=make_signal,
        )
        if signals_drops:
            host = tvm.device(DLDeviceType.kDLCUDAHost)
            self._mailboxes[name] = tvm.runtime.tensor(
                np.zeros(DROP_MAILBOX.size, "int64"), device=host
            )
            on = device_of(self.device)
            self._counters[name] = tvm.runtime.tensor(np.zeros(1, "int32"), device=on)
        self._functions[name] = function.with_attr("global_symbol", name)
        self._problems[name] = (problem, selection)
        self.set_sizes(name, sizes or {})

    def set_sizes(self, name: str, sizes: Mapping[str, int]) -> None:
        """Give the symbols of a problem other values."""
        problem, selection = self._problems[name]
        self._signatures[name] = (signature_of(problem), dict(sizes))
        target, ones = target_of(self.device), dict.fromkeys(problem.symbols, 1)
        size = workspace_size(problem, selection, dict(sizes), target)
        if size is None and workspace_size(problem, selection, ones, target):
            size = 16  # a function of symbolic sizes takes one even where it is empty
        self._sizes[name] = None if size is None else int(size)

    def compile(self) -> None:
        """Compile all problems as one module."""
        self._module = tvm.compile(tvm.IRModule(self._functions), self.target)

    def source(self, form: str) -> str:
        """What the compiled module looks like, such as ``"asm"``."""
        return str(self._module.mod.inspect_source(form))

    def run(
        self,
        name: str,
        data: np.ndarray[Any, Any],
        indices: Sequence[np.ndarray[Any, Any]],
        updates: np.ndarray[Any, Any],
        in_place: bool = False,
        shift: tuple[int, int, int] = (0, 0, 0),
    ) -> np.ndarray[Any, Any]:
        """Run one of the problems; compiles all of them at the first call.

        ``shift`` is how many elements data and output, indices, and updates are away from where a
        tensor is allocated.
        """
        if self._module is None:
            self.compile()
        self._guards.clear()
        on = device_of(self.device)
        signature, sizes = self._signatures[name]
        shapes = [
            tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape)
            for shape in (signature.data, *signature.indices, signature.updates)
        ]
        shifts = (shift[0], *[shift[1]] * len(indices), shift[2])
        arguments = [
            self._guarded(shape, array, on, by)
            if by
            else tvm.runtime.tensor(array.reshape(shape), device=on)
            for array, shape, by in zip((data, *indices, updates), shapes, shifts, strict=True)
        ]
        if name in self._mailboxes:
            arguments += [self._counters[name], self._mailboxes[name]]
        if in_place:
            result = arguments[0] = self._guarded(shapes[0], data, on, shift[0])
        else:
            result = self._guarded(shapes[0], np.zeros_like(data), on, shift[0])
            arguments.append(result)
        size = self._sizes[name]
        if size is not None:
            # A workspace may hold anything at first; zeros would hide a missing initialisation.
            before = np.full(size, self.workspace_byte, "uint8")
            arguments.append(self._guarded((size,), before, on))
        self._module[name](*arguments)
        self._check_guards()
        inputs = list(zip((data, *indices, updates), arguments, strict=False))[int(in_place) :]
        for before, after in inputs:
            assert after.numpy().tobytes() == before.tobytes(), "an input has changed"
        return result.numpy().reshape(data.shape)

    def dropped(self, name: str) -> bool:
        """Whether the last run of a problem has dropped an update; the signal is gone then."""
        device_of(self.device).sync()
        words = self._mailboxes[name].numpy()
        assert words[DROP_MAILBOX.first_flag] == words[0], "the host was not told"
        assert self._counters[name].numpy() == 0, "blocks have not counted to the end"
        zeros = np.zeros(DROP_MAILBOX.size, "int64")
        self._mailboxes[name].copyfrom(zeros)
        return bool(words[DROP_MAILBOX.dropped])

    def _guarded(
        self, shape: Sequence[int], value: np.ndarray[Any, Any], on: Any, shift: int = 0
    ) -> Any:
        """A tensor with guard bytes on both sides."""
        content = value.reshape(-1).view(np.uint8) if value.size else np.zeros(0, np.uint8)
        before = GUARD_BYTES + shift * value.itemsize
        guards = (np.full(size, GUARD, np.uint8) for size in (before, GUARD_BYTES))
        buffer = tvm.runtime.tensor(np.concatenate([next(guards), content, *guards]), device=on)
        self._guards.append((buffer, before))
        view = buffer._create_view(tuple(shape), str(value.dtype), before)
        return at_its_address(view)

    def _check_guards(self) -> None:
        for buffer, before in self._guards:
            content = buffer.numpy()
            written = np.count_nonzero(content[:before] != GUARD)
            written += np.count_nonzero(content[-GUARD_BYTES:] != GUARD)
            assert not written, f"{written} bytes written outside the output"
        self._guards.clear()


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("object_header", ctypes.c_uint64 * 3),
        ("data", ctypes.c_uint64),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


def declared(shape: Sequence[int], dtype: str) -> Any:
    """A tensor that says it has this shape, on the CPU. There is memory for a few elements."""
    room = np.zeros(256, dtype)
    # TVM takes aligned memory only.
    aligned = room[-room.ctypes.data % 64 // room.itemsize :]
    strides = [room.itemsize * math.prod(shape[at + 1 :]) for at in range(len(shape))]
    return tvm.runtime.from_dlpack(np.lib.stride_tricks.as_strided(aligned, shape, strides))


def at_its_address(view: Any) -> Any:
    """A view with its offset moved into the address: compiled functions take no byte offset."""
    fields = _DLTensor.from_address(view.__chandle__())
    assert fields.ndim == len(view.shape)
    fields.data += fields.byte_offset
    fields.byte_offset = 0
    return view


def signature_of(problem: ScatterProblem) -> Signature:
    """Flat operands for a problem."""

    def flat(*extents: SymbolicSize) -> tuple[int | str, ...]:
        constant, symbols = 1, []
        for extent in extents:
            constant *= extent.constant
            symbols += extent.symbols
        return (constant, *symbols) if constant != 1 or not symbols else tuple(symbols)

    components = len(problem.extents)
    items = [problem.count]
    if problem.index_batch:
        items.append(problem.batch)
    if problem.index_slice:
        items.append(problem.slice)
    index = flat(*items)
    updates = [
        extent
        for extent, varies in (
            (problem.batch, problem.update_batch),
            (problem.count, problem.update_count),
            (problem.slice, problem.update_slice),
        )
        if varies
    ]
    return Signature(
        operator="scatter",
        data=flat(problem.batch, problem.extent, problem.slice),
        indices=((*index, components),) if problem.interleaved else (index,) * components,
        updates=flat(*updates),
    )
