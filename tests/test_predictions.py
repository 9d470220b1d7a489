"""What predictions say, whatever the problem, the GPU and the file of coefficients."""

from __future__ import annotations

import json
from itertools import product

import pytest
import tvm

from tvm_scatter import ScatterError, strategy_for
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection import cost
from tvm_scatter.selection.calibrated import machine_for
from tvm_scatter.selection.targets import parse_target


def posed(batch: int = 1, extent: int = 1000, width: int = 8, count: int = 5000, **more):
    sizes = {"batch": batch, "slice": width, "count": count}
    return ScatterProblem(
        **{name: SymbolicSize(size) for name, size in sizes.items()},
        extents=(SymbolicSize(extent),),
        **{"data_dtype": "float32", "index_dtype": "int64", "reduction": "add", **more},
    )


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("nvidia/nvidia-h100", "H100"),
        ("nvidia/nvidia-a100", "A100"),
        ("nvidia/geforce-rtx-4090", "RTX 4090"),
    ],
)
def test_gpus_are_known_by_the_name_of_the_target(tag, name):
    strategy = strategy_for("cuda")
    assert machine_for(strategy.backend, tvm.target.Target(tag)).name == f"NVIDIA {name}"


@pytest.mark.parametrize("target", ["sm_90", "llvm"])
@pytest.mark.parametrize("reduction", ["update", "mul", "mean"])
def test_nothing_to_do_is_predicted_as_well(target, reduction):
    target = parse_target(target)
    strategy = strategy_for(target.kind.name)
    for batch, extent, width, count in product((0, 2), (0, 32), (0, 3), (0, 255)):
        problem = posed(batch, extent, width, count, reduction=reduction)
        for found in strategy.default(problem, target).predictions.values():
            assert 0 < found.microseconds < 1e3


def test_terms_add_up_to_the_time():
    target = parse_target("sm_90")
    for problem in (posed(), posed(extent=3, width=1), posed(width=300, in_place=True)):
        for found in strategy_for("cuda").default(problem, target).predictions.values():
            assert sum(found.terms.values()) == pytest.approx(found.microseconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "{}", '{"coefficients": {"tiled": 3}}'),
        *(json.dumps({"coefficients": {"tiled": {"runs": bad}}}) for bad in (None, "x", 0, -1.0)),
        '{"coefficients": {"tiled": {"runs": NaN}}}',
    ],
)
def test_a_damaged_file_of_coefficients_is_named(text, tmp_path, monkeypatch):
    (tmp_path / "defaults").mkdir()
    (tmp_path / "defaults" / "cuda.json").write_text(text)
    monkeypatch.setattr(cost.resources, "files", lambda _: tmp_path)
    cost._fit.cache_clear()
    try:
        with pytest.raises(ScatterError, match=r"costs: .*cuda\.json"):
            cost.coefficients("cuda")
    finally:
        cost._fit.cache_clear()
