"""Launches device routines from TIR."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import ComputedUpdates
from tvm_scatter.emit.first_of import emit_first
from tvm_scatter.emit.known_leaves import KnownLeaves
from tvm_scatter.emit.operands import Operands
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most

from .computed import Generated, read_updates
from .finished import written_output
from .owned import read_owned
from .source import problem_struct, routine
from .target import architecture, dynamic_bytes, shared_memory_limit

#: Offsets below this are added in 32 bits without overflow.
_NARROW_LIMIT = 1 << 30
_MAX_BLOCKS = (1 << 31) - 1
#: The compute capability from which on a kernel can wait for the one before it.
_OVERLAPPING = 90
#: Blocks that TVM asks NVIDIA's compiler to leave room for.
_TOGETHER = "tirx.launch_bounds_min_blocks_per_sm"
#: Bytes of static shared memory of a block, at most, if nobody says more: a number for each warp.
_STATIC_BYTES = 256
#: What is no pointer in the body of a launch.
_GENERATED = ("updates", "output")


def launch(
    operands: Operands,
    headers: Sequence[str],
    body: str,
    blocks: Any,
    threads: int,
    arguments: Mapping[str, tuple[str, Any]] | None = None,
    shared_bytes: Any = 0,
    resolves_every_index: bool = False,
    completion_count_bytes: int | None = None,
    narrow: bool = False,
    owns: bool = False,
    together: int = 0,
    overlaps: bool = False,
    begins: str = "begin_overlapped",
    static_bytes: int = _STATIC_BYTES,
) -> None:
    """Launch a kernel whose threads run ``body``, for all scatters at once if there are several.

    Parameters
    ----------
    headers : sequence of str
        Names of the device headers that the body uses, without extension.
    body : str
        C++ statements. In scope: ``P`` (the problem), ``Data``, ``Offset``, ``sizes``, ``indices``,
        the pointers ``out``, ``data`` (null in place), ``updates`` and ``workspace``, ``output``,
        which computes what follows and writes it, the names in ``arguments``, and ``shared``, a
        pointer to dynamic shared memory if there is any. The body must not use
        ``blockIdx.y``, which is the number of the scatter.
    blocks, threads : int or expression, int
        Blocks, at least one of which is launched, and threads of a block.
    arguments : mapping of name to (C++ type, expression), optional
        Further parameters, in scope of the body.
    shared_bytes : int or expression
        Bytes of dynamic shared memory of each block.
    resolves_every_index : bool
        Whether the threads together ``resolve`` every index of the scatter. Under ``raise`` the
        host then learns of bad indices after this launch, and does not wait for later ones. If no
        launch sets this, the host waits for all launches, so no bad index is missed.
    completion_count_bytes : int, optional
        For a body that resolves every index and then has much else to do. If P has
        ``counts_completion``, such a body calls ``count_completion`` as soon as a block has
        resolved its indices. This is the number of bytes of shared memory, in front of all others,
        that the call needs. Then the host learns of bad indices while the launch runs, and no extra
        launch has to tell it.
    narrow : bool
        Whether offsets are known to take 32 bits, although sizes are symbolic.
    owns : bool
        Whether the body knows the destination of each update that it reads, and so may take what is
        the same for all of them from ``updates.own``.
    together : int
        Blocks that registers must leave room for on a multiprocessor; 0 leaves that to NVIDIA's
        compiler.
    overlaps : bool
        Whether the kernel shall be launched while the one before it ends, unless options say
        otherwise: it, or the one before, takes about as long as a launch.
    begins : str
        The device function by which it begins then (``overlap.cuh``).
    static_bytes : int
        Bytes of static shared memory that a block has beside ``shared_bytes``, at most.

    Raises
    ------
    ScatterError
        If ``resolves_every_index`` is set, and the body does not name ``indices``.
    """
    reads_indices = re.search(r"\bindices\b", body) is not None
    if resolves_every_index and not reads_indices:
        raise ScatterError(
            "scatter: a launch with resolves_every_index=True names no `indices` in its body: "
            f"{body.strip()!r}."
        )
    signal = operands.drop_signal
    counts = resolves_every_index and _counts_completion(
        operands, shared_bytes, completion_count_bytes
    )
    if counts:
        shared_bytes = shared_bytes + completion_count_bytes
    if isinstance(shared_bytes, int):
        shared_bytes = dynamic_bytes(shared_bytes, static_bytes)
    read = read_owned if owns else read_updates
    overlaps = overlaps if operands.overlaps is None else operands.overlaps
    if overlaps and architecture(operands.target) >= _OVERLAPPING:
        headers, body = (*headers, "overlap"), f"  {begins}();\n{body}"
    every = operands, headers, body, blocks, (threads, together), arguments or {}, shared_bytes
    short, long = (partial(_launch, *every, counts, read, kind) for kind in ("int", "long long"))
    known = operands.offset_bytes or offset_bytes(operands.problem, operands.sizes)
    if narrow or known == 4:
        short()
    elif operands.problem.is_static or operands.offset_bytes:
        long()
    else:
        emit_first([(_is_narrow(operands), short)], long)
    if signal is not None:
        signal.launched(reads_indices, resolves_every_index, completes=counts)


def by_offsets(operands: Operands, emit: Callable[[Operands], None]) -> None:
    """Emit code twice: if 32 bits hold all positions, those in computed updates too, and if not.

    Once if sizes are known, updates are stored, or launches serve several scatters. :func:`launch`
    alone would not look at what updates are computed from.
    """
    updates = operands.updates
    if operands.problem.is_static or operands.others or not isinstance(updates, ComputedUpdates):
        emit(operands)
        return
    fits = tirx.And(_is_narrow(operands), KnownLeaves.are_known_to_be_short(updates.leaves))
    short = replace(operands, updates=updates.with_short_leaves(), offset_bytes=4)
    emit_first([(fits, partial(emit, short))], partial(emit, replace(operands, offset_bytes=8)))


def aligned_to(vector: int, *tensors: str) -> str:
    """A C++ condition: vectors of so many elements may be taken from all of these tensors."""
    return " && ".join(
        f"{name}.aligned<{vector}>()" if name in _GENERATED else f"aligned<Data, {vector}>({name})"
        for name in tensors
    )


def by_alignment(operands: Operands, vector: int, whole: str, single: str) -> str:
    """C++ that runs one form where rows are read and written by such vectors, and else another."""
    tensors = ("output", "updates") if operands.data is None else ("output", "updates", "data")
    return f"  if ({aligned_to(vector, *tensors)})\n    {whole}\n  else\n    {single}"


def _counts_completion(operands: Operands, shared_bytes: Any, count_bytes: int | None) -> bool:
    """Whether blocks count their completion, so that no extra launch has to tell the host.

    Not with symbolic sizes: there may be blocks without work, which would not count.
    """
    signal = operands.drop_signal
    if signal is None or count_bytes is None or not operands.problem.is_static:
        return False
    fits = shared_bytes + count_bytes <= shared_memory_limit(operands.target)
    return bool(fits) and signal.can_close


def offset_bytes(problem: ScatterProblem, sizes: Sizes) -> int:
    """Bytes of the type ``Offset``, at most: 8 where sizes that are not known decide."""
    return 4 if problem.is_static and _largest(problem, sizes) < _NARROW_LIMIT else 8


def _is_narrow(operands: Operands) -> Any:
    """The condition that offsets take 32 bits, of sizes that are known at run time only."""
    largest = _largest(operands.problem, operands.sizes)
    return largest < tirx.IntImm("int64", _NARROW_LIMIT)


def _largest(problem: ScatterProblem, sizes: Sizes) -> Any:
    entries = sizes.items * len(sizes.extents)
    if problem.is_static:
        return max(sizes.data_size, sizes.update_size, entries)
    return tirx.max(tirx.max(sizes.data_size, sizes.update_size), entries)


def _launch(
    operands: Operands,
    headers: Sequence[str],
    body: str,
    blocks: Any,
    threads: tuple[int, int],
    arguments: Mapping[str, tuple[str, Any]],
    shared_bytes: Any,
    counts_completion: bool,
    read: Callable[[Operands], Generated],
    offset: str,
) -> None:
    problem, sizes = operands.problem, operands.sizes
    signal = operands.drop_signal
    if signal is not None and not signal.is_open:
        signal = None
    updates = read(operands)
    finishes = re.search(r"\boutput\b", body) is not None
    output = written_output(operands, finishes)
    struct, text = problem_struct(
        problem, offset, signal is not None, counts_completion, updates.type, output.type
    )
    scatters = [_tensors(each, read(each), finishes) for each in (operands, *operands.others)]
    pointers = list(scatters[0])
    numbers = {"batch": sizes.batch, "count": sizes.count, "slice": sizes.slice}
    numbers |= {f"extent{j}": extent for j, extent in enumerate(sizes.extents)}
    numbers |= updates.sizes | output.sizes

    parameters, lines = _pointers(pointers, len(scatters))
    parameters += [f"long long {name}" for name in numbers]
    parameters += [f"{kind} {name}" for name, (kind, _) in arguments.items()]
    telling = ""
    if signal:
        parameters += ["void* mailbox_pointer", "long long call", "void* counter_pointer"]
        words = "static_cast<int64*>(mailbox_pointer)"
        telling = (
            f", {words} + {signal.mailbox.dropped}, {words} + {signal.mailbox.first_flag}, call, "
        )
        telling += "static_cast<uint32*>(counter_pointer)"
    has_shared = not (isinstance(shared_bytes, int) and shared_bytes == 0)
    if has_shared:
        parameters.append("void* shared_pointer")

    index = "static_cast<const typename P::Index*>"
    index_list = ", ".join(f"{index}(index{i}_pointer)" for i in range(len(operands.indices)))
    extent_list = ", ".join(f"Offset(extent{j})" for j in range(len(sizes.extents)))
    lines += [
        f"  using P = {struct};",
        "  using Data = P::Data;",
        "  using Offset = P::Offset;",
        "  Data* const out = static_cast<Data*>(out_pointer);",
        f"  const P::Updates updates{{{', '.join(updates.fields)}}};",
        f"  const P::Output output{{{', '.join(output.fields)}}};",
        "  const Data* const data = "
        + ("static_cast<const Data*>(data_pointer);" if "data" in pointers else "nullptr;"),
        "  char* const workspace = "
        + ("static_cast<char*>(workspace_pointer);" if "workspace" in pointers else "nullptr;"),
        "  const Sizes<P> sizes{Offset(batch), Offset(count), Offset(slice), "
        f"{{{extent_list}}}{telling}}};",
        f"  const Indices<P> indices{{{{{index_list}}}}};",
        "  (void)out, (void)updates, (void)output, (void)data, (void)workspace;",
        "  (void)sizes, (void)indices;",
    ]
    if has_shared:
        lines.append("  char* const shared = static_cast<char*>(shared_pointer);")
    name, source = routine(
        ("problem", "reduction", *updates.headers, *output.headers, *headers),
        [updates.text, output.text, text],
        parameters,
        "\n".join([*lines, body]),
    )
    values = [tensors[name].data for name in pointers for tensors in scatters]
    values += list(numbers.values()) + [value for _, value in arguments.values()]
    if signal:
        values += [signal.mailbox.words.data, signal.call, signal.counter]
    shared = shared_bytes if has_shared else None
    run_routine(name, source, values, blocks, threads[0], shared, len(scatters), threads[1])


def _tensors(operands: Operands, updates: Generated, finishes: bool) -> dict[str, Any]:
    """The buffer parameters of a kernel, by name."""
    tensors = {"out": operands.out, **updates.tensors}
    tensors |= written_output(operands, finishes).tensors
    tensors |= zip(operands.problem.ordering, operands.ordering, strict=True)
    if operands.data is not None:
        tensors["data"] = operands.data
    if operands.workspace is not None:
        tensors["workspace"] = operands.workspace
    return tensors | {f"index{i}": buffer for i, buffer in enumerate(operands.indices)}


def _pointers(names: Sequence[str], scatters: int) -> tuple[list[str], list[str]]:
    """The C++ parameters for all scatters' tensors, and statements that select a block's own."""
    if scatters == 1:
        return [f"void* {name}_pointer" for name in names], []
    parameters = [f"void* {name}_{at}" for name in names for at in range(scatters)]
    lines = [
        f"  void {', '.join(f'*{name}_pointer' for name in names)};",
        "  switch (blockIdx.y) {",
    ]
    for at in range(scatters):
        label = "default" if at == scatters - 1 else f"case {at}"
        found = " ".join(f"{name}_pointer = {name}_{at};" for name in names)
        lines.append(f"    {label}: {found} break;")
    return parameters, [*lines, "  }"]


def run_routine(
    name: str,
    source: str,
    values: Sequence[Any],
    blocks: Any,
    threads: int,
    shared_bytes: Any = None,
    scatters: int = 1,
    together: int = 0,
) -> None:
    """Launch ``blocks`` x ``threads`` threads for each scatter; all call a device routine."""
    with ExitStack() as launched:
        launched.enter_context(T.launch_thread("blockIdx.x", grid_size(blocks)))
        if scatters > 1:
            launched.enter_context(T.launch_thread("blockIdx.y", scatters))
        launched.enter_context(T.launch_thread("threadIdx.x", threads))
        if together:
            launched.enter_context(T.attr({_TOGETHER: together}))
        arguments = [_as_argument(value) for value in values]
        if shared_bytes is not None:
            shared = T.alloc_buffer((shared_bytes,), "uint8", scope="shared.dyn")
            arguments.append(shared.data)
        T.evaluate(T.cuda.func_call(name, *arguments, source_code=source))


def run_body(
    header: str, body: str, arguments: Mapping[str, Any], blocks: Any, threads: int
) -> None:
    """Launch threads that run C++ statements.

    Parameters
    ----------
    header : str
        The name of the device header that the statements use, without extension.
    arguments : mapping
        Parameters, each a type and a name, and their values.
    """
    name, source = routine((header,), (), list(arguments), body)
    run_routine(name, source, list(arguments.values()), blocks, threads)


def grid_size(blocks: Any) -> Any:
    """``blocks``, limited to the numbers that a launch allows."""
    return at_most(at_least(blocks, 1), _MAX_BLOCKS)


def _as_argument(value: Any) -> Any:
    return tirx.IntImm("int64", value) if isinstance(value, int) else value
