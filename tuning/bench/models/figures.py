"""The figures of a row, and the report of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_scatter.tuning.bench import reports
from tvm_scatter.tuning.bench.resumed import continued

COMPILE = "torch.compile"
#: In front of the names of our forms where they stand beside peers'.
OURS = "ours: "


@dataclass
class Figures:
    """The figures of a row, in microseconds and bytes.

    Attributes
    ----------
    floor : float
        A row read for each message and the result written once, at copy bandwidth, and ``order``.
        0 for a whole model.
    order : float
        What ordering the messages takes, on a GPU.
    ours, peers : dict of str to float
        The time of each form.
    failed : dict of str to str
        Forms that do not do it, with the last line of what they say.
    memory : dict of str to int
        The most that a form allocates.
    products : dict of str to float
        The time of forms that goes into matrix products, for a whole model.
    shares : dict of str to dict
        The part of time of our forms that each kind of function takes, for a whole model.
    earlier : dict or None
        For a row of an earlier run, the facts of that run that differ from the report's.
    """

    name: str
    floor: float = 0.0
    order: float = 0.0
    ours: dict[str, float] = field(default_factory=dict)
    peers: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    products: dict[str, float] = field(default_factory=dict)
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    earlier: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """The row's name, with a mark where an earlier run measured it."""
        return self.name if self.earlier is None else f"{self.name}*"

    @property
    def best_peer(self) -> tuple[str, float]:
        """The fastest peer and its time."""
        if not self.peers:
            return "none", math.nan
        name = min(self.peers, key=self.peers.__getitem__)
        return name, self.peers[name]

    @property
    def wrong(self) -> dict[str, str]:
        """What is said of forms of ours that failed."""
        return {name: text for name, text in self.failed.items() if name.startswith(OURS)}

    def ratio(self, form: str, peer: str | None = None) -> float:
        """How many times a form of ours is faster than a peer, by default the best."""
        theirs = self.best_peer[1] if peer is None else self.peers.get(peer, math.nan)
        return theirs / self.ours.get(form, math.nan)

    def beside_products(self, name: str) -> float:
        """The time of a form that goes into anything but products."""
        whole = {**self.peers, **self.ours}.get(name, math.nan)
        return whole - self.products.get(name, math.nan)


@dataclass
class Report:
    """A run and what it ran on."""

    machine: dict[str, Any]
    rows: list[Figures]

    def geometric_mean(self, form: str, peer: str | None = None) -> float:
        """Of the ratios of a peer to a form of ours, over the rows that have both."""
        return reports.geometric_mean(row.ratio(form, peer) for row in self.rows)

    def worst(self, form: str, peer: str | None = None) -> tuple[str, float]:
        """The row with the least ratio, and it."""
        ratios = {row.name: row.ratio(form, peer) for row in self.rows}
        known = {name: ratio for name, ratio in ratios.items() if ratio == ratio}
        if not known:
            return "none", math.nan
        name = min(known, key=known.__getitem__)
        return name, known[name]

    def continued(self, machine: Mapping[str, Any]) -> Report:
        """A report for another run to continue, with these rows marked as an earlier run's."""
        return Report(dict(machine), continued(self.rows, self.machine, machine))

    def save(self, path: Path) -> None:
        """Write the report as JSON."""
        reports.save(self, path)

    @staticmethod
    def load(path: Path) -> Report:
        """Read a report that :meth:`save` wrote.

        Raises
        ------
        ScatterError
            If the file is no report.
        """
        return Report(*reports.load(path, "models", lambda fields: Figures(**fields)))
