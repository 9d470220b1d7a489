"""Scatter for Apache TVM: several implementations under one op strategy, chosen by measurement.

Importing this package installs it: after ``import tvm_scatter`` a plain ``tvm.compile`` uses the
strategy for ``relax.scatter_elements``, ``relax.scatter_nd`` and ``relax.index_put`` on ``llvm``
and ``cuda``, and TVM's importers accept PyTorch's and ONNX's scatter operators.
"""

from __future__ import annotations

from pathlib import Path

# In a checkout `strategies` and `tuning` stand beside this folder; in a wheel they are inside it.
_here = Path(__file__).resolve().parent
if not (_here / "strategies").is_dir():
    __path__.append(str(_here.parent))

from .runtime import interrupt  # noqa: E402

interrupt.expect()

from tvm_scatter.importers.torch.converters import torch_converters  # noqa: E402
from tvm_scatter.ops.mutable_buffers import buffers  # noqa: E402
from tvm_scatter.ops.ordering import order  # noqa: E402
from tvm_scatter.problem import reductions  # noqa: E402
from tvm_scatter.problem.scatter_problem import ScatterProblem  # noqa: E402
from tvm_scatter.runtime.cuda_graphs import Graphed, graphed  # noqa: E402
from tvm_scatter.selection.strategy import Implementation, OpStrategy, Selection, strategy_for  # noqa: E402

from .errors import ScatterError  # noqa: E402
from .explain import Explanation, explain  # noqa: E402
from .install import install, is_installed, uninstall  # noqa: E402
from .options import current_options, options  # noqa: E402
from .pipelines import pipeline  # noqa: E402
from .tasks import Task, extract_tasks  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "Graphed",
    "Implementation",
    "OpStrategy",
    "ScatterError",
    "ScatterProblem",
    "Selection",
    "Task",
    "buffers",
    "current_options",
    "explain",
    "extract_tasks",
    "graphed",
    "install",
    "is_installed",
    "options",
    "order",
    "pipeline",
    "reductions",
    "strategy_for",
    "torch_converters",
    "uninstall",
]

install()
