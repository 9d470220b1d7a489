"""Matplotlib without a display."""

from __future__ import annotations

from typing import Any

from tvm_scatter.errors import ScatterError


def pyplot(what: str) -> Any:
    """Matplotlib's plotting interface.

    Parameters
    ----------
    what : str
        What needs it, for the error message.

    Raises
    ------
    ScatterError
        If matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ScatterError(f"{what} needs matplotlib; install tvm_scatter[report].") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as interface

    return interface
