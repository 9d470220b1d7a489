"""Says at once which operators of a program have no converter, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from typing import Any

from tvm_scatter.errors import ScatterError

from .graphs import graphs_of, name_of

#: PyTorch's operators that repeat a function.
_LOOPS = {"associative_scan", "map_impl", "scan", "while_loop", "while_loop_stack_output"}

#: What PyTorch wraps calls in whose order matters.
_WITH_EFFECTS = "with_effects"


class UnsupportedOperators(ScatterError, AssertionError):
    """Operators without a converter; TVM's importer raises an ``AssertionError`` for them."""


def refuse_unsupported(program: Any, known: Container[str]) -> None:
    """Check that each operator has a converter.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The decomposed program.
    known : container of str
        The names of the overloads that have a converter.

    Raises
    ------
    UnsupportedOperators
        If there are operators without: all of them are named, each with that of the model from
        which PyTorch has made it.
    """
    unknown = [node for node in _calls(program) if name_of(node) not in known]
    if unknown:
        raise _unsupported(
            unknown,
            "there is no converter for them; compute their results outside of the model and make "
            "them inputs, write them with other operators, or pass converters by "
            "custom_convert_map.",
        )


def refuse_constants_without_data(program: Any) -> None:
    """Check that constants have values. ``torch.export`` keeps none of what it has differentiated.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program.

    Raises
    ------
    ScatterError
        If there are constants without values, which are named.
    """
    from torch._C._functorch import is_functorch_wrapped_tensor
    from torch._subclasses.fake_tensor import FakeTensor

    without = [
        name
        for name, each in program.constants.items()
        if isinstance(each, FakeTensor) or is_functorch_wrapped_tensor(each)
    ]
    if without:
        raise ScatterError(
            f"constant {', '.join(without)}: torch.export kept no values, as of what torch.func "
            "differentiates; trace the function with make_fx and export what that returns."
        )


def refuse_loops(program: Any, known: Collection[str]) -> None:
    """Check that there are no loops. PyTorch cannot decompose all of them, and does not say which.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, not decomposed.
    known : collection of str
        The names of the operators for which the caller has a converter.

    Raises
    ------
    UnsupportedOperators
        If there are loops, which are named.
    """
    from torch._ops import HigherOrderOperator

    calls = (node for node in _calls(program) if isinstance(node.target, HigherOrderOperator))
    loops = [node for node in calls if name_of(node) in _LOOPS - {*known}]
    if loops:
        raise _unsupported(
            loops,
            "loops are not imported; write a fixed number of steps as a loop of Python, which "
            "torch.export unrolls, or all steps at once with other operators.",
        )


def _calls(program: Any) -> Iterator[Any]:
    nodes = (node for graph in graphs_of(program) for node in graph.nodes)
    return (node for node in nodes if node.op == "call_function")


def _unsupported(nodes: Iterable[Any], what: str) -> UnsupportedOperators:
    origins: dict[str, set[str]] = {}
    for node in nodes:
        name, origin = _called(node), _origin(node)
        of_name = origins.setdefault(name, set())
        if origin not in ("", name.partition(".")[0]):
            of_name.add(origin)
    names = ", ".join(_described(name, origins[name]) for name in sorted(origins))
    # TVM's own words come first: tests and tools look for them.
    return UnsupportedOperators(f"Unsupported function types [{names}]: {what}")


def _described(name: str, origins: Collection[str]) -> str:
    return f"'{name}' (of {', '.join(sorted(origins))})" if origins else f"'{name}'"


def _called(node: Any) -> str:
    """The overload that a node calls. One with effects, such as a check, is wrapped in another."""
    name = name_of(node)
    return str(node.args[1]).removeprefix("aten.") if name == _WITH_EFFECTS else name


def _origin(node: Any) -> str:
    """The function that the model calls, if PyTorch remembers it."""
    original = getattr(node.meta.get("original_aten"), "_schema", None)
    if original is not None and name_of(node).partition(".")[0] != _unqualified(original.name):
        return _unqualified(original.name)
    # PyTorch counts what it takes apart before anything else as what it is taken apart into.
    _, function = node.meta.get("torch_fn", ("", ""))
    return str(function).rpartition(".")[2]


def _unqualified(name: str) -> str:
    return name.removeprefix("aten::")
