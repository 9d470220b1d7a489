"""What of a file of ``torch.export.save`` PyTorch gets to see: tensors and a program, nothing else.

``torch.export.load`` loads native libraries, unpickles objects and loads every program of a file.
Of what is in the file, only what a model needs is handed on; what it never needs is refused.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .archive import Allowed, Rewrite, clean_copy
from .program import clean_program


@contextmanager
def readable(path: Path) -> Iterator[IO[bytes]]:
    """The file as PyTorch may read it.

    Raises
    ------
    RefusedError
        If it holds anything that ``torch.export.save`` does not write for a model of tensors.
    """
    with path.open("rb") as file, clean_copy(file, _MODEL) as copy:
        yield copy


def _left_out(_content: bytes) -> bytes:
    return b""


def _pickled_tensors(content: bytes) -> bytes:
    """What ``torch.save`` wrote; empty where there was nothing to save."""
    if not content:
        return content
    with clean_copy(io.BytesIO(content), _TENSORS) as copy:
        return copy.read()


def _patterns(allowed: Mapping[str, Rewrite]) -> Allowed:
    return {re.compile(pattern, re.ASCII): rewrite for pattern, rewrite in allowed.items()}


#: What every archive of PyTorch says about itself.
_ABOUT = r"(\.data/)?version|byteorder|\.data/serialization_id|\.format_version|\.storage_alignment"
_TENSORS = _patterns({_ABOUT: None, r"data\.pkl|data/\d+": None})
_MODEL = _patterns(
    {
        _ABOUT: None,
        "archive_format|archive_version": None,
        r"models/model\.json": clean_program,
        r"data/(weights|constants)/model_(weights|constants)_config\.json": clean_program,
        r"data/(weights/weight|constants/tensor)_\d+": None,
        # Pickles, of which nothing is needed.
        r"data/sample_inputs/model\.pt|serialized_example_inputs\.pt": _left_out,
        "(extra|extra_files)/.*": _left_out,
        # Before PyTorch 2.9.
        r"data/(weights|constants)/model\.pt": _pickled_tensors,
        # Before PyTorch 2.8.
        r"serialized_exported_program\.json": clean_program,
        r"serialized_(state_dict|constants)\.pt": _pickled_tensors,
    }
)
