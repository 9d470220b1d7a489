"""Functions that PyTorch has of floats only, though it exports them of integers, too."""

from __future__ import annotations

from typing import Any

from tvm_scatter.errors import ScatterError

from .arithmetic import is_integral
from .graphs import graphs_of, schema_of

_OF_FLOATS = (
    *(
        "celu",
        "frac",
        "hardshrink",
        "hardsigmoid",
        "hardswish",
        "huber_loss",
        "lerp",
        "log_sigmoid",
    ),
    *("logaddexp", "logaddexp2", "logcumsumexp", "mish", "nextafter", "prelu", "rrelu", "silu"),
    *("smooth_l1_loss", "softplus", "special_round"),
)


def refuse_integer_arguments(program: Any) -> None:
    """Check that functions of floats alone are called with floats.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, before it is decomposed.

    Raises
    ------
    ScatterError
        If one is called with integers, which PyTorch refuses when it runs.
    """
    for graph in graphs_of(program):
        for node in graph.nodes:
            schema = schema_of(node)
            name = "" if schema is None else str(schema.name).rpartition("::")[2].rstrip("_")
            if name not in _OF_FLOATS or not node.args:
                continue
            value = getattr(node.args[0], "meta", {}).get("val")
            dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
            if is_integral(dtype):
                raise ScatterError(
                    f"{name}: values must be floats, not of type {dtype}, as in PyTorch."
                )
