"""The tests run CPU code in several threads, and divide even little work among them."""

from __future__ import annotations

import worker_threads
from harness import signature_of, target_of

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.lowering.emission import build_prim_func
from tvm_scatter.options import Options
from tvm_scatter.problem.symbolic_size import SymbolicSize


def test_cpu_code_runs_in_several_threads() -> None:
    assert worker_threads.count() >= worker_threads.THREADS >= 4


def test_little_work_is_divided_where_that_is_asked_for() -> None:
    assert "T.parallel" not in _small_scatter()
    with worker_threads.divided_work():
        assert "T.parallel" in _small_scatter()


def _small_scatter() -> str:
    problem = ScatterProblem(
        batch=SymbolicSize(1),
        extents=(SymbolicSize(4),),
        slice=SymbolicSize(64),
        count=SymbolicSize(3),
        data_dtype="float32",
        index_dtype="int64",
        reduction="add",
    )
    target, strategy = target_of("llvm"), strategy_for("llvm")
    assert strategy is not None
    selection = strategy.select(problem, target, Options("sequential"))
    return str(build_prim_func(problem, signature_of(problem), selection, target).script())
