"""From a selection to a PrimFunc: the frame that every implementation's statements go into."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.problem.extent import Extent
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least
from tvm_scatter.selection.default_rules import compare
from tvm_scatter.selection.strategy import Branch, Selection

if TYPE_CHECKING:
    from tvm_scatter.emit.mailbox import Noted

Dim = int | str


@dataclass(frozen=True)
class Signature:
    """The shapes in which a call passes the operands of a problem.

    Parameters
    ----------
    operator : str
        The operator's name, for error messages.
    data, updates : tuple of (int or str)
        Shapes; a ``str`` names a symbolic size of the problem.
    indices : tuple of tuple of (int or str)
        One shape for each index tensor.
    """

    operator: str
    data: tuple[Dim, ...]
    indices: tuple[tuple[Dim, ...], ...]
    updates: tuple[Dim, ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic sizes, sorted."""
        shapes = (self.data, self.updates, *self.indices)
        return tuple(sorted({dim for shape in shapes for dim in shape if isinstance(dim, str)}))


@dataclass
class Notes:
    """How a scatter tells the host that it has passed over an index.

    Attributes
    ----------
    noted : Noted
        Where the note is left, and where it is said to be final.
    call : expression
        The number of the call, which says so.
    counter : handle
        A number on the GPU by which blocks of one launch count themselves, from zero to zero.
    tell : callable
        Adds a launch that says so.
    final : bool
        Whether something that says so was added.
    """

    noted: Noted
    call: Any
    counter: Any
    tell: Callable[[], None]
    final: bool = False


@dataclass(frozen=True)
class Operands:
    """What an implementation's :meth:`~tvm_scatter.selection.strategy.Implementation.emit` works on.

    Attributes
    ----------
    problem : ScatterProblem
        The problem.
    signature : Signature
        The shapes behind the buffers.
    target : tvm.target.Target
        What the code is for.
    data : buffer or None
        The input; ``None`` where the problem is in place and ``out`` holds the data already.
    indices : list of buffer
        One for each component, or one for all if the problem is interleaved.
    updates, out : buffer
        The updates and the result. All buffers are one-dimensional, compact and row-major.
    workspace : buffer or None
        ``uint8`` scratch memory of the size that the implementation asked for.
    sizes : Sizes
        Numbers, or int64 expressions for symbolic sizes.
    notes : Notes or None
        Where an index that is passed over is noted, if that is wanted.
    others : tuple of Operands
        Those of further scatters of the same problem, which a GPU's launches compute as well.
    """

    problem: ScatterProblem
    signature: Signature
    target: Any
    data: Any
    indices: Sequence[Any]
    updates: Any
    out: Any
    workspace: Any
    sizes: Sizes
    notes: Notes | None = None
    others: tuple[Operands, ...] = ()

    @property
    def noting(self) -> bool:
        """Whether what resolves an index has to note that it is passed over."""
        return self.notes is not None and not self.notes.final

    def indices_are_seen(self, told: bool = False) -> None:
        """Say that the launches so far have resolved every index: those that follow note none.

        An implementation says so where much follows, which the host then need not wait for.

        Parameters
        ----------
        told : bool
            Whether the last launch itself tells the host.
        """
        if self.noting:
            assert self.notes is not None
            if not told:
                self.notes.tell()
            self.notes.final = True


#: Opaque, so that FuseTIR leaves the function alone, and scheduled, so that dlight does.
PRIM_FUNC_ATTRS = {"op_pattern": 8, "tirx.is_scheduled": True, "tirx.noalias": True}


def build_prim_func(
    problem: ScatterProblem,
    signature: Signature,
    selection: Selection,
    target: Any,
    tokens: int = 0,
    scatters: int = 1,
    notes: Callable[[Any, Any], Notes] | None = None,
) -> tirx.PrimFunc:
    """Build the function that computes a problem by the selected implementations.

    Parameters
    ----------
    tokens : int
        How many more arguments the function takes in front of the output, so that what computes
        them is ordered before it.
    scatters : int
        How many scatters of the problem it computes, each with operands of its own.
    notes : callable, optional
        What makes notes of the last two tokens, tensors that are taken as bare handles. The others
        are not used.

    Returns
    -------
    func : tvm.tirx.PrimFunc
        Takes data, indices and updates of each scatter, tokens, out of each, [workspace of each];
        where the problem is in place, data is the output. The module that it is added to names it.
    """
    workspace_bytes = workspace_size(problem, selection, dict.fromkeys(problem.symbols, 1))
    has_workspace = workspace_bytes is not None
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr(PRIM_FUNC_ATTRS)
            parameters = Parameters()
            suffixes = ["", *(f"_{each}" for each in range(1, scatters))]
            for suffix in suffixes:
                parameters.add(f"data{suffix}", signature.data, problem.data_dtype)
                for i, shape in enumerate(signature.indices):
                    parameters.add(f"index{i}{suffix}", shape, problem.index_dtype)
                parameters.add(f"updates{suffix}", signature.updates, problem.data_dtype)
            handles = [T.arg(f"token{i}", T.handle()) for i in range(tokens)]
            if not problem.in_place:
                for suffix in suffixes:
                    parameters.add(f"out{suffix}", signature.data, problem.data_dtype)
            if has_workspace:
                size = workspace_bytes if problem.is_static else "workspace_bytes"
                for suffix in suffixes:
                    parameters.add(f"workspace{suffix}", (size,), "uint8")
            # An implementation may ask for the current target, as TVM's own operators do.
            with target, parameters.in_body() as buffers:
                left = iter(buffers)
                inputs = [[next(left) for _ in range(2 + len(signature.indices))] for _ in suffixes]
                outs = [next(left) for _ in suffixes if not problem.in_place]
                workspaces = [next(left) for _ in suffixes if has_workspace]
                sizes = Sizes.of(problem, parameters.symbols)
                operands = [
                    Operands(
                        problem=problem,
                        signature=signature,
                        target=target,
                        data=None if problem.in_place else data,
                        indices=indices,
                        updates=updates,
                        out=data if problem.in_place else outs[at],
                        workspace=workspaces[at] if has_workspace else None,
                        sizes=sizes,
                    )
                    for at, (data, *indices, updates) in enumerate(inputs)
                ]
                notes_here = notes(*handles[-2:]) if notes else None
                for each in _together(operands, target):
                    each = replace(each, notes=notes_here)
                    _emit_branches(each, list(selection.branches))
                    each.indices_are_seen()
    return builder.get()


def _together(operands: Sequence[Operands], target: Any) -> list[Operands]:
    """What is computed one after the other: all at once on a GPU, each by itself on a CPU."""
    if "gpu" not in target.keys:
        return list(operands)
    return [replace(operands[0], others=tuple(operands[1:]))]


class Parameters:
    """The buffer parameters of a PrimFunc under construction, and the symbolic sizes they bind."""

    def __init__(self) -> None:
        self.symbols: dict[str, Any] = {}
        self._declared: list[tuple[Any, tuple[Dim, ...], str]] = []

    def add(self, name: str, shape: Sequence[Dim], dtype: str) -> None:
        """Declare the next parameter."""
        for dim in shape:
            if isinstance(dim, str) and dim not in self.symbols:
                self.symbols[dim] = tirx.Var(dim, "int64")
        self._declared.append((T.arg(name, T.handle()), tuple(shape), dtype))

    def size(self, shape: Sequence[Dim]) -> Any:
        """The number of elements of a shape: an ``int`` or an int64 expression."""
        return Extent.product(shape).value(self.symbols)

    @contextmanager
    def in_body(self) -> Iterator[list[Any]]:
        """The body of the function, once all are declared: the parameters as flat buffers."""
        matched = [
            T.match_buffer(
                handle,
                tuple(self.symbols[dim] if isinstance(dim, str) else dim for dim in shape),
                dtype,
                # TVM would take a caller's tensor for aligned to 64 bytes, and a view need not be.
                align=item_bytes(dtype),
            )
            for handle, shape, dtype in self._declared
        ]
        with opaque_block():
            yield [
                T.decl_buffer((self.size(shape),), dtype, data=buffer.data)
                for buffer, (_, shape, dtype) in zip(matched, self._declared, strict=True)
            ]


@contextmanager
def opaque_block() -> Iterator[None]:
    """All that a function does, in one block that TVM's schedulers and tuner leave as it is.

    It stands in a block of its own: TVM's passes expect a function to begin with one for all, and
    one of them that each statement there has others in it.
    """
    with _untouched("root"), _untouched("opaque"):
        yield


@contextmanager
def _untouched(name: str) -> Iterator[None]:
    with T.sblock(name):
        T.reads()
        T.writes()
        T.sblock_attr({"schedule_rule": "None"})
        yield


def _emit_branches(operands: Operands, branches: Sequence[Branch]) -> None:
    """Emit every distinct arm once, behind the number of the first branch whose conditions hold."""
    arms = list(dict.fromkeys(map(_arm, branches)))
    if len(arms) == 1:
        branches[-1].implementation.emit(operands, branches[-1].config)
        return
    last = tirx.IntImm("int32", arms.index(_arm(branches[-1])))
    chosen: Any = last
    for branch in reversed(branches[:-1]):
        number = tirx.IntImm("int32", arms.index(_arm(branch)))
        chosen = tirx.Select(_condition(operands, branch), number, chosen)
    by_arm = {_arm(branch): branch for branch in branches}
    # The arm of the last branch takes what is left, so it stands last.
    order = [arm for arm in arms if arm != _arm(branches[-1])]
    numbered = [(arms.index(arm), by_arm[arm]) for arm in order]
    _emit_arms(operands, numbered, T.bind(chosen), branches[-1])


def _arm(branch: Branch) -> tuple[str, tuple[tuple[str, int], ...]]:
    return branch.implementation.name, tuple(sorted(branch.config.items()))


def _emit_arms(
    operands: Operands, arms: Sequence[tuple[int, Branch]], chosen: Any, last: Branch
) -> None:
    if not arms:
        last.implementation.emit(operands, last.config)
        return
    number, branch = arms[0]
    with T.If(chosen == tirx.IntImm("int32", number)):
        with T.Then():
            branch.implementation.emit(operands, branch.config)
        with T.Else():
            _emit_arms(operands, arms[1:], chosen, last)


def _condition(operands: Operands, branch: Branch) -> Any:
    condition = tirx.const(True, "bool")
    for name, comparison, value in branch.conditions:
        size = getattr(operands.sizes, name)
        condition = tirx.all(condition, compare(size, comparison, tirx.IntImm("int64", value)))
    guard = branch.implementation.guard(operands.problem, operands.sizes, operands.target)
    return condition if guard is True else tirx.all(condition, guard)


def workspace_size(problem: ScatterProblem, selection: Selection, symbols: dict[str, Any]) -> Any:
    """Bytes of workspace that the selection needs, or ``None`` if it needs none.

    Whether any is needed does not depend on the values of the symbols.
    """
    sizes = Sizes.of(problem, symbols)
    result: Any = None
    for branch in selection.branches:
        size = branch.implementation.workspace(problem, sizes, branch.config)
        if isinstance(size, int) and size == 0:
            continue
        if result is None:
            result = size
        elif isinstance(result, int) and isinstance(size, int):
            result = max(result, size)
        else:
            result = tirx.max(result, size)
    return None if result is None else at_least(result, 16)


def function_name(problem: ScatterProblem, selection: Selection) -> str:
    """A name that says what the function does, for profilers and for people."""
    names = "_or_".join(dict.fromkeys(branch.implementation.name for branch in selection.branches))
    return re.sub(r"\W", "_", f"scatter_{problem.reduction}_{names}")
