"""Random messages that scatters compute themselves against the same programs, unfused.

    python tests/fuzz_messages.py --programs 2000 --device llvm

Programs run in processes of their own, several at a time if asked. What was running when one of
them died is among the failures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

#: Programs compiled together, and how many of such a process compares before the next takes over.
PER_MODULE = 20
MODULES = 4
#: How many seconds a process may take for a module. One that takes longer hangs.
PATIENCE = 1200.0
#: What a process says it has begun when its time is over.
_OUT_OF_TIME = "nothing, as the time is over"


def main() -> int:
    """Run the command line; the number of programs that failed, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first program")
    parser.add_argument("--device", choices=["llvm", "cuda"], default="llvm")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seconds", type=float, help="start no module after so many")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.programs)
    if arguments.worker:
        return work(arguments.device, seeds, arguments.seconds)
    return supervise(arguments.device, seeds, arguments.jobs, arguments.seconds)


def supervise(device: str, seeds: range, jobs: int, seconds: float | None) -> int:
    """Compare all programs and say how it goes; how many have failed."""
    from fuzzing_messages import Outcome

    start, total = time.monotonic(), Outcome()
    end = None if seconds is None else start + seconds
    with ThreadPoolExecutor(jobs) as pool:
        parts = [
            pool.submit(compared, device, part, end) for part in chunks(seeds, PER_MODULE * MODULES)
        ]
        for part in as_completed(parts):
            for outcome in part.result():
                total.add(outcome)
                for failure in outcome.failures:
                    print("FAILED", failure, flush=True)
            passed = time.monotonic() - start
            done = f"{total.programs} programs, {total.fused} fused, {total.softmaxes} softmaxes"
            done += f", {total.finished} with what follows"
            print(f"{done}, {passed:.0f} s", flush=True)
    print(dict(total.implementations))
    for reason, count in total.kept.most_common(20):
        print(count, reason)
    print(f"{device}: {total.programs} programs, {len(total.failures)} failed")
    return min(len(total.failures), 100)


def compared(device: str, seeds: range, end: float | None = None) -> list[Any]:
    """The outcomes of some programs, module by module; a process that dies is replaced."""
    outcomes = []
    while seeds and (end is None or time.monotonic() < end):
        command = [sys.executable, __file__, "--device", device, "--worker"]
        command += ["--seed", str(seeds.start), "--programs", str(len(seeds))]
        if end is not None:
            command += ["--seconds", str(end - time.monotonic())]
        modules = -(-len(seeds) // PER_MODULE)
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=modules * PATIENCE, check=False
            )
            output, why = ended.stdout, f"ended with {ended.returncode}: {ended.stderr[-600:]}"
        except subprocess.TimeoutExpired as late:
            output, why = (late.stdout or b"").decode(), "hangs"
        made, last = reported(output)
        finished = PER_MODULE * len(made)
        if last == _OUT_OF_TIME:
            return outcomes + made
        if finished < len(seeds) and not (made and made[-1].device_lost):
            made.append(_died(seeds[finished : finished + PER_MODULE], last, why))
        outcomes += made
        seeds = seeds[PER_MODULE * len(made) :]
    return outcomes


def _died(seeds: range, last: str, why: str) -> Any:
    from fuzzing_messages import Outcome

    return Outcome(failures=[f"{seeds}: the process {why}; it began {last}"])


def reported(output: str) -> tuple[list[Any], str]:
    """What a process has said: the outcomes, and what it has begun last."""
    from fuzzing_messages import Outcome

    outcomes, begun = [], "nothing"
    for line in output.splitlines():
        kind, _, text = line.partition(" ")
        if kind == "outcome":
            outcomes.append(Outcome.from_json(text))
        elif kind == "begun":
            begun = text
    return outcomes, begun


def work(device: str, seeds: range, seconds: float | None) -> int:
    """Compare programs in this process and report to the one that has started it."""
    from fuzz import prepare

    start = time.monotonic()
    prepare()
    from fuzzing_messages import Trial

    for part in chunks(seeds, PER_MODULE):
        if seconds is not None and time.monotonic() - start > seconds:
            print("begun", _OUT_OF_TIME, flush=True)
            return 0
        trial = Trial.draw(device, part)
        print("begun", trial, flush=True)
        outcome = trial.compare_all(lambda what: print("begun", what, flush=True))
        print("outcome", json.dumps(vars(outcome)), flush=True)
        if outcome.device_lost:
            return 1
    return 0


def chunks(seeds: range, size: int) -> Iterator[range]:
    """The seeds in parts of some size; the last may be shorter."""
    for first in range(0, len(seeds), size):
        yield seeds[first : first + size]


if __name__ == "__main__":
    sys.exit(main())
