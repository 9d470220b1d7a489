"""Real models that scatter, with random weights: what ``tvm-scatter demo`` runs."""

from __future__ import annotations

from .model import DemoModel


def demo_models() -> list[DemoModel]:
    """The models, in the order of the table. Needs PyTorch and torch-geometric."""
    from . import detection, graphs, language

    return [
        DemoModel("GCN", "scatter_add", graphs.gcn),
        DemoModel("GraphSAGE mean", "scatter_add", graphs.sage_mean),
        DemoModel("GraphSAGE max", "scatter_reduce", graphs.sage_max),
        DemoModel("GIN", "scatter_add", graphs.gin),
        DemoModel("GAT", "scatter_reduce, scatter_add", graphs.gat),
        DemoModel("PointPillars scatter", "index_put", detection.point_pillars),
        DemoModel("Mask R-CNN levels", "index_put", detection.level_assembly),
        DemoModel("KV cache update", "index_copy", language.cache_update),
        DemoModel("Top-2 experts", "index_add", language.mixture_of_experts),
        DemoModel("Embedding gradient", "embedding_dense_backward", language.embedding_gradient),
    ]


__all__ = ["DemoModel", "demo_models"]
