"""Runs a model with TVM alone, without this package.

If TVM's importer accepts the model, it is compiled and run in another process, which may crash or
hang without harm.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import Any

import tvm
from tvm.target import Target

import tvm_scatter
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.targets import need_device, parse_target

from . import demo_models
from .compare import (
    difference,
    export,
    import_program,
    make,
    outputs,
    runner,
    seconds,
)
from .model import DemoModel

_SECONDS = 120


def stock_says(program: Any, model: DemoModel, size: str, target: Target) -> str:
    """One line: the error of TVM's importer, or the outcome of the compiled model."""
    rejection = _import_error(program)
    if rejection is not None:
        return f"rejected: {rejection}"
    return _in_a_process(model, size, target)


def _import_error(program: Any) -> str | None:
    tvm_scatter.uninstall()
    try:
        with quiet():
            rejection = None
            try:
                import_program(program)
            except Exception as error:  # the error is the answer
                rejection = first_sentence(error)
            # TVM's builder prints a complaint when the error is dropped.
            gc.collect()
            return rejection
    finally:
        tvm_scatter.install()


def first_sentence(error: BaseException) -> str:
    """The beginning of an error's text."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip()


def _in_a_process(model: DemoModel, size: str, target: Target) -> str:
    # All of the target: stock TVM has the instructions of this CPU, too.
    command = [sys.executable, "-m", "tvm_scatter.demo.stock", model.name, size, str(target)]
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"still running after {_SECONDS} s"
    if finished.returncode != 0:
        return f"crashed with status {finished.returncode}"
    return str(json.loads(finished.stdout.splitlines()[-1]))


def _try(name: str, size: str, target_text: str) -> str:
    tvm_scatter.uninstall()
    model = next(model for model in demo_models() if model.name == name)
    target = parse_target(target_text)
    module, inputs = make(model, size)
    try:
        executable = tvm.compile(import_program(export(module, inputs)), target=target)
    except Exception as failure:
        return f"does not compile: {first_sentence(failure)}"
    device = need_device(target)
    expected = [tensor.numpy() for tensor in outputs(module(*inputs))]
    run = runner(executable, device, inputs)
    try:
        found = [tensor.numpy() for tensor in outputs(run())]
    except Exception as failure:
        return f"compiles, does not run: {first_sentence(failure)}"
    error, right = difference(found, expected, model.tolerance)
    if not right:
        return f"runs, wrong: error {error:.2g}"
    if size == "small":
        return "runs"
    return f"runs, {1e3 * seconds(run, device.sync):.3g} ms"


if __name__ == "__main__":
    answer = _try(*sys.argv[1:])
    print(json.dumps(answer))
