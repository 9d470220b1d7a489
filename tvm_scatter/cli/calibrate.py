"""``tvm-scatter calibrate``: measures the rates of this machine's device, and keeps them."""

from __future__ import annotations

import argparse
from dataclasses import fields

from rich.console import Console
from rich.table import Table

from tvm_scatter.selection.calibrated import keep
from tvm_scatter.selection.targets import parse_target
from tvm_scatter.tuning.measure.calibrate import calibrate

from .progress import progress

#: What each number counts.
_UNITS = {
    "multiprocessors": "",
    "clock": "cycles/us",
    "memory": "bytes/us",
    "cache_bytes": "bytes",
    "shared_bytes": "bytes",
    "launch": "us",
    "cached_sectors": "sectors/us",
    "missed_sectors": "sectors/us",
}


def run(arguments: argparse.Namespace) -> int:
    """Measure, print what was assumed and what was found, and write it to the user's folder."""
    target = parse_target(arguments.target)
    with progress() as shown:
        assumed, measured = calibrate(target, shown.step)
    table = Table(title=measured.name)
    for heading in ("rate", "assumed", "measured", ""):
        table.add_column(heading, justify="left" if heading in ("rate", "") else "right")
    for field in fields(measured):
        if field.name in _UNITS:
            values = (f"{getattr(each, field.name):,.6g}" for each in (assumed, measured))
            table.add_row(field.name, *values, _UNITS[field.name])
    console = Console(highlight=False, markup=False)
    console.print(table)
    if arguments.dry_run:
        console.print("Not kept: --dry-run.")
    else:
        path = keep(target.kind.name, measured)
        console.print(f"{path}: kept for {measured.name}.", soft_wrap=True)
    return 0
