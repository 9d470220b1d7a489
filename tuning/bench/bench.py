"""The benchmark: every workload, ours against every peer, checked before it is timed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

import tvm_scatter
from tvm_scatter.errors import ScatterError
from tvm_scatter.options import Options
from tvm_scatter.selection.strategy import strategy_for
from tvm_scatter.selection.targets import host_target, need_device
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.call_times import CallTimes, copy_bandwidth
from tvm_scatter.tuning.measure.kernel import Kernel, compile_selections
from tvm_scatter.tuning.measure.machine import describe, kernels
from tvm_scatter.tuning.space.workloads import WORKLOADS, Workload

from . import peers, reports
from .reference import Reference, expanded
from .resumed import continued


@dataclass
class Row:
    """One workload's figures, in microseconds.

    Attributes
    ----------
    floor : float
        The bytes that must move over the measured copy bandwidth.
    ours : CallTimes
        The strategy's own choice.
    implementation : str
        The one that the strategy chose.
    others : dict
        Every peer's form, and our other implementations as ``ours: name``.
    failed : dict
        Peers that cannot do the workload, with the last line of what they say.
    error : float
        Largest difference from the float64 reference, relative to the sum of magnitudes that went
        into the element.
    earlier : dict or None
        For a row of an earlier run, the facts of that run that differ from the report's.
    """

    workload: str
    implementation: str
    floor: float
    ours: CallTimes
    error: float
    others: dict[str, CallTimes] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    earlier: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """The workload's name, with a mark where an earlier run measured it."""
        return self.workload if self.earlier is None else f"{self.workload}*"

    @property
    def best_peer(self) -> tuple[str, float]:
        """The fastest peer that gives what the workload asks for, and its device time."""
        theirs = {n: t.device for n, t in self.others.items() if not n.startswith("ours: ")}
        if any(w.name == self.workload and w.deterministic for w in WORKLOADS):
            # Only PyTorch has a mode in which these are reproducible; torch.compile keeps it. Stock
            # TVM is timed only where it applies updates in order.
            theirs = {n: t for n, t in theirs.items() if n.startswith(("torch", "stock"))}
        if not theirs:
            return "none", math.nan
        name = min(theirs, key=theirs.__getitem__)
        return name, theirs[name]


@dataclass
class Report:
    """A run of the benchmark and what it ran on."""

    machine: dict[str, Any]
    rows: list[Row]

    def geometric_mean(self) -> float:
        """Of the ratios of the best peer to ours."""
        return reports.geometric_mean(row.best_peer[1] / row.ours.device for row in self.rows)

    def continued(self, machine: dict[str, Any]) -> Report:
        """A report for another run to continue, with these rows marked as an earlier run's.

        Raises
        ------
        ScatterError
            If that run differs from this one in a fact that makes the figures incomparable.
        """
        return Report(machine, continued(self.rows, self.machine, machine))

    def save(self, path: Path) -> None:
        """Write the report as JSON."""
        reports.save(self, path)

    @staticmethod
    def load(path: Path) -> Report:
        """Read a report that :meth:`save` wrote.

        Raises
        ------
        ScatterError
            If the file is no report.
        """
        return Report(*reports.load(path, "a run", _row))


def _row(fields: Mapping[str, Any]) -> Row:
    ours = CallTimes(**fields["ours"])
    others = {name: CallTimes(**times) for name, times in fields["others"].items()}
    return Row(**{**fields, "ours": ours, "others": others})


def run(
    device: str,
    workloads: Iterable[Workload] = WORKLOADS,
    compile_best: bool = False,
    stock: bool = False,
    jax: bool = False,
    all_implementations: bool = False,
) -> Iterator[Row]:
    """Check and time workloads one by one.

    Parameters
    ----------
    device : str
        ``"cuda"`` or ``"cpu"``.
    compile_best : bool
        Whether ``torch.compile`` is a peer as well; it takes seconds for each workload.
    stock, jax : bool
        Whether TVM without this package, and JAX, are peers as well.
    all_implementations : bool
        Whether each of our implementations that applies is timed, not only the chosen one.

    Raises
    ------
    ScatterError
        If PyTorch is not installed or a result of ours is wrong.
    """
    try:
        import torch
    except ImportError as missing:
        raise ScatterError(
            "bench: it compares with PyTorch; install tvm_scatter[torch]."
        ) from missing
    if device == "cpu":
        share_threads()
    target = Target.from_device(tvm.cuda(0)) if device == "cuda" else host_target()
    times_of = call_times.on_gpu if device == "cuda" else call_times.on_cpu
    bandwidth = copy_bandwidth(device)
    for workload in workloads:
        data, index, updates = make_tensors(workload, device)
        result = torch.empty_like(data)
        kernels = _kernels(workload, target, all_implementations)
        expected = Reference.of(workload, data, index, updates)
        timed: dict[str, CallTimes] = {}
        error = 0.0
        for name, kernel in kernels.items():
            call = call_of(kernel, data, index, updates, result)
            result.fill_(7)
            call()
            off = expected.check(result, name)
            error = off if name == "chosen" else error
            timed[name] = times_of(call)
        row = Row(
            workload.name,
            kernels["chosen"].selection.implementation.name,
            workload.floor_bytes / bandwidth,
            timed.pop("chosen"),
            error,
            {f"ours: {name}": t for name, t in timed.items()},
        )
        del expected
        tensors = (data, index, updates)
        with _determinism(workload):
            for name, form in _peers(workload, tensors, target, compile_best, stock, jax):
                try:
                    row.others[name] = times_of(form)
                except Exception as refusal:
                    # A peer that cannot do a workload is no reason to stop; the report shows it.
                    row.failed[name] = str(refusal).strip().splitlines()[-1][:200]
        yield row
        del data, index, updates, result, kernels
        if device == "cuda":
            torch.cuda.empty_cache()


def share_threads() -> None:
    """Give TVM as many threads as PyTorch, before TVM starts them.

    TVM would also bind the main thread to the first core. A peer that starts threads later would
    inherit that, and all of them would share the one core.
    """
    import torch

    os.environ["TVM_NUM_THREADS"] = str(torch.get_num_threads())
    os.environ["TVM_BIND_THREADS"] = "0"


def _peers(
    workload: Workload,
    tensors: tuple[Any, Any, Any],
    target: Target,
    compile_best: bool,
    stock: bool,
    jax: bool,
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The forms of every peer that is wanted; each is prepared when it is first called."""

    def later(prepare: Callable[[], Callable[[], Any]]) -> Callable[[], Any]:
        prepared: list[Callable[[], Any]] = []

        def call() -> Any:
            if not prepared:
                prepared.append(prepare())
            return prepared[0]()

        return call

    yield from peers.torch_forms(workload, *tensors).items()
    if not tensors[0].is_cuda:
        yield from peers.torch_forms_into(workload, *tensors).items()
    if compile_best:
        yield "torch.compile", later(lambda: peers.torch_compiled(workload, *tensors))
    if tensors[0].is_cuda and not workload.deterministic:
        yield from peers.cupy_forms(workload, *tensors).items()
    if jax and not workload.deterministic:
        yield "jax", later(lambda: peers.jax_form(workload, *tensors))
    # On a CPU it takes the updates of a column in order, on a GPU those of the line.
    if stock and not (tensors[0].is_cuda and workload.deterministic):
        yield "stock TVM", later(lambda: _stock(workload, *tensors, target))


def machine(device: str) -> dict[str, Any]:
    """Where a run was made: device, driver and versions."""
    import torch

    return {
        **describe("cuda" if device == "cuda" else "llvm"),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "kernels": kernels(),
        "caches": "emptied before every call"
        if device == "cuda"
        else "as the call before left them",
        "copy_bytes_per_us": copy_bandwidth(device),
    }


def make_tensors(workload: Workload, device: str) -> tuple[Any, Any, Any]:
    """Data, index and updates of a workload, as PyTorch has them."""
    import torch

    generator = torch.Generator(device=device).manual_seed(1)
    dtype = getattr(torch, workload.dtype)

    def values(*shape: int) -> Any:
        if workload.dtype.startswith("int"):
            return torch.randint(-99, 99, shape, generator=generator, device=device, dtype=dtype)
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    data = values(workload.batch, workload.extent, workload.slice)
    updates = values(workload.batch, workload.count, workload.slice)
    # A copy of PyTorch's own: TVM takes only memory aligned to 64 bytes.
    index = torch.from_numpy(workload.indices()).to(device, copy=True)
    return data, index, updates


def _kernels(workload: Workload, target: Target, every: bool) -> dict[str, Kernel]:
    strategy = strategy_for(target.kind.name)
    assert strategy is not None
    problem, signature = workload.problem(), workload.signature()
    names = ["chosen"]
    selections = [strategy.select(problem, target, Options())]
    if every:
        for name in strategy.applicable(problem, target):
            # One thread for a line of a million updates would take seconds and show nothing.
            if name == "sequential" and workload.count > 10_000:
                continue
            names.append(name)
            selections.append(strategy.select(problem, target, Options(implementation=name)))
    kernels = compile_selections(problem, signature, selections, target)
    return dict(zip(names, kernels, strict=True))


def call_of(kernel: Kernel, *tensors: Any) -> Callable[[], Any]:
    """A call of a kernel on data, indices, updates and a result."""
    import torch

    flat = [tensor.reshape(-1) for tensor in tensors]
    if kernel.workspace_bytes is not None:
        flat.append(torch.empty(kernel.workspace_bytes, dtype=torch.uint8, device=flat[0].device))
    arguments = [tvm.runtime.from_dlpack(tensor) for tensor in flat]
    return lambda: kernel.function(*arguments)


class _determinism:
    """PyTorch's deterministic mode, for workloads that ask for a reproducible result."""

    def __init__(self, workload: Workload) -> None:
        self.wanted = workload.deterministic

    def __enter__(self) -> None:
        import torch

        if self.wanted:
            torch.use_deterministic_algorithms(True, warn_only=True)
            # The mode would also fill every new tensor, which is for finding bugs.
            torch.utils.deterministic.fill_uninitialized_memory = False

    def __exit__(self, *_: object) -> None:
        import torch

        if self.wanted:
            torch.use_deterministic_algorithms(False)
            torch.utils.deterministic.fill_uninitialized_memory = True


def _stock(workload: Workload, data: Any, index: Any, updates: Any, target: Target) -> Any:
    """TVM's own ``scatter_elements`` on the same tensors."""
    from tvm import relax

    shape = (workload.batch, workload.extent, workload.slice)
    update_shape = (workload.batch, workload.count, workload.slice)
    place = expanded(index, updates).contiguous()
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(name, relax.TensorType(dims, dtype))
        for name, dims, dtype in (
            ("data", shape, workload.dtype),
            ("index", update_shape, "int64"),
            ("updates", update_shape, workload.dtype),
        )
    ]
    with builder.function("main", variables):
        call = relax.op.scatter_elements(*variables, axis=1, reduction=workload.reduction)
        builder.emit_func_output(builder.emit(call))
    with tvm_scatter.options(enabled=False):
        executable = tvm.compile(builder.get(), target=target)
    machine = relax.VirtualMachine(executable, need_device(target))
    arguments = [tvm.runtime.from_dlpack(tensor.contiguous()) for tensor in (data, place, updates)]
    return lambda: machine["main"](*arguments)
