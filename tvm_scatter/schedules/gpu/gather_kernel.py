"""The kernel of a function that reads by index.

A thread first reads what all its elements are computed from, and then computes and writes them: so
the reads do not wait for each other. Beyond the last element it reads the last one again instead
of checking in front of each read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import substitute

from .gather_form import GatherForm, Gathering, has_vectors, is_along, varies
from .gather_loads import Loaded, copied, without_loads

_THREADS = 256
_FIRST = tirx.IntImm("int64", 0)
_ALIGNED = """
__forceinline__ __device__ int tvm_scatter_is_aligned(const void* tensor, int bytes) {
  return reinterpret_cast<unsigned long long>(tensor) % bytes == 0;
}
"""


class Kernel:
    """The kernel of a function in some form."""

    def __init__(self, gathering: Gathering, form: GatherForm) -> None:
        self.gathering, self.form = gathering, form
        self.dtype = "int32" if form.narrow else "int64"
        self.value, self.loads = without_loads(gathering.store.value)
        self.varying = self._varying()
        self.copied = copied(self.value, self.loads) if form.lanes > 1 else None
        *outer, row = gathering.sizes
        self.sizes = [*outer, row if form.lanes == 1 else row // form.lanes]
        self.accesses = prod(self._int(size) for size in self.sizes)

    def body(self) -> tirx.Stmt:
        """The loops over blocks and threads, and what a thread does."""
        block, thread = (tirx.Var(name, self.dtype) for name in ("block", "thread"))
        first = block * (_THREADS * self.form.in_flight) + thread
        positions = [first + self._int(_THREADS * at) for at in range(self.form.in_flight)]
        per_block = self._int(_THREADS * self.form.in_flight)
        blocks = tirx.floordiv(self.accesses + (per_block - 1), per_block)
        inner = self._launched("threadIdx.x", thread, self._int(_THREADS), self._thread(positions))
        return self._launched("blockIdx.x", block, blocks, inner)

    def _launched(self, tag: str, variable: Any, extent: Any, body: tirx.Stmt) -> tirx.Stmt:
        bound = tirx.IterVar(None, tirx.Var(tag, self.dtype), tirx.IterVar.ThreadIndex, tag)
        return tirx.For(variable, self._int(0), extent, tirx.ForKind.THREAD_BINDING, body, bound)

    def _thread(self, positions: Sequence[Any]) -> tirx.Stmt:
        lines: list[Any] = []
        turns = []
        for position in positions:
            turns.append(_Turn(self, tirx.min(position, self.accesses - 1), position))
            lines += turns[-1].begin()
        if self.form.lanes == 1:
            return tirx.SeqStmt([*lines, *self._steps(turns, vectors=False)])
        both = [tirx.SeqStmt(self._steps(turns, vectors)) for vectors in (True, False)]
        return tirx.SeqStmt([*lines, tirx.IfThenElse(self._aligned(), *both)])

    def _steps(self, turns: Sequence[_Turn], vectors: bool) -> list[tirx.Stmt]:
        """Read for all turns, then compute and write."""
        lines: list[tirx.Stmt] = []
        values: list[dict[Any, Callable[[Any], Any]]] = [{} for _ in turns]
        for loaded in self.loads:
            for turn, known in zip(turns, values, strict=True):
                lines += turn.load(loaded, known, vectors)
        for turn, known in zip(turns, values, strict=True):
            lines += turn.write(known, vectors)
        return lines

    def _aligned(self) -> Any:
        """Whether vectors may be read and written where the tensors lie."""
        tensors = [self.gathering.store.buffer]
        for loaded in self.loads:
            if self.is_vector(loaded) and not any(map(loaded.load.source.same_as, tensors)):
                tensors.append(loaded.load.source)
        return tirx.all(*(self._is_aligned(tensor) for tensor in tensors))

    def _is_aligned(self, tensor: Any) -> Any:
        bits = tensor.dtype.bits * self.form.lanes
        call = T.cuda.func_call(
            "tvm_scatter_is_aligned",
            tensor.data,
            tirx.IntImm("int32", max(int(bits) // 8, 1)),
            source_code=_ALIGNED,
            return_type="int32",
        )
        return call != 0

    def is_vector(self, loaded: Loaded) -> bool:
        """Whether the elements of an access are neighbours where they are read."""
        causes = [self.gathering.axes[-1], *self.varying]
        parts = [*loaded.load.indices[:-1], *loaded.guards]
        if any(varies(part, cause) for part in parts for cause in causes):
            return False
        return has_vectors(loaded.load.source) and is_along(loaded.load, causes[0], self.form.lanes)

    def varies(self, loaded: Loaded) -> bool:
        """Whether the elements of an access need different loads."""
        return any(map(loaded.value.same_as, self.varying))

    def _varying(self) -> list[Any]:
        """The values that are not the same for all elements of an access."""
        found: list[Any] = []
        if self.form.lanes > 1:
            for loaded in self.loads:
                parts = [*loaded.load.indices, *loaded.guards]
                causes = [self.gathering.axes[-1], *found]
                if any(varies(part, cause) for part in parts for cause in causes):
                    found.append(loaded.value)
        return found

    def _int(self, value: Any) -> Any:
        return tirx.IntImm(self.dtype, int(value)) if isinstance(value, int) else value


class _Turn:
    """One access of a thread."""

    def __init__(self, kernel: Kernel, position: Any, wanted: Any) -> None:
        self.kernel, self.position = kernel, position
        self.is_inside = wanted < kernel.accesses
        self.lanes = kernel.form.lanes
        #: The coordinates of the first element, to compute with, and where it is written.
        self.coordinates: dict[Any, Any] = {}
        self.written: dict[Any, Any] = {}

    def begin(self) -> list[tirx.Stmt]:
        """Find the coordinates of the first element."""
        position = tirx.Var("position", self.kernel.dtype)
        self.written = self._split(position)
        lines: list[tirx.Stmt] = [tirx.Bind(position, self.position)]
        if not self.kernel.form.narrow or len(self.written) == 1:
            # TVM cancels out what is divided and multiplied by symbolic sizes.
            self.coordinates = {axis: self._first(axis, at) for axis, at in self.written.items()}
        else:
            # TVM would divide in 64 bits if it saw what the coordinates are.
            cells = _local("coordinates", self.kernel.dtype, len(self.written))
            lines.append(tirx.AllocBuffer(cells))
            for number, (axis, at) in enumerate(self.written.items()):
                lines.append(tirx.BufferStore(cells, at, [number]))
                self.coordinates[axis] = self._first(axis, cells[number])
        self.written = {axis: self._first(axis, at) for axis, at in self.written.items()}
        return lines

    def _first(self, axis: Any, at: Any) -> Any:
        """The first element's coordinate, in the type that the function computes with."""
        wide = tirx.Cast(str(axis.ty.dtype), at)
        # TVM writes a vector only where it sees that its place is a multiple of its size.
        return wide * self.lanes if axis.same_as(self.kernel.gathering.axes[-1]) else wide

    def _split(self, position: Any) -> dict[Any, Any]:
        """The coordinate along each axis at a position; along the last axis in accesses."""
        axes, found = self.kernel.gathering.axes, {}
        for axis, size in reversed(list(zip(axes, self.kernel.sizes, strict=True))):
            at = position if axis.same_as(axes[0]) else tirx.floormod(position, size)
            position = tirx.floordiv(position, size)
            found[axis] = at
        return found

    def load(self, loaded: Loaded, known: dict[Any, Any], vectors: bool) -> list[tirx.Stmt]:
        """The statements that load a value; ``known`` gets how to find it for a lane."""
        if not self.kernel.varies(loaded):
            return self._load_once(loaded, known)
        values = _local(loaded.value.name, loaded.load.source.dtype, self.lanes)
        lines = [tirx.AllocBuffer(values), *self._fill(loaded, values)]
        in_vectors = vectors and self.kernel.is_vector(loaded)

        def one(lane: Any) -> tirx.Stmt:
            load = self._at(loaded.load, known, lane)
            store = tirx.BufferStore(values, load, [lane])
            if in_vectors or loaded.condition is None:
                return store
            return tirx.IfThenElse(self._at(loaded.condition, known, lane), store, None)

        loop = _over_lanes(self.lanes, one, in_vectors)
        if in_vectors and loaded.condition is not None:
            loop = tirx.IfThenElse(self._at(loaded.condition, known, _FIRST), loop, None)
        known[loaded.value] = lambda lane: values[lane]
        return [*lines, loop]

    def _fill(self, loaded: Loaded, values: Any) -> list[tirx.Stmt]:
        """Set a value to what it is where nothing is loaded: zero if it is not used there.

        Left unset, it may be compared all the same. And where two branches load the same, ptxas
        keeps both values in one register and uses one comparison for both: of neither's value.
        """
        if loaded.condition is None:
            return []
        other, fill = self.kernel.copied or (None, None)
        if other is not loaded or fill is None:
            fill = tirx.const(0, str(loaded.load.source.dtype))
        return [_over_lanes(self.lanes, lambda lane: tirx.BufferStore(values, fill, [lane]), False)]

    def _load_once(self, loaded: Loaded, known: dict[Any, Any]) -> list[tirx.Stmt]:
        """Load a value that all lanes share."""
        variable = tirx.Var(loaded.value.name, str(loaded.value.ty.dtype))
        value = self._at(loaded.load, known, _FIRST)
        if loaded.condition is not None:
            zero = tirx.const(0, str(variable.ty.dtype))
            value = tirx.if_then_else(self._at(loaded.condition, known, _FIRST), value, zero)
        known[loaded.value] = lambda _lane: variable
        return [tirx.Bind(variable, value)]

    def write(self, known: dict[Any, Any], vectors: bool) -> list[tirx.Stmt]:
        """Compute the elements and write them, unless they are beyond the last one."""
        store, value = self.kernel.gathering.store, self.kernel.value

        def element(lane: Any, of: Any) -> tirx.Stmt:
            places = self._places(self.written, lane)
            return tirx.BufferStore(
                store.buffer, of, [substitute(index, places) for index in store.indices]
            )

        if self.lanes == 1:
            return [self._inside(element(_FIRST, self._at(value, known, _FIRST)))]
        if self.kernel.copied is not None and self.kernel.varies(self.kernel.copied[0]):
            find = known[self.kernel.copied[0].value]
            written = _over_lanes(self.lanes, lambda lane: element(lane, find(lane)), vectors)
            return [self._inside(written)]
        results = _local("result", store.buffer.dtype, self.lanes)

        def one(lane: Any) -> tirx.Stmt:
            return tirx.BufferStore(results, self._at(value, known, lane), [lane])

        computed = _over_lanes(self.lanes, one, False)
        written = _over_lanes(self.lanes, lambda lane: element(lane, results[lane]), vectors)
        return [tirx.AllocBuffer(results), computed, self._inside(written)]

    def _inside(self, statement: tirx.Stmt) -> tirx.Stmt:
        return tirx.IfThenElse(self.is_inside, statement, None)

    def _at(self, expression: Any, known: dict[Any, Any], lane: Any) -> Any:
        """The expression for one lane."""
        values = {value: find(lane) for value, find in known.items()}
        return substitute(expression, self._places(self.coordinates, lane) | values)

    def _places(self, first: dict[Any, Any], lane: Any) -> dict[Any, Any]:
        """The coordinates of a lane's element."""
        if self.lanes == 1:
            return first
        last = self.kernel.gathering.axes[-1]
        return first | {last: first[last] + lane}


def _local(name: str, dtype: Any, lanes: int) -> Any:
    return tirx.decl_buffer((lanes,), str(dtype), name, scope="local")


def _over_lanes(lanes: int, one: Callable[[Any], tirx.Stmt], in_vectors: bool) -> tirx.Stmt:
    lane = tirx.Var("lane", "int64")
    kind = tirx.ForKind.VECTORIZED if in_vectors else tirx.ForKind.UNROLLED
    zero, count = tirx.IntImm("int64", 0), tirx.IntImm("int64", lanes)
    loop = tirx.For(lane, zero, count, kind, one(lane))
    # The compiler of CUDA unrolls it. Unrolled by TVM, the source would be long.
    return loop if in_vectors else tirx.AttrStmt(zero, "pragma_unroll_explicit", zero, loop)
