"""The benchmark's workloads: scatters of real models and the cases that are hard for a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tvm_scatter.problem.reductions import REDUCTIONS, Reduction, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Signature
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.tuning.operands.distributions import draw_indices


@dataclass(frozen=True)
class Workload:
    """A scatter of data (batch, extent, slice) by updates (batch, count, slice).

    Parameters
    ----------
    distribution : str
        A key of :data:`~tvm_scatter.tuning.operands.distributions.DISTRIBUTIONS`.
    per_batch : bool
        Whether each batch has indices of its own; otherwise one list of indices serves all.
    per_element : bool
        Whether each element of the updates has an index of its own.
    deterministic : bool
        Whether the result must be reproducible.
    """

    name: str
    batch: int
    extent: int
    slice: int
    count: int
    dtype: str
    reduction: str
    distribution: str
    per_batch: bool = False
    deterministic: bool = False
    per_element: bool = False

    @property
    def reduces(self) -> Reduction:
        """The reduction's record."""
        return REDUCTIONS[self.reduction]

    @property
    def index_size(self) -> int:
        """Entries of the index tensor."""
        return int(np.prod(self.index_shape))

    @property
    def index_shape(self) -> tuple[int, ...]:
        """The shape of the index tensor: that of the updates, without what has no own indices."""
        if self.per_element:
            return self.batch, self.count, self.slice
        return (self.batch, self.count) if self.per_batch else (self.count,)

    @property
    def data_size(self) -> int:
        """Elements of data and of the result."""
        return self.batch * self.extent * self.slice

    @property
    def update_size(self) -> int:
        """Elements of the updates."""
        return self.batch * self.count * self.slice

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return item_bytes(self.dtype)

    @property
    def floor_bytes(self) -> int:
        """Bytes that must move: data, updates and index read once, the result written once."""
        return (2 * self.data_size + self.update_size) * self.item_bytes + 8 * self.index_size

    def problem(self, bounds: str = "drop") -> ScatterProblem:
        """The problem behind the workload, as an imported model would pose it."""
        return ScatterProblem(
            batch=SymbolicSize(self.batch),
            extents=(SymbolicSize(self.extent),),
            slice=SymbolicSize(self.slice),
            count=SymbolicSize(self.count),
            data_dtype=self.dtype,
            index_dtype="int64",
            reduction=self.reduction,
            index_batch=(self.per_batch or self.per_element) and self.batch > 1,
            index_slice=self.per_element and self.slice > 1,
            wrap_negative=False,
            deterministic=self.deterministic,
            bounds=bounds,
        )

    def signature(self) -> Signature:
        """Flat operands."""
        return Signature("bench", (self.data_size,), ((self.index_size,),), (self.update_size,))

    def indices(self, seed: int = 0) -> np.ndarray:
        """The indices, int64, of shape :attr:`index_shape`."""
        flat = draw_indices(self.distribution, self.extent, self.index_size, "int64", seed)
        return flat.reshape(self.index_shape)

    def scaled(self, factor: int) -> Workload:
        """The same kind of work with about ``1 / factor`` of the updates, for CPUs and tests."""
        count = max(1, self.count // factor) if self.batch == 1 else self.count
        batch = max(1, self.batch // factor) if self.batch > 1 else 1
        extent = (
            max(16, self.extent // factor) if self.extent > 4096 and batch == 1 else self.extent
        )
        return replace(self, count=count, batch=batch, extent=extent)


#: The default part of the work that a device is measured with: one in so many.
SCALE = {"cpu": 16, "cuda": 1}

_M = 1 << 20
WORKLOADS: tuple[Workload, ...] = (
    Workload("maskrcnn", 1, 1000, 12544, 250, "float32", "update", "permutation"),
    Workload("assign 1 of 1000", 1, 1000, 1, 1, "float32", "update", "uniform"),
    Workload("1-D 1M unique", 1, _M, 1, _M, "float32", "update", "permutation"),
    Workload("1-D 16M add", 1, 16 * _M, 1, 16 * _M, "float32", "add", "uniform"),
    Workload("256 bins", 1, 256, 1, 16 * _M, "float32", "add", "uniform"),
    Workload("256 bins zipf", 1, 256, 1, 16 * _M, "float32", "add", "zipf(1.2)"),
    Workload("256 bins int32", 1, 256, 1, 16 * _M, "int32", "add", "uniform"),
    Workload("rows zipf", 1, 100_000, 128, _M, "float32", "add", "zipf(1.3)"),
    Workload("rows", 1, 100_000, 128, _M, "float32", "add", "uniform"),
    Workload("rows bf16", 1, 100_000, 128, _M, "bfloat16", "add", "uniform"),
    Workload("rows bf16 zipf", 1, 100_000, 128, _M, "bfloat16", "add", "zipf(1.3)"),
    Workload("rows f16", 1, 100_000, 128, _M, "float16", "add", "uniform"),
    Workload("embedding gradient", 1, 50257, 768, 8192, "float32", "add", "zipf(1.1)"),
    Workload("top-k mask", 1024, 32000, 1, 50, "float32", "update", "uniform", per_batch=True),
    Workload("4096x4096 amax", 4096, 4096, 1, 4096, "float32", "max", "uniform", per_batch=True),
    Workload("MoE combine", 1, 4096, 4096, 8192, "bfloat16", "add", "uniform"),
    Workload("half on one row", 1, 100_000, 128, _M, "float32", "add", "half-on-one"),
    Workload("all on one row", 1, 100_000, 128, _M, "float32", "add", "all-on-one"),
    Workload(
        "deterministic rows zipf", 1, 100_000, 128, _M, "float32", "add", "zipf(1.3)",
        deterministic=True,
    ),
    Workload(
        "deterministic one row", 1, 100_000, 128, _M, "float32", "add", "all-on-one",
        deterministic=True,
    ),
    Workload(
        "deterministic bins", 1, 256, 1, 16 * _M, "float32", "add", "uniform", deterministic=True
    ),
    Workload("add 20 to 5000", 1, 5000, 1, 20, "float32", "add", "uniform"),
    Workload("64K bins int32", 1, 64 << 10, 1, 8 * _M, "int32", "add", "uniform"),
    Workload("1-D 4M add to 100K", 1, 100_000, 1, 4 * _M, "float32", "add", "uniform"),
    Workload("1-D 8M unique of 32M", 1, 32 * _M, 1, 8 * _M, "float32", "update", "permutation"),
    Workload(
        "2048x10000 add", 2048, 10_000, 1, 2500, "float32", "add", "uniform", per_batch=True
    ),
    Workload("static cache, one position", 256, 4096, 128, 1, "float16", "update", "permutation"),
    Workload(
        "messages, middle axis", 64, 512, 96, 2000, "float32", "add", "uniform", per_element=True
    ),
)  # fmt: skip
