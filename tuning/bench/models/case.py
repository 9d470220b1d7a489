"""What one row of the benchmark of models computes, and who else can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from .libraries import Maker


@dataclass(frozen=True)
class Case:
    """A module of PyTorch with its inputs.

    Attributes
    ----------
    module : torch.nn.Module
        What is computed.
    inputs : tuple of torch.Tensor
        Its inputs. The first holds the rows that are read.
    counts : torch.Tensor or None
        How many messages go into each element of the result, of a shape that broadcasts to its;
        ``None`` for a whole model.
    indices : tuple of torch.Tensor
        Where each message goes, one for each scatter; none if they are in order already.
    extent : int
        How many destinations there are.
    floor_bytes : int
        The bytes that must move: a row for each message, and the result once.
    varying : tuple of tuple of int
        Of each input the axes whose sizes differ from one batch or graph to the next.
    prepared : dict of str to callable
        Forms of other libraries, which are made from the inputs.
    """

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    counts: torch.Tensor | None
    indices: tuple[torch.Tensor, ...]
    extent: int
    floor_bytes: int
    varying: tuple[tuple[int, ...], ...]
    prepared: Mapping[str, Maker] = field(default_factory=dict)

    def on(self, device: str) -> Case:
        """The same with all tensors on a device."""
        return replace(
            self,
            inputs=tuple(each.to(device) for each in self.inputs),
            counts=None if self.counts is None else self.counts.to(device),
            indices=tuple(each.to(device) for each in self.indices),
        )


def bytes_of(*tensors: torch.Tensor) -> int:
    """The bytes of some tensors."""
    return sum(each.numel() * each.element_size() for each in tensors)
