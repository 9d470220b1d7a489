"""``tvm-scatter compile``: compiles a model file to a shared library."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import tvm
from rich.console import Console
from tvm.support import cc

from tvm_scatter.errors import ScatterError
from tvm_scatter.explain import explain, summary
from tvm_scatter.selection.targets import parse_target

from .model import chosen_options, load, need_file, sentence
from .progress import progress


def _output(model: Path, named: str | None) -> Path:
    """The path of the library.

    Raises
    ------
    ScatterError
        If it cannot be written there, or would overwrite the model.
    """
    if named == "":
        raise ScatterError("-o '' names no file; leave it out for the name of the model.")
    output = Path(model.with_suffix(".so").name) if named is None else Path(named)
    try:
        if output.is_dir() or (named or "").endswith(os.sep):
            raise ScatterError(f"{output} is a folder; name the file to write.")
        if output.exists() and not output.is_file():
            raise ScatterError(f"{output} is no regular file; name the file to write.")
        if not output.parent.is_dir():
            raise ScatterError(f"{output}: there is no folder {output.parent}.")
        if output.exists() and output.samefile(model):
            raise ScatterError(f"{output} is the model itself; name another file with -o.")
    except OSError as error:
        raise ScatterError(f"{output}: cannot be written: {error.strerror}.") from error
    return output


def run(arguments: argparse.Namespace) -> int:
    """Compile the model and write the library."""
    target = parse_target(arguments.target)
    output = _output(need_file(arguments.model), arguments.output)
    if cc.get_cc() is None:
        raise ScatterError(
            f"{output}: writing it takes a C++ compiler, and there is none; install g++ or clang++."
        )
    with progress() as shown, chosen_options(arguments, target):
        shown.step(f"importing {arguments.model}")
        mod = load(arguments.model)
        # Planning first gives errors about scatters as one sentence, before TVM compiles.
        counts = summary(explain(mod, target))
        shown.step(f"compiling for {target.kind.name}")
        try:
            executable = tvm.compile(mod, target=target)
        except ScatterError:
            raise
        except Exception as error:
            raise ScatterError(
                f"{arguments.model}: TVM cannot compile it for {target.kind.name}: "
                f"{sentence(error)}"
            ) from error
        shown.step(f"writing {output}")
        try:
            executable.export_library(str(output))
        except (OSError, RuntimeError, ValueError) as error:
            raise ScatterError(f"{output}: cannot be written: {sentence(error)}") from error
    used = ", ".join(f"{count} x {name}" for name, count in counts.items()) or "none"
    text = f"{output}: compiled for {target.kind.name}; scatters: {used}"
    Console(highlight=False, markup=False).print(text, soft_wrap=True)
    return 0
