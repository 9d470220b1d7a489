"""Installing into TVM and taking out again: the one place that joins core and implementations."""

from __future__ import annotations

from tvm_scatter.importers.torch import converters as torch_importer

from . import pipelines, tvm_tuner
from .importers import onnx as onnx_importer
from .lowering import batched as batch
from .lowering import legalizations, legalize, legalize_expectations, legalize_reads
from .ops import expectations, read_ops
from .ops import operators as ops
from .runtime import cuda_toolkit, kernel_cache

_installed = False


def install() -> None:
    """Put the strategy into TVM. Called at import; calling it again changes nothing."""
    global _installed
    from .strategies import register_strategies

    register_strategies()
    ops.register()
    read_ops.register()
    expectations.register()
    batch.register()
    legalize.install_legalizations()
    legalize_reads.install_legalizations()
    legalize_expectations.install_legalizations()
    pipelines.install_pipelines()
    tvm_tuner.install_tuner()
    torch_importer.install_torch()
    onnx_importer.install_onnx()
    cuda_toolkit.use_wheels()
    kernel_cache.install_cache()
    _installed = True


def uninstall() -> None:
    """Give TVM's own operators, pipelines and importers back; :func:`install` undoes it."""
    global _installed
    if not _installed:
        return
    legalizations.give_back()
    pipelines.uninstall_pipelines()
    tvm_tuner.uninstall_tuner()
    torch_importer.uninstall_torch()
    onnx_importer.uninstall_onnx()
    cuda_toolkit.forget_wheels()
    kernel_cache.uninstall_cache()
    _installed = False


def is_installed() -> bool:
    """Whether the strategy is in force."""
    return _installed
