"""Installs this package into TVM, and removes it. Only this module imports the implementations."""

from __future__ import annotations

from tvm_scatter.importers.torch import converters as torch_importer

from . import pipelines, tvm_tuner
from .fusion import guarded as guarded_fusion
from .fusion import op_patterns
from .importers import onnx as onnx_importer
from .importers import tvmscript
from .lowering import batched as batch
from .lowering import (
    legalizations,
    legalize,
    legalize_compaction,
    legalize_elementwise,
    legalize_expectations,
    legalize_grouped_product,
    legalize_host_numbers,
    legalize_means,
    legalize_order,
    legalize_precise,
    legalize_reads,
    legalize_suppression,
    legalize_views,
)
from .ops import (
    compaction,
    expectations,
    grouped_product,
    host_numbers,
    ordering,
    read_ops,
    suppression,
)
from .ops import operators as ops
from .passes import ordered_fusion
from .runtime import cuda_build, cuda_toolkit, kernel_cache
from .schedules import (
    device_passes,
    empty_outputs,
    flattened_indices,
    guarded,
    vector_addresses,
)

_installed = False


def install() -> None:
    """Install the strategy into TVM. Called at import. Calling it again changes nothing."""
    global _installed
    from .strategies import register_strategies

    register_strategies()
    ops.register()
    read_ops.register()
    expectations.register()
    compaction.register()
    ordering.register()
    host_numbers.register()
    grouped_product.register()
    suppression.register()
    batch.register()
    legalize.install_legalizations()
    legalize_reads.install_legalizations()
    legalize_expectations.install_legalizations()
    legalize_compaction.install_legalizations()
    legalize_host_numbers.install_legalizations()
    legalize_order.install_legalizations()
    legalize_grouped_product.install_legalizations()
    legalize_suppression.install_legalizations()
    legalize_elementwise.install_legalizations()
    legalize_means.install_legalizations()
    legalize_precise.install_legalizations()
    legalize_views.install_legalizations()
    pipelines.install_pipelines()
    ordered_fusion.install_fusion()
    guarded.install_guard()
    empty_outputs.install_marks()
    flattened_indices.FLATTENING.install()
    vector_addresses.ADDRESS_CHECKS.install()
    device_passes.install_device_passes()
    guarded_fusion.install_guard()
    op_patterns.install_patterns()
    tvm_tuner.install_tuner()
    torch_importer.install_torch()
    onnx_importer.install_onnx()
    tvmscript.install_tvmscript()
    cuda_toolkit.use_wheels()
    kernel_cache.install_cache()
    cuda_build.install_build()
    _installed = True


def uninstall() -> None:
    """Restore TVM's own operators, pipelines and importers. :func:`install` undoes this."""
    global _installed
    if not _installed:
        return
    legalizations.give_back()
    legalize_compaction.uninstall_legalizations()
    pipelines.uninstall_pipelines()
    ordered_fusion.uninstall_fusion()
    guarded.uninstall_guard()
    empty_outputs.uninstall_marks()
    flattened_indices.FLATTENING.uninstall()
    vector_addresses.ADDRESS_CHECKS.uninstall()
    device_passes.uninstall_device_passes()
    guarded_fusion.uninstall_guard()
    op_patterns.uninstall_patterns()
    tvm_tuner.uninstall_tuner()
    torch_importer.uninstall_torch()
    onnx_importer.uninstall_onnx()
    tvmscript.uninstall_tvmscript()
    cuda_toolkit.forget_wheels()
    kernel_cache.uninstall_cache()
    cuda_build.uninstall_build()
    _installed = False


def is_installed() -> bool:
    """Whether the strategy is installed."""
    return _installed
