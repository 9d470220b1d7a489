"""How measuring on several devices through TVM's RPC tracker compares with one.

Starts a tracker and a server for each device on this machine::

    python -m tvm_scatter.tuning.experiments.scale_out --target cuda --devices 2 --seconds 40
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.targets import parse_target
from tvm_scatter.tuning.measure.tracker import Tracker, count_servers
from tvm_scatter.tuning.search.tune import Settings, tune
from tvm_scatter.tuning.space.grid import grid
from tvm_scatter.tuning.store.database import read_database

_KEY = "scale-out"
_START_SECONDS = 90
#: Larger operands would measure how fast they travel to a server.
_MOST_ELEMENTS = 1 << 20


@contextlib.contextmanager
def servers(count: int, fork: bool = True) -> Iterator[Tracker]:
    """A tracker and servers on this machine; server ``i`` sees GPU ``i`` only.

    Parameters
    ----------
    fork : bool
        Whether a session is a copy of its server. With CUDA it must be a new process: a driver
        that the server has asked for its devices does not work in a copy.

    Raises
    ------
    ScatterError
        If they do not start.
    """
    with running_tracker() as tracker, running_servers(tracker, count, fork):
        yield tracker


@contextlib.contextmanager
def running_tracker() -> Iterator[Tracker]:
    """TVM's RPC tracker, in a process of its own."""
    port = _free_port()
    with _running("rpc_tracker", ["--host", "127.0.0.1", *_ports(port)], {}):
        yield Tracker("127.0.0.1", port, _KEY)


@contextlib.contextmanager
def running_servers(tracker: Tracker, count: int, fork: bool = True) -> Iterator[None]:
    """TVM's RPC servers, each in a process of its own, once the tracker knows them."""
    at = ["--host", "127.0.0.1", "--tracker", f"{tracker.host}:{tracker.port}", "--key", _KEY]
    at += [] if fork else ["--no-fork"]
    with contextlib.ExitStack() as stack:
        for device in range(count):
            own = [*at, *_ports(_free_port())]
            stack.enter_context(_running("rpc_server", own, {"CUDA_VISIBLE_DEVICES": str(device)}))
        until = time.monotonic() + _START_SECONDS
        while _known(tracker) < count:
            if time.monotonic() > until:
                raise ScatterError("scale_out: TVM's RPC tracker and servers do not start.")
            time.sleep(0.2)
        yield


def _known(tracker: Tracker) -> int:
    try:
        return count_servers(tracker)
    except ScatterError:
        return 0


@contextlib.contextmanager
def _running(program: str, arguments: list[str], changes: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", f"tvm.exec.{program}", *arguments],
        env={**os.environ, **changes},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ports(port: int) -> list[str]:
    return ["--port", str(port), "--port-end", str(port + 1)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune a grid through one server and through several, and print measurements per second."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.experiments.scale_out")
    parser.add_argument("--target", metavar="TARGET")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--grid", default="held-out")
    parser.add_argument("--builders", type=int, help="processes that compile; default: all cores")
    parsed = parser.parse_args(arguments)
    target = parse_target(parsed.target)
    tasks = [task for task in grid(parsed.grid) if task.problem.elements <= _MOST_ELEMENTS]
    fork = not backend_of(target).is_gpu
    rates = []
    for count in (1, parsed.devices):
        with tempfile.TemporaryDirectory() as folder, servers(count, fork) as tracker:
            settings = Settings(
                trials=16, seconds=parsed.seconds, tracker=tracker, builders=parsed.builders
            )
            begin = time.monotonic()
            tune(tasks, target, Path(folder), settings)
            seconds = time.monotonic() - begin
            measured = len(read_database(Path(folder)))
        rates.append(measured / seconds)
        print(
            f"{count} device(s): {measured} measurements in {seconds:.0f} s, "
            f"{rates[-1]:.1f} a second",
            flush=True,
        )
    print(f"{rates[1] / rates[0]:.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
