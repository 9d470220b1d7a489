"""The page on exporting: its examples of graphs run, and agree with PyTorch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch.utils._pytree import tree_leaves  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

PAGE = (Path(__file__).parents[1] / "docs" / "exporting.md").read_text(encoding="utf-8")
GRAPHS = PAGE.split("\n## Graphs\n")[1].split("\n## ")[0]
FIRST, *EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GRAPHS, re.MULTILINE | re.DOTALL)
NAMES = re.findall(r"^\*\*([\w ]+?)\*\*", GRAPHS, re.MULTILINE)


def run(example: str) -> None:
    """Run an example behind the page's first one, whose ``compiled`` also compares with PyTorch."""
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(FIRST, "exporting.md", "exec"), names)
    compiled = names["compiled"]

    def compared(model: Any, *inputs: Any) -> Any:
        results = compiled(model, *inputs)
        with torch.no_grad():
            expected = tree_leaves(model(*inputs))
        torch.testing.assert_close(results, expected, atol=1e-4, rtol=1e-4)
        return results

    names["compiled"] = compared
    exec(compile(example, "exporting.md", "exec"), names)


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
@pytest.mark.turns(2)
def test_examples_run(example: str) -> None:
    run(example)


def test_the_example_of_sparse_tensors_runs() -> None:
    section = PAGE.split("\n## Sparse tensors\n")[1].split("\n## ")[0]
    (example,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    run(example)
