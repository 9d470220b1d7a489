"""What a reduction or a kind of target is, its record says: nothing else asks for it by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tvm_scatter.problem.reductions import REDUCTIONS
from tvm_scatter.selection.backend import backends

ROOT = Path(__file__).resolve().parent.parent
FILES = [
    file.relative_to(ROOT)
    for folder in ("tvm_scatter", "strategies", "tuning")
    for file in sorted((ROOT / folder).rglob("*.py"))
]
REDUCTION_NAMES = {
    name for reduction in REDUCTIONS.values() for name in (reduction.name, *reduction.aliases)
}


#: Kinds of target and of device.
KINDS = {"cpu", "gpu", *(backend.kind for backend in backends())}
#: What PyTorch calls its devices is compared where PyTorch is measured.
PYTORCH = {
    "tvm_scatter/cli/bench_arguments.py",
    "tvm_scatter/cli/bench_models.py",
    "tuning/bench/bench.py",
    "tuning/bench/models/run.py",
    "tuning/bench/models/timing.py",
    "tuning/experiments/bounds_cost.py",
    "tuning/measure/call_times.py",
}
#: What only TVM's code generator for CPUs has: names of CPUs, and schedules for their vectors.
LLVM = {
    "tvm_scatter/cli/demo.py",
    "tvm_scatter/schedules/cpu/__init__.py",
    "tvm_scatter/selection/targets.py",
}
#: PyTorch's names of its operators and of their modes, and formulas to compare with.
OPERATORS = {
    "tvm_scatter/importers/onnx_segments.py",
    "tvm_scatter/importers/torch/orders.py",
    "tvm_scatter/importers/torch/segment_gradients.py",
}


def _compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings that something is compared with, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        else:
            continue
        for operand in operands:
            literals = (
                operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
            )
            for literal in literals:
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                    yield literal.lineno, literal.value


def _comparisons() -> Iterator[tuple[str, str]]:
    """Where in the package something is compared with a string, and with which."""
    for file in FILES:
        for line, name in _compared(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            yield f"{file}:{line}: {name!r}", name


def test_nothing_is_compared_with_the_name_of_a_reduction() -> None:
    found = [where for where, name in _comparisons() if name in REDUCTION_NAMES]
    assert not [where for where in found if where.split(":")[0] not in OPERATORS]


def test_nothing_is_compared_with_a_kind_of_target() -> None:
    found = [where for where, name in _comparisons() if name in KINDS]
    assert not [where for where in found if where.split(":")[0] not in PYTORCH | LLVM]


def test_a_comparison_would_be_seen() -> None:
    text = "a == 'add' or b in ('min', 'max')\nmatch c:\n    case 'update': pass\n"
    assert [name for _, name in _compared(ast.parse(text))] == ["add", "min", "max", "update"]
