"""The zoo: models that people compile, each small, with random weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from . import libraries  # noqa: F401

#: The files of models, in the order of the table.
FILES = ("graphs", "language", "vision", "gradients", "idioms", "second_look")


class Program(NamedTuple):
    """What is exported, and with what it is run.

    Attributes
    ----------
    module : torch.nn.Module or callable
        A module, or a function of tensors.
    inputs : sequence of torch.Tensor
        The inputs to export with, and to run with.
    dynamic : sequence, optional
        The symbolic sizes of each input, as ``torch.export`` takes them.
    again : sequence of torch.Tensor, optional
        Inputs of other sizes, to run the compiled model with once more.
    """

    module: Any
    inputs: Sequence[torch.Tensor]
    dynamic: Sequence[Any] | None = None
    again: Sequence[torch.Tensor] | None = None

    @property
    def is_function(self) -> bool:
        """Whether the module takes its tensors as one argument, ``*inputs``."""
        return isinstance(self.module, _Function)


@dataclass(frozen=True)
class Entry:
    """A model of the zoo.

    Attributes
    ----------
    name : str
        Its name in the table.
    library : str
        Where the model comes from; ``"idiom"`` for a few lines that many models hold.
    file : str
        The file of the zoo that has it.
    make : callable
        Makes the program.
    tolerance : float
        The greatest difference from PyTorch, relative to the greatest value of a result.
    """

    name: str
    library: str
    file: str
    make: Callable[[], Program]
    tolerance: float

    def program(self) -> Program:
        """The program, the same one in every process."""
        torch.manual_seed(0)
        program = self.make()
        if not isinstance(program.module, torch.nn.Module):
            program = program._replace(module=_Function(program.module))
        program.module.eval()
        return program


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


_ENTRIES: dict[str, Entry] = {}


def model(
    name: str, library: str = "idiom", tolerance: float = 1e-4
) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """Put the program that a function makes into the zoo."""

    def register(make: Callable[[], Program]) -> Callable[[], Program]:
        if name in _ENTRIES:
            raise ValueError(f"The zoo has two models named {name!r}; each needs its own name.")
        file = make.__module__.rpartition(".")[2]
        _ENTRIES[name] = Entry(name, library, file, make, tolerance)
        return make

    return register


def entries() -> list[Entry]:
    """All models of which the library is installed."""
    for file in FILES:
        try:
            importlib.import_module(f".{file}", __package__)
        except ModuleNotFoundError as error:
            if error.name in (None, f"{__package__}.{file}"):
                raise
    return list(_ENTRIES.values())
