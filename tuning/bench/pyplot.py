"""Matplotlib without a display."""

from __future__ import annotations

import os
from pathlib import Path
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
    # Read on import, and refused there if it names no backend that there is.
    chosen = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    except ImportError as error:
        raise ScatterError(f"{what} needs matplotlib; install tvm_scatter[report].") from error
    finally:
        if chosen is not None:
            os.environ["MPLBACKEND"] = chosen
    matplotlib.use("Agg")
    from matplotlib import pyplot as interface

    return interface


def save_times(plotting: Any, figure: Any, axes: Any, device: str, path: Path) -> None:
    """Finish and write a picture of bars that are microseconds, with its legend in one line."""
    axes.set_xlabel(f"microseconds on {device}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=140)
    plotting.close(figure)
