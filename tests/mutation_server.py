"""Runs pytest for :mod:`mutation`, each time in a fork of a process that has TVM loaded already.

It is loaded for half a minute on a busy machine, and a planted bug is never in TVM. A line of the
input says where the output goes, and pytest's arguments; the answer is what pytest returns.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys

from cuda_on_cpu import enable

enable()

import ml_dtypes  # noqa: E402, F401
import pytest  # noqa: E402
import tvm  # noqa: E402, F401


def run(output: str, arguments: list[str], seconds: float) -> int:
    """Run pytest here; it ends the process if that takes too long."""
    with open(output, "w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)
        returned = int(pytest.main(arguments))
        sys.stdout.flush()
        return returned


def main() -> None:
    """Answer until the input ends."""
    assert "tvm_scatter" not in sys.modules
    sys.path.insert(0, os.getcwd())
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            # Not as a process ends: what is left of the parent in this one is none of its own.
            os._exit(run(*json.loads(line), float(sys.argv[1])))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
