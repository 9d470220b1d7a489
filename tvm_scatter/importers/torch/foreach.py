"""Operators on lists of tensors, such as an optimiser's, as operators on one tensor each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OTHER_NAMES = {"norm": "linalg_vector_norm", "zero": "zeros_like"}
_OF_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}
#: Of one tensor these take their last argument by name only.
_BY_NAME = {"addcdiv": "value", "addcmul": "value"}


def of_each(operator: Any) -> Callable[..., list[Any]]:
    """What ``_foreach_add.List`` and its kin compute: ``add`` of each tensor of the lists.

    Parameters
    ----------
    operator : torch._ops.OpOverload
        An operator whose name starts with ``_foreach_``.

    Returns
    -------
    decomposition : callable
        Takes the same arguments, and returns a list.
    """
    import torch

    name = operator._schema.name.removeprefix("aten::_foreach_")
    others = _OF_NUMBERS if operator._overloadname.startswith("Scalar") else _OTHER_NAMES
    single = getattr(torch.ops.aten, others.get(name, name))

    def decomposition(*arguments: Any, **named: Any) -> list[Any]:
        if name in _BY_NAME and len(arguments) > 3:
            *arguments, named[_BY_NAME[name]] = arguments  # type: ignore[assignment]

        def one(at: int) -> Any:
            keywords = {key: _item(value, at) for key, value in named.items()}
            return single(*(_item(value, at) for value in arguments), **keywords)

        return [one(at) for at in range(len(arguments[0]))]

    return decomposition


def _item(value: Any, position: int) -> Any:
    return value[position] if isinstance(value, list | tuple) else value
