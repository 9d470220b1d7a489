"""The page on exporting: its examples of graphs run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

pytestmark = pytest.mark.filterwarnings("ignore")

PAGE = (Path(__file__).parents[1] / "docs" / "exporting.md").read_text(encoding="utf-8")
GRAPHS = PAGE.split("\n## Graphs\n")[1].split("\n## ")[0]
FIRST, *EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GRAPHS, re.MULTILINE | re.DOTALL)
NAMES = re.findall(r"^\*\*([\w ]+?)\*\*", GRAPHS, re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
def test_examples_run(example: str) -> None:
    torch.manual_seed(0)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(FIRST, "exporting.md", "exec"), names)
    exec(compile(example, "exporting.md", "exec"), names)


def test_the_example_of_sparse_tensors_runs() -> None:
    torch.manual_seed(0)
    section = PAGE.split("\n## Sparse tensors\n")[1].split("\n## ")[0]
    names: dict[str, object] = {"__name__": "example"}
    (example,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    exec(compile(FIRST, "exporting.md", "exec"), names)
    exec(compile(example, "exporting.md", "exec"), names)
