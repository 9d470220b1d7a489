"""Pick the few records of a log that choices are made by, for a log that is shipped.

::

    python -m tvm_scatter.tuning.store.ship LOG -o tuning/logs/NAME.tar.xz
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import Decision, TunedRecord, ranking, typical
from tvm_scatter.selection.shipped_log import METADATA, PACKED
from tvm_scatter.tuning.space.candidates import Candidate, need_strategy

from .database import Database, open_database
from .log_files import write
from .packed import pack_log, read_log
from .results import candidate_of

#: Implementations of which default knobs are kept as well: options may rule out the fastest ones.
_KEPT = 3

Timed = Sequence[tuple[Decision, float]]


def worth_shipping(problem: ScatterProblem, target: Target, timed: Timed) -> set[Candidate]:
    """The best measured knobs of all implementations, and default knobs of the fastest ones.

    The former tell which implementations were measured, the latter whether the log knows better
    knobs than the default. Of a record that does not name all knobs nobody knows what was measured.
    """
    strategy = need_strategy(target)
    ranked = [each for each in ranking(timed) if _is_whole(each, problem, target)]
    kept: set[Candidate] = set()
    # Without a measurement in place, the same problem with a copy stands for it.
    for spelling in (problem, replace(problem, in_place=True)):
        best: dict[str, Candidate] = {}
        for each in ranked:
            if strategy.branch(each.way, spelling, target):
                best.setdefault(each.implementation, candidate_of(each))
        for name in list(best)[:_KEPT]:
            config = strategy.implementations[name].config(spelling, target)
            kept.add(Candidate.of(name, config))
        kept |= set(best.values())
    return kept & {*map(candidate_of, ranked)}


def _is_whole(record: TunedRecord, problem: ScatterProblem, target: Target) -> bool:
    """Whether a record names all knobs, and none that is gone: an older one may not."""
    branch = need_strategy(target).branch(record.way, problem, target)
    return branch is not None and branch.config.keys() == record.config.keys()


def write_few(log: Database, folder: Path) -> None:
    """Write the records of a log that are worth shipping, with the median of their times."""
    target = log.target()
    known: dict[ScatterProblem, list[tuple[Decision, float]]] = {}
    for problem, decision, seconds in log.records():
        known.setdefault(problem, []).append((decision, typical(seconds)))
    with open_database(folder, target) as few:
        for problem, timed in known.items():
            kept = worth_shipping(problem, target, timed)
            for decision, microseconds in timed:
                candidate = Candidate.of(decision.implementation, decision.config)
                if candidate in kept:
                    told = dict(decision.circumstances)
                    few.add(problem, target, candidate, told, [1e-6 * microseconds])
    write(folder / METADATA, json.dumps(log.metadata, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read a log and write the archive that is shipped."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.store.ship")
    parser.add_argument("log", metavar="LOG", help="a directory of tvm-scatter tune, or an archive")
    parser.add_argument("-o", "--output", metavar=f"NAME{PACKED}", required=True)
    parsed = parser.parse_args(arguments)
    output = Path(parsed.output)
    try:
        with TemporaryDirectory(prefix="tvm_scatter") as folder:
            write_few(read_log(Path(parsed.log)), Path(folder))
            pack_log(Path(folder), output, output.name.removesuffix(PACKED))
    except ScatterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    print(f"{output}: {output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
