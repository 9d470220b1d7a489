"""Cases of the fuzzer: a problem, how it is computed, and the operands, as one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from bad_indices import violations
from harness import ORDERS, ProblemRunner, assert_same, in_order, target_of
from random_problems import SPREADS, draw_operands, draw_problem, explains
from worker_threads import divided_work

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.lowering.plan import nothing_to_do
from tvm_scatter.problem.reference import scatter_reference


@dataclass(frozen=True)
class FuzzCase:
    """One problem, computed in one way, once.

    Attributes
    ----------
    problem : str
        As :meth:`~tvm_scatter.ScatterProblem.to_json` has it.
    sizes : dict
        The values of its symbols.
    seed, spread : int, str
        What the operands are drawn from.
    order : str
        In which threads and blocks of a simulated device run.
    signals_drops : bool
        Whether the host is told of bad indices.
    divided : bool
        Whether CPU code divides the work among threads however little it is.
    """

    device: str
    problem: str
    sizes: dict[str, int]
    implementation: str
    knobs: dict[str, int]
    seed: int
    spread: str
    order: str = "forward"
    signals_drops: bool = False
    divided: bool = False

    @staticmethod
    def draw(random: Random, device: str, target: Any) -> FuzzCase:
        """A case that some implementation takes."""
        strategy = strategy_for(device)
        assert strategy is not None
        problem, sizes = draw_problem(random)
        implementations = strategy.applicable(problem, target)
        name = random.choice(list(implementations))
        knobs = {
            knob: random.choice(values)
            for knob, values in implementations[name].knobs(problem, target).items()
            if random.random() < 0.5
        }
        return FuzzCase(
            device=device,
            problem=problem.to_json(),
            sizes=sizes,
            implementation=name,
            knobs=knobs,
            seed=random.randrange(1 << 32),
            spread=random.choice(SPREADS),
            order=random.choice(ORDERS) if device == "cuda" else "forward",
            signals_drops=device == "cuda" and problem.bounds == "drop",
            divided=device == "llvm" and random.random() < 0.5,
        )

    def to_json(self) -> str:
        """One line of text."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> FuzzCase:
        """The inverse of :meth:`to_json`."""
        return FuzzCase(**json.loads(text))

    def add_to(self, runner: ProblemRunner, name: str) -> None:
        """Add the function that computes the problem."""
        problem = ScatterProblem.from_json(self.problem)
        with divided_work() if self.divided else nullcontext():
            runner.add(
                name, problem, self.implementation, self.knobs, self.sizes, self.signals_drops
            )

    def check(self, runner: ProblemRunner, name: str) -> None:
        """Run the function and compare with the reference."""
        problem = ScatterProblem.from_json(self.problem).with_sizes(self.sizes)
        data, indices, updates = draw_operands(problem, self.seed, self.spread)
        with in_order(self.order):
            result = runner.run(name, data, indices, updates, in_place=problem.in_place)
        if self.signals_drops and not nothing_to_do(problem):
            assert runner.dropped(name) == bool(violations(problem, indices)), "signalled wrongly"
        if problem.reduces.is_store and not (problem.deterministic or problem.unique):
            assert explains(problem, data, indices, updates, result), "no update explains this"
            return
        expected = scatter_reference(problem, data, indices, updates)
        assert_same(result, expected, self.implementation)


def check_all(device: str, cases: Sequence[FuzzCase]) -> list[tuple[FuzzCase, Exception]]:
    """Compile cases as one module and run each; what went wrong with which."""
    try:
        runner = ProblemRunner(device)
        for i, case in enumerate(cases):
            case.add_to(runner, f"case{i}")
        runner.compile()
    except Exception as error:
        if len(cases) == 1:
            return [(cases[0], error)]
        half = len(cases) // 2
        return check_all(device, cases[:half]) + check_all(device, cases[half:])
    failures: list[tuple[FuzzCase, Exception]] = []
    for i, case in enumerate(cases):
        try:
            case.check(runner, f"case{i}")
        except Exception as error:
            failures.append((case, error))
    return failures


def draw_cases(random: Random, device: str, count: int) -> list[FuzzCase]:
    """Cases for one module."""
    target = target_of(device)
    return [FuzzCase.draw(random, device, target) for _ in range(count)]
