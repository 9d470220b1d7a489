"""Restricts what PyTorch reads of a file of ``torch.export.save`` to tensors and a program.

``torch.export.load`` would load native libraries, unpickle objects and load every program of a
file. Only the parts that a model needs are handed on. Parts that no model needs are refused.
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
    """A copy of the file that is safe for PyTorch to read.

    Raises
    ------
    RefusedError
        If the file holds anything that ``torch.export.save`` does not write for a model of tensors.
    """
    with path.open("rb") as file, clean_copy(file, _MODEL) as copy:
        yield copy


def _left_out(_content: bytes) -> bytes:
    return b""


def _pickled_tensors(content: bytes) -> bytes:
    """A file of ``torch.save``, copied with its tensors only; empty if there are none."""
    if not content:
        return content
    with clean_copy(io.BytesIO(content), _TENSORS) as copy:
        return copy.read()


def _patterns(allowed: Mapping[str, Rewrite]) -> Allowed:
    return {re.compile(pattern, re.ASCII): rewrite for pattern, rewrite in allowed.items()}


#: Entries with metadata, in every archive of PyTorch.
_ABOUT = r"(\.data/)?version|byteorder|\.data/serialization_id|\.format_version|\.storage_alignment"
_TENSORS = _patterns({_ABOUT: None, r"data\.pkl|data/\d+": None})
_MODEL = _patterns(
    {
        _ABOUT: None,
        "archive_format|archive_version": None,
        r"models/model\.json": clean_program,
        r"data/(weights|constants)/model_(weights|constants)_config\.json": clean_program,
        r"data/(weights/weight|constants/tensor)_\d+": None,
        # Pickles that are not needed.
        r"data/sample_inputs/model\.pt|serialized_example_inputs\.pt": _left_out,
        "(extra|extra_files)/.*": _left_out,
        # The names before PyTorch 2.9.
        r"data/(weights|constants)/model\.pt": _pickled_tensors,
        # The names before PyTorch 2.8.
        r"serialized_exported_program\.json": clean_program,
        r"serialized_(state_dict|constants)\.pt": _pickled_tensors,
    }
)
