"""The CPU implementations give the same bits under any number of threads, static or symbolic."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
from harness import ProblemRunner
from worker_threads import THREADS, running_in

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize

#: Name of a form: batch, extent, slice, count, and whether the index varies over batch and slice.
FORMS = {
    "line": (1, 300, 1, 40_000, False, False),
    "long_line": (1, 200_000, 1, 40_000, False, False),
    "bins": (1, 3, 1, 40_000, False, False),
    "narrow_rows": (1, 300, 3, 20_000, False, False),
    "wide_rows": (1, 50, 300, 500, False, False),
    "few_batches": (3, 100, 2, 9_000, True, True),
}


#: Work that is not divided, that three do not share evenly, and by all threads.
COUNTS = (1, 3, THREADS)
Results = dict[str, np.ndarray]


def compiled() -> Callable[[], Results]:
    """Sums and last updates of every form by every implementation, each time it is called."""
    runner = ProblemRunner("llvm")
    strategy = strategy_for("llvm")
    assert strategy is not None
    runs = {}
    for form, (batch, extent, columns, count, index_batch, index_slice) in FORMS.items():
        for symbolic in (False, True):
            sizes = {"b": batch, "n": extent, "s": columns, "k": count}
            b, n, s, k = (
                SymbolicSize.product([name if symbolic else size]) for name, size in sizes.items()
            )
            for reduction in ("add",) if symbolic else ("add", "update"):
                problem = ScatterProblem(
                    batch=b,
                    extents=(n,),
                    slice=s,
                    count=k,
                    data_dtype="float32",
                    index_dtype="int64",
                    reduction=reduction,
                    index_batch=index_batch,
                    index_slice=index_slice,
                    deterministic=True,
                )
                for name in strategy.applicable(problem, runner.target):
                    key = f"{form}_{reduction}_{name}_{'symbolic' if symbolic else 'static'}"
                    runner.add(key, problem, name, sizes=sizes if symbolic else None)
                    runs[key] = problem.with_sizes(sizes)

    @cache
    def drawn(problem: ScatterProblem) -> tuple[np.ndarray, ...]:
        """Data, index, updates, and what they become."""
        generator = np.random.default_rng(1)
        items = (problem.items if problem.index_batch else problem.count).constant
        data = generator.standard_normal(problem.data_size.constant, "float32")
        index = generator.integers(-1, problem.extent.constant, items)
        updates = generator.standard_normal(problem.update_size.constant, "float32")
        return data, index, updates, scatter_reference(problem, data, [index], updates)

    def run() -> Results:
        outcome = {}
        for key, problem in runs.items():
            data, index, updates, expected = drawn(problem)
            outcome[key] = runner.run(key, data, [index], updates)
            np.testing.assert_allclose(outcome[key], expected, rtol=1e-3, atol=1e-2, err_msg=key)
        return outcome

    return run


def test_bits_do_not_change() -> None:
    """By no number of threads, and by no symbolic sizes. One test, since compiling takes long."""
    run, results = compiled(), {}
    for threads in COUNTS:
        with running_in(threads):
            results[threads] = run()
    for threads, key in product(COUNTS[1:], results[1]):
        assert results[threads][key].tobytes() == results[1][key].tobytes(), f"{key}, {threads}"
    compared = set()
    for key, result in results[THREADS].items():
        static = key.replace("_symbolic", "_static")
        if static != key:
            assert result.tobytes() == results[THREADS][static].tobytes(), key
            compared.add(key.split("_add_")[1])
    everywhere = {"sequential", "parallel_injective", "sort_based"}
    assert compared == {f"{name}_symbolic" for name in everywhere}
