"""Models that were drawn by chance after the work: the first twenty of :mod:`.draw`."""

from __future__ import annotations

from typing import Any

import torch
import torchvision
import transformers
from torch_geometric import nn
from torchvision import ops

from .graphs import CHANNELS, EDGES, NODES, graph, perceptron
from .language import LATENT, TRANSFORMERS, Named, prefill, tell_scores_apart
from .zoo import Program, model

Tensor = torch.Tensor
GRAPHS, VISION = "torch_geometric", "torchvision"


# torch_geometric: the first ten names


def mask() -> Tensor:
    return torch.rand(NODES) < 0.5


def places() -> Tensor:
    return torch.randn(NODES, 3)


def directions() -> Tensor:
    return torch.nn.functional.normalize(torch.randn(NODES, 3), dim=1)


def attributes() -> Tensor:
    return torch.randn(EDGES, 4)


def nodes_of_graphs() -> tuple[Tensor, Tensor]:
    return torch.randn(NODES, CHANNELS), torch.arange(NODES) // 7


@model("MaskLabel", GRAPHS)
def mask_label() -> Program:
    labels = torch.randint(0, 4, (NODES,))
    return Program(nn.MaskLabel(4, CHANNELS), (torch.randn(NODES, CHANNELS), labels, mask()))


@model("GCN2Conv", GRAPHS)
def gcn2() -> Program:
    x, edges = graph()
    return Program(nn.GCN2Conv(CHANNELS, 0.1, 0.5, 1), (x, torch.randn_like(x), edges))


@model("DeepGCNLayer", GRAPHS)
def deep_gcn() -> Program:
    convolution = nn.GENConv(CHANNELS, CHANNELS, learn_t=True)
    norm, act = torch.nn.LayerNorm(CHANNELS), torch.nn.ReLU()
    return Program(nn.DeepGCNLayer(convolution, norm, act, block="res+"), graph())


@model("PPFConv", GRAPHS)
def ppf() -> Program:
    x, edges = graph()
    module = nn.PPFConv(perceptron(CHANNELS + 4, 8), perceptron(8, 4))
    return Program(module, (x, places(), directions(), edges))


@model("SGConv", GRAPHS)
def sg() -> Program:
    return Program(nn.SGConv(CHANNELS, 4, K=2), graph())


@model("PDNConv", GRAPHS)
def pdn() -> Program:
    return Program(nn.PDNConv(CHANNELS, 4, 4, hidden_channels=8), (*graph(), attributes()))


@model("WLConvContinuous", GRAPHS)
def wl_continuous() -> Program:
    return Program(nn.WLConvContinuous(), (*graph(), torch.rand(EDGES)))


@model("PowerMeanAggregation", GRAPHS)
def power_mean() -> Program:
    aggregation = nn.PowerMeanAggregation(learn=True)

    def mean(x: Tensor, graph_of_node: Tensor) -> Tensor:
        return aggregation(x, graph_of_node, dim_size=3)

    return Program(mean, nodes_of_graphs())


@model("MetaLayer", GRAPHS)
def meta_layer() -> Program:
    """Edges, nodes and whole graphs, each of the others."""

    class Edges(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron(2 * CHANNELS + 4 + 2, 4)

        def forward(self, source: Tensor, target: Tensor, edge: Tensor, u: Any, of: Any) -> Tensor:
            return self.inner(torch.cat([source, target, edge, u[of]], 1))

    class Nodes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron(CHANNELS + 4 + 2, CHANNELS)

        def forward(self, x: Tensor, edges: Tensor, edge: Tensor, u: Any, of: Any) -> Tensor:
            mean = nn.MeanAggregation()(edge, edges[1], dim_size=x.shape[0])
            return self.inner(torch.cat([x, mean, u[of]], 1))

    class Graphs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron(CHANNELS + 2, 2)

        def forward(self, x: Tensor, edges: Tensor, edge: Tensor, u: Any, of: Any) -> Tensor:
            mean = nn.MeanAggregation()(x, of, dim_size=u.shape[0])
            return self.inner(torch.cat([u, mean], 1))

    inputs = (*graph(), attributes(), torch.randn(3, 2), torch.arange(NODES) // 7)
    return Program(nn.MetaLayer(Edges(), Nodes(), Graphs()), inputs)


@model("global_add_pool", GRAPHS)
def add_pool() -> Program:
    def pool(x: Tensor, graph_of_node: Tensor) -> Tensor:
        return nn.global_add_pool(x, graph_of_node, size=3)

    return Program(pool, nodes_of_graphs())


# transformers: the first five names


@model("MiniCPM 3", TRANSFORMERS)
def minicpm3() -> Program:
    sizes = {key: LATENT[key] for key in LATENT if "rank" in key or "head_dim" in key}
    return prefill("MiniCPM3", **{**sizes, "num_key_value_heads": 4})


@model("PP-DocLayout 4", TRANSFORMERS)
def pp_doclayout() -> Program:
    backbone = transformers.HGNetV2Config(
        **{"stem_channels": [3, 8, 8], "embedding_size": 8, "depths": [1, 1, 1, 1]},
        **{"hidden_sizes": [8, 8, 16, 16], "stage_in_channels": [8, 8, 8, 16]},
        **{"stage_mid_channels": [4, 4, 8, 8], "stage_out_channels": [8, 8, 16, 16]},
        **{"stage_num_blocks": [1, 1, 1, 1], "stage_numb_of_layers": [1, 1, 1, 1]},
        **{"out_features": ["stage2", "stage3", "stage4"]},
    )
    configuration = transformers.PPDocLayoutV4Config(
        **{"backbone_config": backbone, "encoder_in_channels": [8, 16, 16]},
        **{"encoder_hidden_dim": 32, "encoder_ffn_dim": 32, "encoder_attention_heads": 4},
        **{"hidden_size": 32, "decoder_in_channels": [32, 32, 32], "decoder_ffn_dim": 32},
        **{"decoder_layers": 2, "decoder_attention_heads": 4, "num_queries": 5},
        **{"global_pointer_head_size": 8, "num_labels": 3},
    )
    module = transformers.PPDocLayoutV4ForObjectDetection(configuration)
    tell_scores_apart(module)
    named = Named(module, ("pixel_values",), ("logits", "pred_boxes"))
    return Program(named, (torch.randn(1, 3, 64, 64),))


@model("AST", TRANSFORMERS)
def audio_spectrogram_transformer() -> Program:
    configuration = transformers.ASTConfig(
        **{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4},
        **{"intermediate_size": 48, "patch_size": 8, "frequency_stride": 4, "time_stride": 4},
        **{"max_length": 24, "num_mel_bins": 16},
    )
    module = transformers.ASTForAudioClassification(configuration)
    return Program(Named(module, ("input_values",), ("logits",)), (torch.randn(2, 24, 16),))


@model("Llama 3.2, the part that sees", TRANSFORMERS)
def mllama_vision() -> Program:
    configuration = transformers.models.mllama.MllamaVisionConfig(
        **{"hidden_size": 32, "num_hidden_layers": 2, "num_global_layers": 1},
        **{"attention_heads": 4, "intermediate_size": 48, "vision_output_dim": 64},
        **{"image_size": 16, "patch_size": 8, "max_num_tiles": 2},
        **{"intermediate_layers_indices": [1], "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]]},
    )
    module = transformers.MllamaVisionModel(configuration)
    inputs = ("pixel_values", "aspect_ratio_ids", "aspect_ratio_mask")
    tiles = torch.tensor([[[1, 1]], [[1, 0]]])
    tensors = torch.randn(2, 1, 2, 3, 16, 16), torch.tensor([[2], [1]]), tiles
    return Program(Named(module, inputs, ("last_hidden_state",)), tensors)


@model("Time Series Transformer", TRANSFORMERS)
def time_series() -> Program:
    configuration = transformers.TimeSeriesTransformerConfig(
        **{"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2, 3]},
        **{"num_time_features": 1, "num_static_categorical_features": 1, "cardinality": [5]},
        **{"embedding_dimension": [4], "d_model": 32, "encoder_layers": 1, "decoder_layers": 1},
    )
    module = transformers.TimeSeriesTransformerModel(configuration)
    inputs = {
        "past_values": torch.randn(2, 11),
        "past_time_features": torch.randn(2, 11, 1),
        "past_observed_mask": torch.ones(2, 11),
        "static_categorical_features": torch.tensor([[1], [4]]),
        "future_values": torch.randn(2, 4),
        "future_time_features": torch.randn(2, 4, 1),
    }
    named = Named(module, tuple(inputs), ("last_hidden_state",), use_cache=False)
    return Program(named, tuple(inputs.values()))


# torchvision: the first five names


def settled(module: torch.nn.Module) -> torch.nn.Module:
    """The module, whose norms know pictures like those it is run with: it tells them apart."""
    for _ in range(20):
        module(picture(4))
    return module


def picture(count: int = 1) -> Tensor:
    return torch.randn(count, 3, 32, 32)


def boxes(count: int = 6) -> Tensor:
    corners = torch.rand(count, 2) * 8
    return torch.cat([corners, corners + 1 + torch.rand(count, 2) * 6], 1)


@model("complete_box_iou_loss", VISION)
def complete_box_iou_loss() -> Program:
    return Program(ops.complete_box_iou_loss, (boxes(), boxes()))


@model("EfficientNet B1", VISION)
def efficientnet() -> Program:
    return Program(settled(torchvision.models.efficientnet_b1(num_classes=5)), (picture(),))


@model("ShuffleNet v2, ready to be quantized", VISION)
def quantized_shufflenet() -> Program:
    module = torchvision.models.quantization.shufflenet_v2_x0_5(num_classes=5)
    return Program(settled(module), (picture(),))


@model("Swin v2", VISION)
def swin_v2() -> Program:
    from torchvision.models import swin_transformer

    module = swin_transformer.SwinTransformer(
        **{"patch_size": [4, 4], "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4]},
        **{
            "window_size": [4, 4],
            "num_classes": 5,
            "block": swin_transformer.SwinTransformerBlockV2,
        },
        downsample_layer=swin_transformer.PatchMergingV2,
    )
    return Program(module, (picture(),))


@model("box_area", VISION)
def box_area() -> Program:
    return Program(ops.box_area, (boxes(),))
