"""Times of the forms of a case, and what of them goes into products."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.tuning.measure import device_time
from tvm_scatter.tuning.measure.sampling import Budget, Summary, seconds_of

Call = Callable[[], Any]
_ON_GPU = Budget(fewest=3, most=9, seconds=0.05, patience=0.25)
#: Rounds on a CPU, in each of which every form is called once; and the seconds for all of them.
_FEWEST, _MOST, _SECONDS = 5, 15, 6.0
#: A look at whether other threads work, how much they may meanwhile, and the most looks.
_PAUSE, _IDLE, _LOOKS = 0.005, 0.0005, 100
#: Seconds of calls in front of one that is timed. Five calls of 0.1 ms were too few.
_AWAKE = 0.02
_PROFILED = 3
_MICROSECONDS = 1e6
#: Words in the names of PyTorch's operators and of kernels that compute matrix products.
_PRODUCTS = ("mm", "gemm", "linear", "cutlass", "xmma", "nvjet", "matmul")
#: How the names of kernels of torch.compile begin that compute none. They bear the names of all
#: operators that they are part of, such as "addmm" where they add the bias.
_NO_PRODUCTS = ("triton_poi_", "triton_red_", "triton_per_", "cpp_fused_")


def times(forms: Mapping[str, Call], device: str) -> dict[str, float]:
    """Microseconds of each form: medians.

    On a GPU caches are emptied before each call. On a CPU the forms take turns, so that what else
    the machine does disturbs all of them alike.
    """
    if device == "cuda":
        return {name: _on_gpu(form) for name, form in forms.items()}
    samples: dict[str, list[float]] = {name: [] for name in forms}
    begin = time.perf_counter()
    for done in range(_MOST):
        if done >= _FEWEST and time.perf_counter() - begin > _SECONDS:
            break
        for name, form in forms.items():
            wait_until_idle()
            wake(form)
            samples[name].append(seconds_of(form))
    return {name: _MICROSECONDS * Summary.of(each).median for name, each in samples.items()}


def wait_until_idle() -> None:
    """Wait until no other thread of this process works, or for half a second.

    Threads of a form wait for more work: OpenMP's for some milliseconds and without pause, TVM's
    for a tenth of a second and giving way to others. While they do, those of the next form share a
    core.
    """
    for _ in range(_LOOKS):
        before = time.process_time()
        time.sleep(_PAUSE)
        if time.process_time() - before < _IDLE:
            return


def wake(form: Call) -> None:
    """Call a form until its threads are awake, each on a core of its own.

    The form that comes first after those of another library would else be timed while the system
    still moves its threads: the same program took up to twice as long in first place.
    """
    begin = time.perf_counter()
    while time.perf_counter() - begin < _AWAKE:
        form()


def flush() -> None:
    """Empty the caches of the GPU, and keep it busy for a while."""
    _flushed().zero_()


@cache
def _flushed() -> torch.Tensor:
    return torch.empty(device_time.FLUSH_BYTES["cuda"], dtype=torch.uint8, device="cuda")


def _on_gpu(form: Call) -> float:
    samples = device_time.on_gpu(form, flush, torch.cuda.synchronize, budget=_ON_GPU)
    return _MICROSECONDS * Summary.of(samples).median


def peak_bytes(form: Call) -> int:
    """The most memory that PyTorch allocates on the GPU in a call."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    form()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def products_of(spent: Mapping[str, float]) -> float:
    """Of times by the names of operators or kernels, the time of matrix products."""
    return sum(time for name, time in spent.items() if is_product(name))


def is_product(name: str) -> bool:
    """Whether an operator of PyTorch or a kernel computes a matrix product, by its name."""
    lower = name.lower()
    return not lower.startswith(_NO_PRODUCTS) and any(word in lower for word in _PRODUCTS)


def profiled(form: Call, device: str) -> dict[str, float]:
    """Microseconds of a call by PyTorch's profiler: of each kernel, or of operators on a CPU."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with quiet(), profile(activities=[activity]) as seen:
        for _ in range(_PROFILED):
            form()
        if on_gpu:
            torch.cuda.synchronize()
    field = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    return {event.key: float(getattr(event, field)) / _PROFILED for event in seen.key_averages()}
