"""What a thread reads for an expression: in vectors where elements lie side by side.

A thread computes some neighbours of a result, along the innermost axis, from one access of each
tensor. Several such turns are begun before the first is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import StringImm
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.emit.expressions import varies
from tvm_scatter.emit.tensors import element_bytes

from .choices_by_place import is_same_along
from .gather_form import has_vectors, is_along
from .gather_loads import Loaded, copied, without_loads
from .positions import position_of

THREADS = 256
FIRST = tirx.IntImm("int64", 0)
#: Bytes of the longest vector that TVM reads.
_VECTOR_BYTES = 32
_ASKS = "tvm_scatter_is_aligned"
_ALIGNED = f"""
__forceinline__ __device__ int {_ASKS}(const void* tensor, int bytes) {{
  return reinterpret_cast<unsigned long long>(tensor) % bytes == 0;
}}
"""

Known = dict[Any, Callable[[Any], Any]]


class Accesses:
    """The accesses that expressions need.

    Parameters
    ----------
    values : sequence of expression
        Elements, over coordinates.
    axis : Var
        The innermost coordinate.
    lanes : int
        Elements that a thread reads by one access.

    Attributes
    ----------
    values : list of expression
        The elements, over coordinates and what is loaded.
    loads : list of Loaded
        What is loaded.
    copied : (Loaded, number) or None
        The load that the one element is nothing but, and what it is where that is not evaluated.
    """

    def __init__(self, values: Sequence[Any], axis: Any, lanes: int) -> None:
        self.axis, self.lanes = axis, lanes
        self.values, self.loads = without_loads(*values)
        self._varying = self._found_varying()
        alone = lanes > 1 and len(self.values) == 1
        self.copied = copied(self.values[0], self.loads) if alone else None

    def is_vector(self, loaded: Loaded) -> bool:
        """Whether the elements of an access are neighbours where they are read."""
        parts = [*loaded.load.indices[:-1], *loaded.guards]
        if any(varies(part, cause) for part in parts for cause in self._varying):
            return False
        if any(varies(index, self.axis) for index in loaded.load.indices[:-1]):
            return False
        if not all(is_same_along(guard, self.axis, self.lanes) for guard in loaded.guards):
            return False
        return has_vectors(loaded.load.source) and is_along(loaded.load, self.axis, self.lanes)

    def varies(self, loaded: Loaded) -> bool:
        """Whether the elements of an access need different loads."""
        return any(map(loaded.value.same_as, self._varying))

    def aligned(self, *others: Any) -> Any:
        """Whether these tensors, and those read in vectors, lie where vectors may be accessed."""
        tensors = list(others)
        for loaded in self.loads:
            if self.is_vector(loaded) and not any(map(loaded.load.source.same_as, tensors)):
                tensors.append(loaded.load.source)
        return tirx.all(*(is_aligned(tensor, self.lanes) for tensor in tensors))

    def _found_varying(self) -> list[Any]:
        """The values that are not the same for all elements of an access."""
        found: list[Any] = []
        if self.lanes > 1:
            for loaded in self.loads:
                parts = [*loaded.load.indices, *loaded.guards]
                causes = [self.axis, *found]
                if any(varies(part, cause) for part in parts for cause in causes):
                    found.append(loaded.value)
        return found


class Turn:
    """One access of a thread to each tensor.

    Attributes
    ----------
    coordinates : dict
        The coordinates of the first element, in the types that the expression computes with.
    """

    def __init__(self, accesses: Accesses, coordinates: Mapping[Any, Any]) -> None:
        self.accesses = accesses
        self.coordinates = dict(coordinates)

    def load(self, loaded: Loaded, known: Known, vectors: bool) -> list[tirx.Stmt]:
        """The statements that load a value; ``known`` gets how to find it for a lane."""
        if not self.accesses.varies(loaded) and not loaded.is_choice:
            return self._load_once(loaded, known)
        lanes = self.accesses.lanes
        lines: list[tirx.Stmt] = []
        if loaded.value in known:
            # Another side of a choice fills the same registers.
            values = known[loaded.value](FIRST).source
        else:
            values = local(loaded.value.name, loaded.load.source.dtype, lanes)
            lines = [tirx.AllocBuffer(values), *self._fill(loaded, values)]
        in_vectors = vectors and self.accesses.is_vector(loaded)
        source = loaded.load
        if in_vectors and self._has_sizes(source, known):
            declared, source = self._in_its_row(source, known)
            lines += declared

        def one(lane: Any) -> tirx.Stmt:
            load = self.at(source, known, lane)
            store = tirx.BufferStore(values, load, [lane])
            if in_vectors or loaded.condition is None:
                return store
            return tirx.IfThenElse(self.at(loaded.condition, known, lane), store, None)

        loop = over_lanes(lanes, one, in_vectors, loaded.load.source)
        if in_vectors and loaded.condition is not None:
            loop = tirx.IfThenElse(self.at(loaded.condition, known, FIRST), loop, None)
        known[loaded.value] = lambda lane: values[lane]
        return [*lines, loop]

    def _has_sizes(self, load: Any, known: Known) -> bool:
        """Whether sizes of the run time say in which row a load reads."""
        used = [each for part in load.indices[:-1] for each in tirx.analysis.undefined_vars(part)]
        strides = load.source.shape[1:-1]
        places = [*self.coordinates, *known]
        return not all(isinstance(size, tirx.IntImm) for size in strides) or any(
            not any(map(each.same_as, places)) for each in used
        )

    def _in_its_row(self, load: Any, known: Known) -> tuple[list[tirx.Stmt], Any]:
        """A load from the tensor as one line of elements, and what stands in front of it.

        TVM computes products of sizes in advance. It then no longer sees that a row begins at a
        multiple of a vector, and reads its elements one by one.
        """
        source, (*others, last) = load.source, load.indices
        row = position_of(others, source.shape[:-1])
        place = local("row", "int64", 1)
        line = tirx.decl_buffer((prod(source.shape),), source.dtype, f"{source.name}_line")
        lines = [
            tirx.DeclBuffer(line, data=source.data),
            tirx.AllocBuffer(place),
            tirx.BufferStore(place, tirx.Cast("int64", self.at(row, known, FIRST)), [0]),
        ]
        return lines, tirx.BufferLoad(line, [place[0] * source.shape[-1] + last])

    def _fill(self, loaded: Loaded, values: Any) -> list[tirx.Stmt]:
        """Set a value to what it is where nothing is loaded: zero if it is not used there.

        Left unset, it may be compared all the same. And where two branches load the same, ptxas
        keeps both values in one register and uses one comparison for both: of neither's value.
        """
        if loaded.condition is None or loaded.is_choice:
            return []
        other, fill = self.accesses.copied or (None, None)
        if other is not loaded or fill is None:
            fill = tirx.const(0, str(loaded.load.source.dtype))
        lanes = self.accesses.lanes
        return [over_lanes(lanes, lambda lane: tirx.BufferStore(values, fill, [lane]), False)]

    def _load_once(self, loaded: Loaded, known: Known) -> list[tirx.Stmt]:
        """Load a value that all lanes share."""
        variable = tirx.Var(loaded.value.name, str(loaded.value.ty.dtype))
        value = self.at(loaded.load, known, FIRST)
        if loaded.condition is not None:
            zero = tirx.const(0, str(variable.ty.dtype))
            value = tirx.if_then_else(self.at(loaded.condition, known, FIRST), value, zero)
        known[loaded.value] = lambda _lane: variable
        return [tirx.Bind(variable, value)]

    def at(self, expression: Any, known: Known, lane: Any) -> Any:
        """The expression for one lane."""
        values = {value: find(lane) for value, find in known.items()}
        return substitute(expression, self.places(self.coordinates, lane) | values)

    def places(self, first: dict[Any, Any], lane: Any) -> dict[Any, Any]:
        """The coordinates of a lane's element."""
        if self.accesses.lanes == 1:
            return first
        axis = self.accesses.axis
        return first | {axis: first[axis] + lane}


def loaded_together(turns: Sequence[Turn], vectors: bool) -> tuple[list[tirx.Stmt], list[Known]]:
    """The statements that load everything for all turns, and what is then known in each."""
    lines: list[tirx.Stmt] = []
    known: list[Known] = [{} for _ in turns]
    for loaded in turns[0].accesses.loads:
        for turn, values in zip(turns, known, strict=True):
            lines += turn.load(loaded, values, vectors)
    return lines, known


def is_aligned(tensor: Any, lanes: int) -> Any:
    """Whether a tensor lies where vectors of so many elements may be accessed."""
    call = T.cuda.func_call(
        _ASKS,
        tensor.data,
        tirx.IntImm("int32", min(element_bytes(tensor) * lanes, _VECTOR_BYTES)),
        source_code=_ALIGNED,
        return_type="int32",
    )
    return call != 0


def asks_where_tensors_begin(function: tirx.PrimFunc) -> bool:
    """Whether a kernel accesses vectors only where its tensors lie so that it may."""
    asked: list[StringImm] = []

    def visit(text: StringImm) -> None:
        if text.value == _ASKS:
            asked.append(text)

    tvm_ffi.structural_walk(function.body, (StringImm, visit))
    return bool(asked)


def launched(tag: str, variable: Any, extent: Any, body: tirx.Stmt) -> tirx.Stmt:
    """The loop over all blocks or threads."""
    dtype = str(variable.ty.dtype)
    bound = tirx.IterVar(None, tirx.Var(tag, dtype), tirx.IterVar.ThreadIndex, tag)
    first = tirx.IntImm(dtype, 0)
    return tirx.For(variable, first, extent, tirx.ForKind.THREAD_BINDING, body, bound)


def local(name: str, dtype: Any, count: int) -> Any:
    """Registers of a thread."""
    return tirx.decl_buffer((count,), str(dtype), name, scope="local")


def over_lanes(
    lanes: int, one: Callable[[Any], tirx.Stmt], in_vectors: bool, tensor: Any = None
) -> tirx.Stmt:
    """A loop over the elements of an access.

    Parameters
    ----------
    in_vectors : bool
        Whether they are accessed together.
    tensor : Var, optional
        Where they are, if a vector may be too short for all of them.
    """
    vector = lanes if tensor is None else min(lanes, _VECTOR_BYTES // element_bytes(tensor))
    if in_vectors and vector < lanes:

        def part(at: Any) -> tirx.Stmt:
            return over_lanes(vector, lambda lane: one(at * vector + lane), True)

        return over_lanes(lanes // vector, part, False)
    lane = tirx.Var("lane", "int64")
    kind = tirx.ForKind.VECTORIZED if in_vectors else tirx.ForKind.UNROLLED
    zero, count = tirx.IntImm("int64", 0), tirx.IntImm("int64", lanes)
    loop = tirx.For(lane, zero, count, kind, one(lane))
    # The compiler of CUDA unrolls it. Unrolled by TVM, the source would be long.
    return loop if in_vectors else tirx.AttrStmt(zero, "pragma_unroll_explicit", zero, loop)
