"""Reads model files and options from the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.options import Options, options
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.strategy import strategy_for

from .archive import RefusedError
from .model_file import readable

#: With this variable, PyTorch refuses pickles that hold more than tensors.
_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def load(path: str) -> tvm.IRModule:
    """Read a file that ``torch.export.save`` wrote and import it.

    Raises
    ------
    ScatterError
        If the file is not such a model, or TVM cannot import it.
    """
    file = need_file(path)
    torch = import_torch()
    try:
        with quiet(), _tensors_only(), readable(file) as checked:
            program = torch.export.load(checked)
    except RefusedError as refusal:
        raise ScatterError(f"{path}: the model {refusal}; {refusal.right}.") from refusal
    except OSError as error:
        raise ScatterError(f"{path}: the model cannot be read: {error}.") from error
    except Exception as error:  # PyTorch raises many kinds of errors for other files
        raise ScatterError(
            f"{path} is no model that PyTorch {torch.__version__} can read; it must be a file "
            "written by torch.export.save."
        ) from error
    mod, complaint = _import(program)
    if mod is None:
        raise ScatterError(f"{path}: TVM cannot import it: {complaint}")
    return mod


def need_file(path: str) -> Path:
    """The path of an existing file.

    Raises
    ------
    ScatterError
        If it does not exist, or is no file.
    """
    file = Path(path)
    try:
        if not path:
            raise ScatterError("'' names no model; name a file that torch.export.save wrote.")
        if file.is_file():
            return file
        if file.is_dir():
            what = "it is a folder, not a model"
        else:
            what = "it is no regular file" if file.exists() else "there is no such file"
    except (OSError, ValueError) as error:
        what = f"it cannot be looked at ({error})"
    raise ScatterError(f"{path}: {what}.")


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Make PyTorch refuse pickles that hold anything but tensors, in all of its functions."""
    before = os.environ.get(_WEIGHTS_ONLY)
    os.environ[_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_WEIGHTS_ONLY]
        else:
            os.environ[_WEIGHTS_ONLY] = before


def _import(program: Any) -> tuple[tvm.IRModule | None, str]:
    """The module, or ``None`` and a sentence that says why."""
    from tvm.relax.frontend.torch import from_exported_program

    # The error is dropped in here, because TVM's builder then prints a complaint.
    with quiet():
        try:
            return from_exported_program(program), ""
        except Exception as error:
            return None, sentence(error)


def import_torch() -> Any:
    """PyTorch.

    Raises
    ------
    ScatterError
        If it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise ScatterError(
            "PyTorch is not installed; run: pip install 'tvm_scatter[torch]'."
        ) from error
    return torch


@contextmanager
def chosen_options(arguments: argparse.Namespace, target: Target) -> Iterator[Options]:
    """Set the options and the tuning records of a command line for a block.

    Raises
    ------
    ScatterError
        If the target has no implementation of that name, or the records are for another target.
    """
    strategy = strategy_for(target.kind.name)
    name = arguments.implementation
    if name is not None and (strategy is None or name not in strategy.implementations):
        known = ", ".join(strategy.implementations) if strategy else "none of this package"
        raise ScatterError(
            f"unknown implementation {name!r} for target {target.kind.name}; there is: {known}."
        )
    if arguments.cuda_graph and not backend_of(target).captures_graphs:
        raise ScatterError(f"--cuda-graph: target {target.kind.name} has no CUDA graphs.")
    with _records(arguments.log, target):
        with options(
            implementation=name,
            deterministic=arguments.deterministic,
            bounds=arguments.bounds,
            donate=arguments.donate,
            cuda_graph=arguments.cuda_graph or None,
            measure=arguments.measure,
            **dict.fromkeys(arguments.without, False),
        ) as chosen:
            yield chosen


def _records(folder: str | None, target: Target) -> AbstractContextManager[Any]:
    if folder is None:
        return nullcontext()
    from tvm_scatter.tuning.store.database import read_database

    database = read_database(Path(folder))
    database.need_target(target)
    return database.stored


def sentence(error: BaseException) -> str:
    """The first meaningful line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    if first.endswith(":"):
        # A heading of the lines that follow.
        first = " ".join([first, *lines[1:2]]).rstrip(":")
    return first.rstrip(".") + "."
