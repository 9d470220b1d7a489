"""``tvm-scatter demo``: compiles real models and compares them with PyTorch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec

from rich.console import Console
from rich.table import Table
from tvm.target import Target

from tvm_scatter.demo import DemoModel, demo_models
from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.targets import need_device, on_this_machine, parse_target

from .model import import_torch, sentence
from .progress import progress

_WIDTH = 120


def run(arguments: argparse.Namespace) -> int:
    """Run the models and print the table; 1 if any result is wrong."""
    # PyTorch uses what this CPU has, too.
    target = on_this_machine(parse_target(arguments.target))
    need_device(target)
    import_torch()
    _need_torch_geometric()
    models = demo_models()
    if arguments.model:
        wanted = {name.lower() for name in arguments.model}
        unknown = wanted - {model.name.lower() for model in models}
        if unknown:
            names = ", ".join(model.name for model in models)
            raise ScatterError(f"unknown model {sorted(unknown)[0]!r}; there is: {names}.")
        models = [model for model in models if model.name.lower() in wanted]
    return _compare_all(models, "small" if arguments.small else "full", target)


def _compare_all(models: Sequence[DemoModel], size: str, target: Target) -> int:
    from tvm_scatter.demo.compare import compare, export, make
    from tvm_scatter.demo.stock import stock_says

    table = Table(show_lines=True)
    for heading in ("model", "max error", "PyTorch", "tvm_scatter", "of that"):
        table.add_column(heading)
    table.add_column("TVM without tvm_scatter", overflow="fold")
    wrong = 0
    with progress() as shown:
        for model in models:

            def step(text: str, name: str = model.name) -> None:
                shown.step(f"{name}: {text}")

            try:
                result = compare(model, size, target, measure=size == "full", step=step)
            except Exception as error:  # the table shows the error, and the other models still run
                wrong += 1
                table.add_row(_name(model), sentence(error), "", "", "", "")
                continue
            step("asking TVM without tvm_scatter")
            stock = stock_says(export(*make(model, size)), model, size, target)
            wrong += not result.right
            table.add_row(
                _name(model),
                f"{result.max_error:.1e}" + ("" if result.right else " WRONG"),
                _milliseconds(result.eager),
                _compared(result.ours, result.eager),
                _shares(result.shares),
                stock,
            )
    # Output that is not a terminal has no width; 80 columns would wrap the last column.
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(table)
    console.print(_footnote(size, target, len(models) - wrong, len(models)), soft_wrap=True)
    return 1 if wrong else 0


def _footnote(size: str, target: Target, right: int, total: int) -> str:
    text = f"{right} of {total} agree with PyTorch on {target.kind.name}."
    if size == "full" and target.kind.name == "llvm":
        text += f" Compiled for {target.attrs['mcpu']} by tvm_scatter.pipeline(target)."
    return text


def _compared(ours: float | None, eager: float | None) -> str:
    """Our time, and how many times PyTorch's it is."""
    if ours is None or eager is None:
        return _milliseconds(ours)
    return f"{_milliseconds(ours)}\n{ours / eager:.2f} x"


def _shares(shares: dict[str, float] | None) -> str:
    """The kinds of functions that take 1 % of the time or more."""
    if shares is None:
        return "-"
    most = sorted(shares.items(), key=lambda share: -share[1])
    return "\n".join(f"{kind} {share:.0%}" for kind, share in most if share >= 0.01)


def _name(model: DemoModel) -> str:
    return f"{model.name}\n{model.scatter}"


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    milliseconds = 1e3 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.3g} ms"


def _need_torch_geometric() -> None:
    if find_spec("torch_geometric") is None:
        raise ScatterError(
            "torch-geometric is not installed; run: pip install 'tvm_scatter[torch]'."
        )
