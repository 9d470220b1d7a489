"""The space of a problem for MetaSchedule's own search, with a builder and a runner for it.

::

    with Measurement(problem, target) as measurement:
        ms.tune.tune_tasks(
            tasks=[measurement.context("replay-func")],
            task_weights=[1.0],
            work_dir=folder,
            max_trials_global=32,
            builder=measurement.builder(),
            runner=measurement.runner(),
            measure_callbacks=[ms.measure_callback.AddToDatabase()],
        )
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.records import IMPLEMENTATION, KNOBS, schedule, workload
from tvm_scatter.tuning.measure.build import Failure, Library, build
from tvm_scatter.tuning.measure.runner import Runner
from tvm_scatter.tuning.measure.workers import Workers
from tvm_scatter.tuning.operands.inputs import Circumstance
from tvm_scatter.tuning.space.candidates import Built, Candidate, need_strategy

from .tune import write_inputs


def space(problem: ScatterProblem, target: Target) -> Any:
    """A MetaSchedule space generator: one schedule for each implementation that applies.

    Knobs are sampled decisions, so every search strategy of MetaSchedule can turn them.
    """
    applicable = need_strategy(target).applicable(problem, target)

    def schedules(unscheduled: Schedule) -> list[Schedule]:
        return [
            schedule(unscheduled.mod, name, implementation.knobs(problem, target))
            for name, implementation in applicable.items()
        ]

    return ms.space_generator.ScheduleFn(schedules, sch_rules=[], postprocs=[], mutator_probs={})


class Measurement:
    """Builds and measures the candidates that MetaSchedule asks for, on this machine's device.

    Parameters
    ----------
    problem : ScatterProblem
        A static problem.
    circumstance : Circumstance
        Distribution and seed of the indices.
    """

    def __init__(
        self,
        problem: ScatterProblem,
        target: Target,
        circumstance: Circumstance = Circumstance(),  # noqa: B008
        imports: Sequence[str] = (),
    ) -> None:
        self.problem = problem
        self.target = target
        self._folder = TemporaryDirectory(prefix="tvm-scatter-")
        self._workers = Workers(1, imports)
        self._executor = ThreadPoolExecutor(1)
        self._runner = Runner(self._workers, target.kind.name, cold=backend_of(target).is_gpu)
        self._circumstance = circumstance
        self._inputs = ""
        self._built: dict[str, tuple[Library, Built]] = {}

    def __enter__(self) -> Measurement:
        path = Path(self._folder.name) / "inputs.npz"
        write_inputs(self.problem, self._circumstance, str(path))
        self._inputs = str(path)
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        self._workers.__exit__()
        self._folder.cleanup()

    def context(self, search_strategy: Any, name: str = "scatter") -> Any:
        """The task for MetaSchedule."""
        return ms.TuneContext(
            mod=workload(self.problem, self.target),
            target=self.target,
            space_generator=space(self.problem, self.target),
            search_strategy=search_strategy,
            task_name=name,
            num_threads=1,
        )

    def builder(self) -> Any:
        """A builder that compiles all candidates of a round together."""
        return _Builder(self._build)

    def runner(self) -> Any:
        """A runner that checks the answer of a candidate before its time counts."""
        return _Runner(self._run)

    def _build(self, modules: Sequence[tvm.IRModule]) -> list[Any]:
        wanted = [_candidate(module) for module in modules]
        folder = Path(mkdtemp(dir=self._folder.name))
        failed: dict[Candidate, str] = {}
        artifacts: dict[Candidate, str] = {}
        distinct = list(dict.fromkeys(wanted))
        for result in build(
            self._workers, self._executor, self.problem, self.target, distinct, folder
        ):
            if isinstance(result, Failure):
                failed[result.candidate] = result.reason
                continue
            for built in result.built:
                artifact = f"{result.path}:{built.function}"
                self._built[artifact] = (result, built)
                artifacts[built.candidate] = artifact
        return [
            ms.builder.BuilderResult(artifacts.get(candidate), failed.get(candidate))
            for candidate in wanted
        ]

    def _run(self, artifacts: Sequence[str]) -> list[Any]:
        results = []
        for artifact in artifacts:
            library, built = self._built[artifact]
            alone = Library(library.path, (built,))
            (outcome,) = self._runner.measure(self.problem, alone, self._inputs)
            if isinstance(outcome, Failure):
                results.append(ms.runner.RunnerResult(None, outcome.reason))
            else:
                results.append(ms.runner.RunnerResult(list(outcome.seconds), None))
        return results


def _candidate(module: tvm.IRModule) -> Candidate:
    scheduled = Schedule(module)
    marks = scheduled.get(scheduled.get_sblock("scatter")).annotations
    config = {
        str(name).removeprefix(KNOBS + "."): int(value)
        for name, value in marks.items()
        if str(name).startswith(KNOBS + ".")
    }
    return Candidate.of(str(marks[IMPLEMENTATION]), config)


@derived_object
class _Builder(ms.builder.PyBuilder):
    def __init__(self, build_all: Any) -> None:
        super().__init__()
        self.build_all = build_all

    def build(self, build_inputs: list[Any]) -> list[Any]:
        return list(self.build_all([each.mod for each in build_inputs]))


@derived_object
class _Runner(ms.runner.PyRunner):
    def __init__(self, run_all: Any) -> None:
        super().__init__()
        self.run_all = run_all

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        return [_Done(r) for r in self.run_all([str(each.artifact_path) for each in runner_inputs])]


@derived_object
class _Done(ms.runner.PyRunnerFuture):
    def __init__(self, outcome: Any) -> None:
        super().__init__()
        self.outcome = outcome

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self.outcome
