"""Random problems against the reference, on every implementation that takes them.

``HYPOTHESIS_PROFILE=thorough`` draws many more, with a new seed each time.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from random import Random

import pytest
from harness import ProblemRunner, assert_same
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from random_problems import SPREADS, draw_operands, draw_problem
from tally import Tally
from worker_threads import divided_work

from tvm_scatter import strategy_for
from tvm_scatter.problem.reference import scatter_reference

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
EXAMPLES = {"llvm": 500, "cuda": 60} if THOROUGH else {"llvm": 1, "cuda": 1}
PROBLEMS_PER_MODULE = 4 if THOROUGH else 2
MOST_ELEMENTS = 2000


@pytest.mark.turns(2)
@pytest.mark.parametrize("part", [0, 1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_against_the_reference(device: str, part: int, tally: Tally) -> None:
    strategy = strategy_for(device)
    assert strategy is not None

    @settings(
        max_examples=EXAMPLES[device] // 2 + 1,
        derandomize=not THOROUGH,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # Shrinking compiles hundreds of times.
        phases=[Phase.generate, Phase.shrink] if THOROUGH else [Phase.generate],
        print_blob=True,
    )
    @given(st.randoms(use_true_random=False), st.integers(0, 2**31), st.sampled_from(SPREADS))
    def check(random: Random, number: int, spread: str) -> None:
        runner = ProblemRunner(device)
        runs = {}
        for i in range(PROBLEMS_PER_MODULE):
            drawn, sizes = draw_problem(random, MOST_ELEMENTS)
            problem = replace(drawn, deterministic=True, bounds="drop")
            for name in strategy.applicable(problem, runner.target):
                runs[f"problem{i}_{name}"] = problem, sizes
                with divided_work() if i % 2 else nullcontext():
                    runner.add(f"problem{i}_{name}", problem, name, sizes=sizes)
        for i, (name, (problem, sizes)) in enumerate(runs.items()):
            note(f"{name}: {problem} {sizes}")
            static = problem.with_sizes(sizes)
            data, indices, updates = draw_operands(static, number + i, spread)
            result = runner.run(name, data, indices, updates, in_place=problem.in_place)
            expected = scatter_reference(static, data, indices, updates)
            assert_same(result, expected, name)
        tally("random problems by an implementation", len(runs))

    (check if THOROUGH else seed(part)(check))()
