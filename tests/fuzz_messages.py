"""Random messages that scatters compute themselves against the same programs, unfused.

python tests/fuzz_messages.py --programs 2000 --device llvm
"""

from __future__ import annotations

import argparse
import sys
import time

_PER_MODULE = 20


def main() -> int:
    """Run the command line; the number of programs that failed, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first program")
    parser.add_argument("--device", choices=["llvm", "cuda"], default="llvm")
    arguments = parser.parse_args()

    # Before anything imports TVM.
    from cuda_on_cpu import enable

    enable()
    import worker_threads

    worker_threads.enable()
    from fuzzing_messages import Outcome, Trial

    start, total = time.monotonic(), Outcome()
    last = arguments.seed + arguments.programs
    for first in range(arguments.seed, last, _PER_MODULE):
        trial = Trial.draw(arguments.device, range(first, min(first + _PER_MODULE, last)))
        try:
            outcome = trial.compare()
        except Exception as error:  # the next programs still run
            outcome = Outcome(failures=[f"{trial}: {error!r}"[-1000:]])
        for failure in outcome.failures:
            print("FAILED", failure, flush=True)
        total.add(outcome)
        seconds = time.monotonic() - start
        done = f"{total.programs} programs, {total.fused} fused, {total.softmaxes} softmaxes"
        print(f"{done}, {seconds:.0f} s", flush=True)
    print(dict(total.implementations))
    for reason, count in total.kept.most_common(20):
        print(count, reason)
    print(f"{arguments.device}: {total.programs} programs, {len(total.failures)} failed")
    return min(len(total.failures), 100)


if __name__ == "__main__":
    sys.exit(main())
