"""The folder in which a user's own measurements are kept, from one program to the next."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from tvm_scatter.errors import ScatterError

#: The environment variable that names another folder.
FOLDER = "TVM_SCATTER_DATA_DIR"


def user_folder() -> Path:
    """``$TVM_SCATTER_DATA_DIR``, else the user's data folder. It need not exist.

    Raises
    ------
    ScatterError
        If the variable does not name a folder.
    """
    chosen = os.environ.get(FOLDER)
    if not chosen:
        return platformdirs.user_data_path("tvm_scatter").absolute()
    try:
        return Path(chosen).expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ScatterError(f"{FOLDER}={chosen!r} must be a folder: {error}.") from error
