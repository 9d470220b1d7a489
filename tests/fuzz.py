"""Fuzzing: random problems by random implementations against the reference, for as long as asked.

    python tests/fuzz.py --seconds 3600 --seed 1 --device llvm

A case that fails is written to ``tests/fuzz_cases``, whose files ``test_fuzz.py`` replays. So is
what was running when the process died or hung: cases run in processes of their own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "fuzz_cases"
#: Cases compiled together, and how long a process runs before a fresh one takes its place.
PER_MODULE = 16
PER_PROCESS = 240.0
#: How long a module may take, beyond which it hangs.
PATIENCE = 300.0


def main() -> int:
    """Run the command line; the number of cases that failed, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["llvm", "cuda"], default="llvm")
    parser.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--replay", metavar="FILE", type=Path, help="run the cases of one file")
    arguments = parser.parse_args()
    if arguments.replay:
        return replay(arguments.replay)
    if arguments.worker:
        return work(arguments.device, arguments.seed, arguments.seconds, Path(arguments.worker))
    return min(supervise(arguments.device, arguments.seed, arguments.seconds), 100)


def supervise(device: str, seed: int, seconds: float) -> int:
    """Start one process after the other until the time is up; how many cases failed."""
    end = time.monotonic() + seconds
    count = failed = 0
    running = Path(tempfile.mkdtemp(prefix="fuzz")) / "running.json"
    while (left := end - time.monotonic()) > 0:
        command = [sys.executable, __file__, "--device", device, "--seed", str(seed)]
        command += ["--seconds", str(min(left, PER_PROCESS)), "--worker", str(running)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            try:
                output, _ = worker.communicate(timeout=min(left, PER_PROCESS) + PATIENCE)
            except subprocess.TimeoutExpired:
                worker.kill()
                output = worker.communicate()[0]
        print(output, end="", flush=True)
        tally = Counter(line.split()[0] for line in output.splitlines() if line)
        count += PER_MODULE * tally["module"]
        failed += tally["FAILED"]
        if worker.returncode != 0:
            failed += 1
            ended = f"ended with {worker.returncode}"
            print(f"FAILED {ended}: {save(running.read_text(), ended)}", flush=True)
        seed += 1000
        running.unlink(missing_ok=True)
    print(f"{device}: {count} problems, {failed} failed, {seconds:.0f} s")
    return failed


def work(device: str, seed: int, seconds: float, running: Path) -> int:
    """Modules of random cases until the time is up."""
    prepare()
    from fuzzing import check_all, draw_cases

    end = time.monotonic() + seconds
    random = Random(f"{device} {seed}")
    while time.monotonic() < end:
        cases = draw_cases(random, device, PER_MODULE)
        running.write_text("".join(case.to_json() + "\n" for case in cases))
        for case, error in check_all(device, cases):
            print(f"FAILED {case.implementation}: {save(case.to_json(), str(error))}")
        print("module", Counter(case.implementation for case in cases), flush=True)
    return 0


def replay(path: Path) -> int:
    """Run the cases of a file and say what becomes of them."""
    prepare()
    from fuzzing import FuzzCase, check_all

    cases = [FuzzCase.from_json(line) for line in path.read_text().splitlines() if line]
    failures = check_all(cases[0].device, cases)
    for case, error in failures:
        print(f"FAILED {case.to_json()}\n{error}\n")
    print(f"{len(cases)} cases, {len(failures)} failed")
    return len(failures)


def prepare() -> None:
    """Set up this process as the tests do theirs."""
    import worker_threads
    from cuda_on_cpu import enable

    enable()
    worker_threads.enable()


def save(text: str, why: str) -> str:
    """Keep cases for ever; the name of the file and the first line of what went wrong."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{zlib.crc32(text.encode()):08x}.json"
    path.write_text(text if text.endswith("\n") else text + "\n")
    reason = " ".join(why.split())[:300]
    return f"{path.name}: {reason}"


if __name__ == "__main__":
    sys.exit(main())
