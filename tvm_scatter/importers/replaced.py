"""Replaces what a function does, also where other modules have imported it by name already."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any


def replace(function: Any, replacement: Callable[..., Any]) -> None:
    """Make a function call ``replacement``.

    ``from module import function`` binds the function itself. So to assign another one to the
    module would come too late for those who have imported it before; the code is exchanged instead.

    Parameters
    ----------
    function : function
        A function of a module, without a closure. No other of its module can be replaced as well.
    replacement : callable
        Takes the function as it was, and then the arguments.
    """
    restore(function)
    former = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    former.__kwdefaults__ = function.__kwdefaults__
    function.__globals__[_called.__code__.co_names[0]] = partial(replacement, former)
    function.__code__ = _called.__code__
    # Where `inspect` looks for the signature.
    function.__wrapped__ = former


def restore(function: Any) -> None:
    """Give a function that was replaced its own code again."""
    former = function.__dict__.pop("__wrapped__", None)
    if former is not None:
        function.__code__ = former.__code__
        del function.__globals__[_called.__code__.co_names[0]]


def _called(*arguments: Any, **named: Any) -> Any:
    """Run with the globals of the function that is replaced."""
    return _tvm_scatter_replacement(*arguments, **named)  # type: ignore[name-defined] # noqa: F821
