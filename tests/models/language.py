"""Language models and mixtures of experts, and models that read images so, from transformers."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch.export import Dim
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

from .zoo import Program, model

TRANSFORMERS = "transformers"
WORDS, LENGTH, CACHED = 97, 7, 16
#: The sizes of a decoder, by the names that most configurations have for them.
DECODER: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
#: Sizes of the attention of DeepSeek.
LATENT = {
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 24,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
    "head_dim": 4,
}
TWO_KINDS_OF_LAYERS = {
    "num_hidden_layers": 2,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention"],
}


class Named(torch.nn.Module):
    """A model of transformers that takes its inputs by position and returns some of its outputs."""

    def __init__(
        self, wrapped: Any, inputs: tuple[str, ...], outputs: tuple[str, ...], **given: Any
    ):
        super().__init__()
        self.wrapped = wrapped
        self.inputs, self.outputs, self.given = inputs, outputs, given

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = dict(zip(self.inputs, tensors, strict=True))
        result = self.wrapped(**named, **self.given)
        return tuple(getattr(result, name) for name in self.outputs)


def words(batch: int = 2, length: int = LENGTH) -> torch.Tensor:
    """Sentences of numbered words."""
    return torch.randint(3, WORDS, (batch, length))


def decoder(name: str, **sizes: Any) -> Any:
    """A causal language model by the name of its family, such as ``"Llama"``."""
    family, _, kind = name.partition("/")
    configuration = getattr(transformers, f"{family}{kind}Config")(**{**DECODER, **sizes})
    return getattr(transformers, f"{family}ForCausalLM")(configuration)


def prefill(name: str, **sizes: Any) -> Program:
    """The logits of whole sentences."""
    return Program(
        Named(decoder(name, **sizes), ("input_ids",), ("logits",), use_cache=False), (words(),)
    )


def decoding(name: str, **sizes: Any) -> Program:
    """One step with a static cache: a word and its place, and the cache as buffers."""
    wrapped = decoder(name, **sizes)
    wrapped.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static"
    )
    step = TorchExportableModuleWithStaticCache(wrapped, batch_size=1, max_cache_len=CACHED)
    return Program(_Step(step), (words(1, 1), torch.tensor([3])))


def of_any_length(program: Program) -> Program:
    """A model whose only input is sentences, for sentences of any length."""
    module, inputs, *_ = program
    return Program(module, inputs, [({1: Dim("length", max=60)},)], (words(length=11),))


class _Step(torch.nn.Module):
    def __init__(self, step: Any) -> None:
        super().__init__()
        self.step = step

    def forward(self, word: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return self.step(input_ids=word, cache_position=place)


# Decoders with a static cache


@model("Llama, a step with a static cache", TRANSFORMERS)
def llama_step() -> Program:
    return decoding("Llama")


@model("Qwen2, a step with a static cache", TRANSFORMERS)
def qwen2_step() -> Program:
    return decoding("Qwen2")


@model("Qwen3, a step with a static cache", TRANSFORMERS)
def qwen3_step() -> Program:
    return decoding("Qwen3")


@model("Gemma 2, a step with a static cache", TRANSFORMERS)
def gemma2_step() -> Program:
    return decoding("Gemma2", **TWO_KINDS_OF_LAYERS)


@model("Gemma 3, a step with a static cache", TRANSFORMERS)
def gemma3_step() -> Program:
    return decoding("Gemma3/Text", **TWO_KINDS_OF_LAYERS)


@model("Mixtral, a step with a static cache", TRANSFORMERS)
def mixtral_step() -> Program:
    return decoding("Mixtral", **LOCAL_EXPERTS)


# Mixtures of experts


@model("Mixtral", TRANSFORMERS)
def mixtral() -> Program:
    return prefill("Mixtral", **LOCAL_EXPERTS)


@model("Mixtral, sentences of any length", TRANSFORMERS)
def mixtral_of_any_length() -> Program:
    return of_any_length(prefill("Mixtral", **LOCAL_EXPERTS))


@model("Mixtral, experts by batched products", TRANSFORMERS)
def mixtral_batched() -> Program:
    return prefill("Mixtral", **LOCAL_EXPERTS, experts_implementation="batched_mm")


@model("Qwen2-MoE", TRANSFORMERS)
def qwen2_moe() -> Program:
    sizes = {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24}
    return prefill("Qwen2Moe", **EXPERTS, **sizes)


@model("Qwen3-MoE", TRANSFORMERS)
def qwen3_moe() -> Program:
    return prefill("Qwen3Moe", **EXPERTS, moe_intermediate_size=24)


@model("OLMoE", TRANSFORMERS)
def olmoe() -> Program:
    return prefill("Olmoe", **EXPERTS)


@model("GPT-OSS", TRANSFORMERS)
def gpt_oss() -> Program:
    return prefill("GptOss", **LOCAL_EXPERTS, num_hidden_layers=2, sliding_window=4)


@model("DeepSeek-V2", TRANSFORMERS)
def deepseek_v2() -> Program:
    return prefill("DeepseekV2", **LATENT, topk_method="group_limited_greedy")


@model("DeepSeek-V3", TRANSFORMERS)
def deepseek_v3() -> Program:
    return prefill("DeepseekV3", **LATENT)


@model("Phi-MoE", TRANSFORMERS)
def phimoe() -> Program:
    return prefill("Phimoe", **LOCAL_EXPERTS)


@model("Granite-MoE", TRANSFORMERS)
def granite_moe() -> Program:
    return prefill("GraniteMoe", **LOCAL_EXPERTS)


@model("JetMoE", TRANSFORMERS)
def jet_moe() -> Program:
    return prefill("JetMoe", kv_channels=8, **LOCAL_EXPERTS)


@model("Llama 4", TRANSFORMERS)
def llama4() -> Program:
    sizes = {"intermediate_size_mlp": 48, "num_local_experts": 4, "num_experts_per_tok": 1}
    layers = {"interleave_moe_layer_step": 1, "attention_chunk_size": 16, "no_rope_layers": [1]}
    return prefill("Llama4/Text", **sizes, **layers)


# Whole sentences, and encoders


@model("Llama", TRANSFORMERS)
def llama() -> Program:
    return prefill("Llama")


@model("Llama, sentences of any length", TRANSFORMERS)
def llama_of_any_length() -> Program:
    return of_any_length(prefill("Llama"))


@model("Gemma 3", TRANSFORMERS)
def gemma3() -> Program:
    return prefill("Gemma3/Text", **TWO_KINDS_OF_LAYERS)


@model("Phi-3", TRANSFORMERS)
def phi3() -> Program:
    return prefill("Phi3")


@model("GPT-2", TRANSFORMERS)
def gpt2() -> Program:
    configuration = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=1, n_head=4, n_positions=64
    )
    module = transformers.GPT2LMHeadModel(configuration)
    return Program(Named(module, ("input_ids",), ("logits",), use_cache=False), (words(),))


@model("BERT", TRANSFORMERS)
def bert() -> Program:
    sizes = {key: value for key, value in DECODER.items() if "key_value" not in key}
    module = transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    mask = torch.ones(2, LENGTH, dtype=torch.int64)
    mask[1, 5:] = 0
    return Program(Named(module, ("input_ids", "attention_mask"), ("logits",)), (words(), mask))


@model("T5", TRANSFORMERS)
def t5() -> Program:
    configuration = transformers.T5Config(
        **{"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1},
        **{"num_heads": 4, "decoder_start_token_id": 0},
    )
    module = transformers.T5ForConditionalGeneration(configuration)
    named = Named(module, ("input_ids", "decoder_input_ids"), ("logits",), use_cache=False)
    return Program(named, (words(), words()))


@model("Whisper", TRANSFORMERS)
def whisper() -> Program:
    sides = {
        f"{side}_{what}": size
        for side in ("encoder", "decoder")
        for what, size in {"layers": 1, "attention_heads": 4, "ffn_dim": 48}.items()
    }
    configuration = transformers.WhisperConfig(
        **{"vocab_size": WORDS, "d_model": 32, "num_mel_bins": 8, **sides},
        **{"max_source_positions": 10, "max_target_positions": 16, "decoder_start_token_id": 1},
        **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    )
    module = transformers.WhisperForConditionalGeneration(configuration)
    inputs = ("input_features", "decoder_input_ids")
    named = Named(module, inputs, ("logits",), use_cache=False)
    return Program(named, (torch.randn(2, 8, 20), words()))


@model("Mamba", TRANSFORMERS)
def mamba() -> Program:
    configuration = transformers.MambaConfig(
        **{"vocab_size": WORDS, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 1},
        **{"time_step_rank": 4},
    )
    module = transformers.MambaForCausalLM(configuration)
    return Program(Named(module, ("input_ids",), ("logits",), use_cache=False), (words(),))


@model("ViT", TRANSFORMERS)
def vit() -> Program:
    configuration = transformers.ViTConfig(
        **{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4},
        **{"intermediate_size": 48, "image_size": 16, "patch_size": 8},
    )
    module = transformers.ViTForImageClassification(configuration)
    return Program(Named(module, ("pixel_values",), ("logits",)), (torch.randn(1, 3, 16, 16),))


def detection(name: str, stages: list[str], **sizes: Any) -> Program:
    """Boxes and classes of what a picture shows."""
    backbone = transformers.ResNetConfig(
        **{"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
        **{"layer_type": "basic", "out_features": stages},
    )
    both = {
        f"{side}_{what}": size
        for side in ("encoder", "decoder")
        for what, size in {"attention_heads": 4, "ffn_dim": 32}.items()
    }
    configuration = getattr(transformers, f"{name}Config")(
        **{"use_timm_backbone": False, "backbone": None, "backbone_config": backbone},
        **{"d_model": 32, "encoder_layers": 1, "num_queries": 5, **both, **sizes},
    )
    module = getattr(transformers, f"{name}ForObjectDetection")(configuration)
    outputs = ("logits", "pred_boxes")
    return Program(Named(module, ("pixel_values",), outputs), (torch.randn(1, 3, 64, 64),))


def tell_scores_apart(module: torch.nn.Module) -> None:
    """Draw weights. As detectors are made, all scores are equal, so any place may be the best."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            torch.nn.init.kaiming_normal_(parameter)


@model("DETR", TRANSFORMERS)
def detr() -> Program:
    return detection("Detr", ["stage4"], decoder_layers=1)


@model("Deformable DETR", TRANSFORMERS)
def deformable_detr() -> Program:
    stages = ["stage2", "stage3", "stage4"]
    return detection("DeformableDetr", stages, decoder_layers=2, num_feature_levels=3)


@model("RT-DETR v2", TRANSFORMERS)
def rt_detr_v2() -> Program:
    stages = ["stage2", "stage3", "stage4"]
    sizes = {"decoder_layers": 2, "encoder_hidden_dim": 32, "decoder_in_channels": [32] * 3}
    sizes |= {"encoder_in_channels": [8, 16, 16], "num_denoising": 0}
    program = detection("RTDetrV2", stages, **sizes)
    tell_scores_apart(program.module)
    return program


# Any length


@model("Qwen2, sentences of any length", TRANSFORMERS)
def qwen2_of_any_length() -> Program:
    return of_any_length(prefill("Qwen2"))


@model("GPT-2, sentences of any length", TRANSFORMERS)
def gpt2_of_any_length() -> Program:
    return of_any_length(gpt2())


@model("T5, questions and answers of any length", TRANSFORMERS)
def t5_of_any_length() -> Program:
    module, inputs, *_ = t5()
    lengths = tuple({1: Dim(name, max=60)} for name in ("question", "answer"))
    return Program(module, inputs, [lengths], (words(length=11), words(length=5)))
