"""The entry point of the command line."""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm_scatter import __version__
from tvm_scatter.errors import ScatterError, ScatterWarning
from tvm_scatter.passes import PASSES
from tvm_scatter.problem.scatter_problem import BOUNDS
from tvm_scatter.runtime import interrupt

from . import (
    bench,
    bench_models,
    cache,
    calibrate,
    compile,
    demo,
    doctor,
    explain,
    report,
    streams,
    tune,
)

_BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns
    -------
    status : int
        0 on success, 1 if the command found something wrong, 2 for bad input, 130 after Ctrl-C.
    """
    interrupt.imported()
    streams.prepare()
    parsed = _parser().parse_args(arguments)
    try:
        with _warnings_in_one_line():
            status = int(parsed.run(parsed))
            sys.stdout.flush()
            return status
    except (Exception, KeyboardInterrupt) as error:
        return _end(f"tvm-scatter {parsed.command}", error)


def _end(command: str, error: BaseException) -> int:
    """Print an error for the user, and return the exit status."""
    if interrupt.caused(error):
        interrupt.say(command)
        return interrupt.STATUS
    if isinstance(error, OSError) and streams.is_unwritable(error):
        streams.drop()
        if isinstance(error, BrokenPipeError):
            # The reader of a pipe, such as head, has ended.
            return 0
        error = ScatterError(f"the output cannot be written: {error.strerror}.")
    if not isinstance(error, ScatterError):
        raise error
    # Errors of the library begin with the name of a part, which is replaced by the command's.
    sentence = re.sub(r"^(bench|tuning|calibrate): ", "", str(error))
    sys.stderr.write(f"{command}: {sentence}\n")
    return _BAD_INPUT


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show warnings of this package without the source line."""
    with warnings.catch_warnings():
        shown_by = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, ScatterWarning):
                sys.stderr.write(f"tvm-scatter: {str(message).removeprefix('tuning: ')}\n")
            else:
                shown_by(message, category, *where)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tvm-scatter", description="Scatter for Apache TVM.")
    parser.add_argument("--version", action="version", version=f"tvm_scatter {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("demo", help="compile real models and compare them with PyTorch")
    _add_target(command)
    command.add_argument("--small", action="store_true", help="small sizes: a check, no timing")
    command.add_argument("--model", action="append", metavar="NAME", help="only models so named")
    command.set_defaults(run=demo.run)

    command = commands.add_parser("compile", help="compile a model that torch.export.save wrote")
    _add_model(command)
    command.add_argument("-o", "--output", metavar="FILE", help="default: MODEL.so")
    command.set_defaults(run=compile.run)

    command = commands.add_parser("explain", help="say how each scatter of a model is computed")
    _add_model(command)
    command.add_argument("--json", action="store_true", help="as data")
    command.set_defaults(run=explain.run)

    command = commands.add_parser("bench", help="time the scatters of real models against peers")
    command.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU, if any")
    bench_models.add_arguments(command)
    command.add_argument("--filter", metavar="TEXT", help="only workloads with TEXT in their name")
    command.add_argument("--scale", type=int, metavar="N", help="1/N of the work; on CPU 16")
    command.add_argument("--all", action="store_true", help="every implementation that applies")
    command.add_argument("--compile", action="store_true", help="torch.compile is a peer as well")
    command.add_argument("--stock", action="store_true", help="TVM's own scatter is a peer as well")
    command.add_argument("--jax", action="store_true", help="JAX is a peer as well")
    command.add_argument("--json", metavar="FILE", help="write the figures")
    command.add_argument("--resume", action="store_true", help="keep the rows that --json FILE has")
    command.add_argument("--markdown", metavar="FILE", help="write the table")
    command.add_argument("--plot", metavar="FILE", help="draw the picture")
    command.set_defaults(run=bench.run)

    command = commands.add_parser("cache", help="compiled CUDA kernels that are kept")
    command.add_argument("action", nargs="?", choices=("info", "clear"), default="info")
    command.set_defaults(run=cache.run)

    command = commands.add_parser("calibrate", help="measure this machine's rates for the default")
    _add_target(command)
    command.add_argument("--dry-run", action="store_true", help="print the rates, keep nothing")
    command.set_defaults(run=calibrate.run)

    command = commands.add_parser("tune", help="measure the scatters of a model, keep the records")
    _add_target(command)
    tune.add_arguments(command)
    command.set_defaults(run=tune.run)

    command = commands.add_parser("report", help="read, compare and draw records")
    report.add_arguments(command)
    command.set_defaults(run=report.run)

    command = commands.add_parser("doctor", help="say what is installed and what is missing")
    command.set_defaults(run=doctor.run)
    return parser


def _add_target(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--target",
        metavar="TARGET",
        help="llvm, cuda, an architecture such as sm_90, or a TVM target; default: the GPU if "
        "there is one, else the CPU",
    )


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL.pt2")
    _add_target(command)
    command.add_argument("--implementation", metavar="NAME", help="use it for every scatter")
    command.add_argument("--deterministic", action="store_true", help="equal bits on every run")
    command.add_argument("--bounds", choices=BOUNDS, help="what becomes of a bad index")
    command.add_argument("--log", metavar="DIR", help="records of tvm-scatter tune to choose by")
    command.add_argument(
        "--measure", action="store_true", help="where predictions are too close, time the best"
    )
    switches = [switch for switch, _ in PASSES]
    command.add_argument(
        "--without", action="append", choices=switches, default=[], help="leave a pass out"
    )
    command.add_argument(
        "--donate", action="append", metavar="NAME", default=[], help="an input to overwrite"
    )
    command.add_argument("--cuda-graph", action="store_true", help="capture kernels in CUDA graphs")
