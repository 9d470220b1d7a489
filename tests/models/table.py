"""The outcomes of the zoo as a page of Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from .outcomes import Outcome

_TITLE = """# Models that were tried

Layers, whole models and idioms, small and with random weights, from torch_geometric, transformers
and torchvision. Each is exported, imported and compiled as a user does it, and compared with
PyTorch: integers exactly, floats to 1e-4 of the greatest value. Made by

```
cd tests
python -m models try FOLDER                      # on a machine with the libraries
python -m models run FOLDER gpu.json             # on a machine with a GPU
python -m models table FOLDER gpu.json ../docs/models.md
```
"""
_RUNS = """
On an H200, driver 580.159.04, with the default options.
"""
_SECOND_LOOK = """
## A second look

Twenty more, drawn by chance after the work from the names that the libraries give out, and that no
test had: the first ten of torch_geometric, five of transformers and five of torchvision, in the
order of `python -m models.draw` (seed 17), with few channels where they can be chosen.
Two names were passed over: DynamicEdgeConv needs pyg-lib, and to_captum_model is no model.
`torch.export` refused none. At the first attempt 19 were right on llvm. PP-DocLayout 4 was not: as
it is made, all its scores are equal, and which of equal scores are the best PyTorch leaves open.
It now has random weights that tell them apart, and is right. The norms of EfficientNet B1 and of
ShuffleNet have seen pictures since, as both returned little more than zeros.
"""
#: What is known of a failure whose reason holds a text.
_KNOWN = {
    "has not been computed": "TVM's FuseOps moves the reading of a run-time size behind its use",
    "Inconsistent buffers": "TVM's FuseTIR takes two shapes of one tensor for different tensors",
    "ended with -6": "a kernel that TVM fused reads at address 0 where a level has no regions",
}
_HEAD = ("model", "library", "imports", "llvm", "CUDA", "scatters", "on llvm", "on CUDA")


def table(on_llvm: Mapping[str, Outcome], on_gpu: Mapping[str, Outcome]) -> str:
    """The page: how many are right, a row for each model, and the reasons of those that fail."""
    second = {name: each for name, each in on_llvm.items() if each["file"] == "second_look"}
    first = {name: each for name, each in on_llvm.items() if name not in second}
    lines = [_TITLE + _RUNS, *_part(first, on_gpu)]
    if second:
        lines += [_SECOND_LOOK, *_part(second, on_gpu)]
    return "\n".join([*lines, ""])


def _part(on_llvm: Mapping[str, Outcome], on_gpu: Mapping[str, Outcome]) -> Iterator[str]:
    gpu = {name: on_gpu[name] for name in on_llvm if name in on_gpu}
    yield from (*_counts(on_llvm, gpu), "", _row(_HEAD), _row(["---"] * len(_HEAD)))
    for name, each in on_llvm.items():
        yield _model(name, each, gpu.get(name, {}))
    reasons = list(_reasons(on_llvm, gpu))
    yield from ["", *reasons] if reasons else []


def _counts(on_llvm: Mapping[str, Outcome], on_gpu: Mapping[str, Outcome]) -> Iterator[str]:
    both = sum(_right(each) and _right(on_gpu.get(name)) for name, each in on_llvm.items())
    yield (
        f"{len(on_llvm)} models. {sum(map(_right, on_llvm.values()))} are right on llvm, "
        f"{sum(map(_right, on_gpu.values()))} on CUDA, {both} on both."
    )


def _model(name: str, llvm: Outcome, cuda: Outcome) -> str:
    imports = "no" if llvm.get("failed") == "export or import" else "yes"
    operators = _counted([operator for operator, _ in llvm.get("scatters", ())])
    cells = [name, llvm["library"], imports, _word(llvm), _word(cuda) if cuda else "-", operators]
    for outcome in (llvm, cuda):
        cells.append(_counted([chosen for _, chosen in outcome.get("scatters", ())]))
    return _row(cells)


def _right(outcome: Outcome | None) -> bool:
    return bool(outcome) and "failed" not in outcome


def _word(outcome: Outcome) -> str:
    if _right(outcome):
        return "right"
    return "wrong" if outcome["failed"] == "wrong" else "no"


def _counted(names: Sequence[str]) -> str:
    """Each name once, with how often it stands there."""
    return ", ".join(
        name if count == 1 else f"{count} {name}" for name, count in Counter(names).items()
    )


def _reasons(on_llvm: Mapping[str, Outcome], on_gpu: Mapping[str, Outcome]) -> Iterator[str]:
    for where, outcomes in (("llvm", on_llvm), ("CUDA", on_gpu)):
        for name, outcome in outcomes.items():
            if outcome and not _right(outcome):
                last = str(outcome.get("reason", "")).strip().splitlines()[-1:]
                text = ": ".join([outcome["failed"], *last])
                known = [said for part, said in _KNOWN.items() if part in text]
                yield f"- **{name}**, {where}: {'; '.join([*known, text])}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
