"""Record, and the settings that architectures share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VOCABULARY, LENGTH = 96, 16


@dataclass(frozen=True)
class Record:
    """One architecture."""

    name: str
    library: str
    """a key of build.BUILDERS"""
    build: str
    """the model's class (transformers, diffusers) or its name (timm, torchvision)"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: str = "tokens"
    """a key of inputs.INPUTS"""
    modes: tuple[str, ...] = ("inference", "training")
    side: int = 64
    """image side"""
    resizes: bool = True
    """whether eager takes other batches and lengths than those of INPUTS"""


TRUNK = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
ENCODER = {**TRUNK, "vocab_size": VOCABULARY, "max_position_embeddings": 64}
EMBEDDED = {**ENCODER, "embedding_size": 16}
DECODER = {**ENCODER, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**DECODER, "num_key_value_heads": 2}
HEAD8 = {**GROUPED, "head_dim": 8}
EXPERTS = {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
N_EMBD = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "vocab_size": VOCABULARY,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
D_MODEL = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
PATCHES = {**TRUNK, "image_size": 32, "patch_size": 8}
SPEECH = {
    **TRUNK,
    "vocab_size": VOCABULARY,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 4, 4),
    "conv_kernel": (10, 8, 4),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
    "pad_token_id": 0,
}
TEXT_TOWER = {**ENCODER, "projection_dim": 16, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
IMAGE_TOWER = {**PATCHES, "projection_dim": 16}
SOUND_TOWER = {
    "spec_size": 32,
    "num_mel_bins": 8,
    "window_size": 4,
    "patch_size": 4,
    "patch_stride": [4, 4],
    "patch_embeds_hidden_size": 16,
    "hidden_size": 32,
    "depths": [2, 2],
    "num_attention_heads": [2, 4],
    "num_hidden_layers": 2,
    "projection_dim": 16,
}
LATENT_HEADS = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
}


def transformers(inputs: str, *rows: tuple[str, Mapping[str, Any]], **common: Any) -> list[Record]:
    """Records of one kind of input, named as their classes."""
    return [Record(build, "transformers", build, settings, inputs, **common) for build, settings in rows]
