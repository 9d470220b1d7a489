"""How device code that sorts lines is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_scatter.emit.sort import SortProblem
from tvm_scatter.strategies.cuda.codegen.source import c_type

#: The tensor in C++, by the parameters that :func:`sizes` names.
TENSOR = "LinesToSort{lines, length, inner}"

#: C++ parameters and their values.
Arguments = Mapping[str, Any]


def sizes(problem: SortProblem) -> Arguments:
    """The parameters that describe the tensor."""
    return {
        "long long lines": problem.number,
        "long long length": problem.length,
        "long long inner": problem.inner,
    }


def tensors(data: Any, places: Any) -> Arguments:
    """The parameters of what is read and written."""
    return {"void* out": places.data, "void* data": data.data}


def data_of(problem: SortProblem) -> str:
    """The elements in C++."""
    return f"static_cast<const {c_type(problem.dtype)}*>(data)"


def pointers(problem: SortProblem) -> str:
    """The places and the elements in C++."""
    return f"static_cast<{c_type(problem.place_dtype)}*>(out), {data_of(problem)}"


def descending(problem: SortProblem) -> str:
    """The argument of templates."""
    return "true" if problem.descending else "false"
