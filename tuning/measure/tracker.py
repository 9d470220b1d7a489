"""TVM's RPC tracker, through which the devices of other machines are used."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from tvm_scatter.errors import ScatterError

_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Tracker:
    """Where TVM's RPC tracker is, and the key of the servers to use.

    Attributes
    ----------
    session_seconds : int
        After so long a server gives a session up, as it must for a candidate that hangs.
    """

    host: str
    port: int
    key: str
    session_seconds: int = 600

    def connect(self) -> Any:
        """TVM's connection to the tracker; fails at once if nothing listens there."""
        from tvm import rpc

        # TVM's own connection tries for a minute before it gives up.
        self.need()
        return rpc.connect_tracker(self.host, self.port)

    def need(self) -> None:
        """Fail if nothing listens there."""
        socket.create_connection((self.host, self.port), _CONNECT_SECONDS).close()


def count_servers(tracker: Tracker) -> int:
    """How many servers a tracker knows under the key.

    Raises
    ------
    ScatterError
        If the tracker does not answer or knows none.
    """
    where = f"{tracker.host}:{tracker.port}"
    try:
        summary = tracker.connect().summary()
    except Exception as error:  # sockets, timeouts and TVM's own
        raise ScatterError(
            f"tuning: no RPC tracker answers at {where}: {error}; start one with "
            "python -m tvm.exec.rpc_tracker."
        ) from error
    keys = [str(server["key"]).removeprefix("server:") for server in summary["server_info"]]
    count = keys.count(tracker.key)
    if count == 0:
        known = ", ".join(sorted(set(keys))) or "none"
        raise ScatterError(
            f"tuning: the RPC tracker at {where} has no server of key {tracker.key!r}; it knows "
            f"the keys: {known}."
        )
    return count
