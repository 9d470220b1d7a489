"""What is stored where tensors are computed from each other, so that no expression is too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .expression_length import MOST_CHOICES, ExpressionLength

#: The length of what is read from memory.
READ = ExpressionLength()


@dataclass(frozen=True)
class Step:
    """How one tensor is computed from others.

    Attributes
    ----------
    operands : sequence
        The tensors that it is computed from.
    length : callable
        The length of an element's expression, given those of the operands in their order.
    is_stored : bool
        Whether the tensor is in memory in any case.
    """

    operands: Sequence[Any]
    length: Callable[[Sequence[ExpressionLength]], ExpressionLength]
    is_stored: bool = False

    def uses(self, at: int) -> int:
        """How often an operand stands in the expression."""
        in_front, behind = [READ] * at, [READ] * (len(self.operands) - at - 1)
        once, twice = (self.length([*in_front, ExpressionLength(size), *behind]) for size in (1, 2))
        return twice.nodes - once.nodes


def stored_between(steps: Mapping[Any, Step], most_choices: int = MOST_CHOICES) -> set[Any]:
    """The tensors to store.

    Parameters
    ----------
    steps : mapping of tensor to Step
        In the order in which they are computed.
    most_choices : int
        The most choices by what was chosen, one in another.
    """
    return _Chains(steps, most_choices).stored()


class _Chains:
    def __init__(self, steps: Mapping[Any, Step], most_choices: int) -> None:
        self._steps, self._most_choices = steps, most_choices
        self._lengths: dict[Any, ExpressionLength] = {}

    def stored(self) -> set[Any]:
        """The tensors to store, so that no expression between them is too long."""
        order = list(self._steps)
        found: set[Any] = set()
        at = 0
        while at < len(order):
            tensor = order[at]
            if tensor not in found:
                step = self._steps[tensor]
                length = step.length([self._length_of(operand) for operand in step.operands])
                self._lengths[tensor] = length
                cut = self._cut(tensor) if length.is_too_long(self._most_choices) else None
                if cut is not None:
                    found.add(cut)
                    self._lengths[cut] = READ
                    # What is computed from it is shorter now.
                    at = order.index(cut)
                elif step.is_stored:
                    self._lengths[tensor] = READ
            at += 1
        return found

    def _length_of(self, operand: Any) -> ExpressionLength:
        return self._lengths.get(operand, READ)

    def _cut(self, tensor: Any) -> Any:
        """The nearest tensor that stands more than once in the expression of another one.

        The longest part of it is followed. Without such a tensor the first is taken, and ``None``
        if nothing is computed in front.
        """
        by_nodes = self._lengths[tensor].has_many_nodes
        path: list[Any] = []
        while (tensor := self._longest_operand(tensor, by_nodes)) is not None:
            if self._uses(tensor) > 1:
                return tensor
            path.append(tensor)
        return path[0] if path else None

    def _uses(self, tensor: Any) -> int:
        """How often a tensor stands in the expressions of those that are computed from it."""
        return sum(
            step.uses(at)
            for step in self._steps.values()
            for at, operand in enumerate(step.operands)
            if operand.same_as(tensor)
        )

    def _longest_operand(self, tensor: Any, by_nodes: bool) -> Any:
        """The operand that makes an expression long; ``None`` if all are read from memory."""

        def length(operand: Any) -> int:
            found = self._length_of(operand)
            return found.nodes if by_nodes else found.choices

        computed = [each for each in self._steps[tensor].operands if self._length_of(each) != READ]
        return max(computed, key=length, default=None)
