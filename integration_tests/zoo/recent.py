"""RECENT: architectures of transformers that people use now: hybrid and mixture decoders, pictures in text, detection, codecs."""

from __future__ import annotations

from .record import (
    D_MODEL,
    DECODER,
    ENCODER,
    EXPERTS,
    GROUPED,
    HEAD8,
    LATENT_HEADS,
    LENGTH,
    PATCHES,
    TEXT_TOWER,
    VOCABULARY,
    transformers,
)

PICTURE = VOCABULARY - 1
"""The token that stands for a part of a picture."""

_SCAN = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_chunk_size": 8}
_DELTA = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
_SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
_SEEN = {**PATCHES, "patch_size": 16}
_MERGED = {"depth": 2, "num_heads": 4, "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2}
_TURNED = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
_MARKED = {
    "image_token_id": PICTURE,
    "video_token_id": PICTURE - 1,
    "vision_start_token_id": PICTURE - 2,
    "vision_end_token_id": PICTURE - 3,
}
_RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
_QUERIES = {
    "d_model": 32,
    "num_queries": 5,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_labels": 3,
}
_STAGES = {**_RESNET, "out_features": ["stage2", "stage3", "stage4"]}

DECODERS = transformers(
    "causal",
    ("Olmo3ForCausalLM", {**GROUPED, **_SLIDING}),
    ("Cohere2ForCausalLM", {**HEAD8, **_SLIDING}),
    ("Exaone4ForCausalLM", {**HEAD8, **_SLIDING}),
    ("ApertusForCausalLM", GROUPED),
    ("ArceeForCausalLM", GROUPED),
    ("HeliumForCausalLM", HEAD8),
    ("SeedOssForCausalLM", HEAD8),
    ("DiffLlamaForCausalLM", HEAD8),
    (
        "ModernBertDecoderForCausalLM",
        {
            **ENCODER,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "local_attention": 8,
        },
    ),
    (
        "Gemma3nForCausalLM",
        {
            **HEAD8,
            **_SLIDING,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 2,
            "laurel_rank": 8,
            "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0],
        },
    ),
    (
        "Gemma4ForCausalLM",
        {**HEAD8, **_SLIDING, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8, "global_head_dim": 8},
    ),
    (
        "Llama4ForCausalLM",
        {
            **HEAD8,
            "intermediate_size_mlp": 48,
            "num_local_experts": 4,
            "attention_chunk_size": 8,
            "layer_types": ["chunked_attention", "full_attention"],
        },
    ),
    (
        "Ernie4_5_MoeForCausalLM",
        {**GROUPED, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24, "moe_layer_start_index": 1},
    ),
    ("Glm4MoeForCausalLM", {**HEAD8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}),
    (
        "DeepseekV2ForCausalLM",
        {**DECODER, **LATENT_HEADS, "num_key_value_heads": 4, "topk_method": "group_limited_greedy"},
    ),
    ("HunYuanMoEV1ForCausalLM", {**HEAD8, "num_experts": 4, "moe_topk": 2}),
    (
        "MiniMaxForCausalLM",
        {**HEAD8, "num_local_experts": 4, "layer_types": ["linear_attention", "full_attention"], "block_size": 8},
    ),
    ("Qwen3NextForCausalLM", {**EXPERTS, **_DELTA, "head_dim": 8, "shared_expert_intermediate_size": 24}),
    ("Qwen3_5ForCausalLM", {**HEAD8, **_DELTA}),
    (
        "KimiLinearForCausalLM",
        {
            **DECODER,
            **{k: v for k, v in LATENT_HEADS.items() if k not in ("q_lora_rank", "n_routed_experts", "first_k_dense_replace")},
            "num_key_value_heads": 4,
            "num_local_experts": 4,
            "layer_types": ["linear_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse"],
            "linear_head_dim": 8,
            "linear_num_heads": 4,
        },
    ),
    ("BambaForCausalLM", {**GROUPED, **_SCAN, "attn_layer_indices": [1]}),
    (
        "GraniteMoeHybridForCausalLM",
        {**GROUPED, **_SCAN, "num_local_experts": 4, "shared_intermediate_size": 24, "layer_types": ["mamba", "attention"]},
    ),
    ("FalconH1ForCausalLM", {**GROUPED, **_SCAN, "mamba_d_ssm": 64}),
    ("JambaForCausalLM", {**GROUPED, "num_experts": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4}),
    (
        "Zamba2ForCausalLM",
        {
            **{k: v for k, v in DECODER.items() if k != "max_position_embeddings"},
            "mamba_d_state": 8,
            "mamba_ngroups": 2,
            "n_mamba_heads": 8,
            "chunk_size": 8,
            "num_key_value_heads": 4,
            "layers_block_type": ["mamba", "hybrid"],
        },
    ),
    ("FalconMambaForCausalLM", {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
    ("RecurrentGemmaForCausalLM", {**DECODER, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8}),
    ("Lfm2ForCausalLM", {**GROUPED, "layer_types": ["conv", "full_attention"], "block_multiple_of": 16}),
    ("xLSTMForCausalLM", {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "chunk_size": 8}),
)

ENCODERS_AND_DECODERS = transformers(
    "translation",
    (
        "T5GemmaForConditionalGeneration",
        {"encoder": {**HEAD8, **_SLIDING}, "decoder": {**HEAD8, **_SLIDING}, "vocab_size": VOCABULARY},
    ),
    ("LongT5ForConditionalGeneration", {**D_MODEL, "local_radius": 4, "encoder_attention_type": "local"}),
)

PICTURES_IN_TEXT = [
    *transformers(
        "picture in text",
        (
            "LlavaForConditionalGeneration",
            {
                "text_config": {"model_type": "llama", **GROUPED},
                "vision_config": {"model_type": "clip_vision_model", **_SEEN},
                "image_token_index": PICTURE,
            },
        ),
        (
            "PaliGemmaForConditionalGeneration",
            {
                "text_config": {"model_type": "gemma", **HEAD8},
                "vision_config": {"model_type": "siglip_vision_model", **_SEEN},
                "image_token_index": PICTURE,
                "projection_dim": 32,
            },
        ),
        (
            "Gemma3ForConditionalGeneration",
            {
                "text_config": {**HEAD8, **_SLIDING},
                "vision_config": PATCHES,
                "image_token_index": PICTURE,
                "mm_tokens_per_image": 4,
            },
        ),
        (
            "InternVLForConditionalGeneration",
            {
                "text_config": {"model_type": "qwen2", **GROUPED},
                "vision_config": {**PATCHES, "image_size": [32, 32], "patch_size": [8, 8]},
                "image_token_id": PICTURE,
            },
        ),
    ),
    *transformers(
        "patches in text",
        (
            "Qwen2VLForConditionalGeneration",
            {
                "text_config": {**GROUPED, "rope_parameters": _TURNED},
                "vision_config": {**_MERGED, "embed_dim": 32, "hidden_size": 32},
                **_MARKED,
            },
        ),
        (
            "Qwen2_5_VLForConditionalGeneration",
            {
                "text_config": {**GROUPED, "rope_parameters": _TURNED},
                "vision_config": {
                    **_MERGED,
                    "hidden_size": 32,
                    "out_hidden_size": 32,
                    "intermediate_size": 48,
                    "window_size": 32,
                    "fullatt_block_indexes": [1],
                },
                **_MARKED,
            },
        ),
        (
            "Qwen3VLForConditionalGeneration",
            {
                "text_config": {**HEAD8, "rope_parameters": _TURNED},
                "vision_config": {
                    **_MERGED,
                    "hidden_size": 32,
                    "out_hidden_size": 32,
                    "intermediate_size": 48,
                    "num_position_embeddings": 16,
                    "deepstack_visual_indexes": [0],
                },
                **_MARKED,
            },
        ),
        resizes=False,  # the pictures' sizes are numbers that the model reads
    ),
    *transformers(
        "patches and text",
        (
            "Siglip2Model",
            {
                "text_config": {**TEXT_TOWER, "projection_size": 32, "max_position_embeddings": LENGTH},
                "vision_config": {**ENCODER, "patch_size": 8, "num_patches": 25},
            },
        ),
        modes=("inference",),
    ),
]

VISION = [
    *transformers(
        "pixels",
        ("DINOv3ViTModel", {**PATCHES, "num_register_tokens": 2, "pos_embed_rescale": None}),
        ("DINOv3ConvNextModel", {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "image_size": 32}),
        (
            "HieraForImageClassification",
            {
                "embed_dim": 8,
                "image_size": [64, 64],
                "depths": [1, 1, 1, 1],
                "num_heads": [1, 2, 4, 4],
                "masked_unit_size": [8, 8],
            },
        ),
        side=64,
    ),
    *transformers(
        "picture alone",
        (
            "DepthAnythingForDepthEstimation",
            {
                "backbone_config": {"model_type": "dinov2", **PATCHES, "out_indices": [1, 2], "reshape_hidden_states": False},
                "patch_size": 8,
                "reassemble_hidden_size": 32,
                "reassemble_factors": [2, 1],
                "neck_hidden_sizes": [8, 16],
                "fusion_hidden_size": 16,
                "head_hidden_size": 8,
            },
        ),
        (
            "DPTForDepthEstimation",
            {
                **PATCHES,
                "num_hidden_layers": 4,
                "backbone_out_indices": [0, 1, 2, 3],
                "neck_hidden_sizes": [8, 8, 16, 16],
                "fusion_hidden_size": 16,
            },
        ),
        ("DetrForObjectDetection", {**_QUERIES, "backbone_config": {**_RESNET, "out_features": ["stage4"]}}),
        (
            "RTDetrForObjectDetection",
            {
                **{k: v for k, v in _QUERIES.items() if k != "encoder_layers"},
                "backbone_config": {**_STAGES, "model_type": "rt_detr_resnet"},
                "encoder_hidden_dim": 32,
                "encoder_in_channels": [16, 24, 32],
                "decoder_in_channels": [32, 32, 32],
            },
        ),
        (
            "DeformableDetrForObjectDetection",
            {**_QUERIES, "backbone_config": _STAGES, "num_feature_levels": 3, "disable_custom_kernels": True},
        ),
        (
            "Mask2FormerForUniversalSegmentation",
            {
                "backbone_config": {
                    "model_type": "swin",
                    "image_size": 32,
                    "embed_dim": 16,
                    "depths": [1, 1, 1, 1],
                    "num_heads": [2, 2, 2, 2],
                    "window_size": 4,
                    "out_features": ["stage1", "stage2", "stage3", "stage4"],
                },
                "feature_size": 32,
                "mask_feature_size": 32,
                "hidden_dim": 32,
                "encoder_feedforward_dim": 48,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "num_attention_heads": 4,
                "dim_feedforward": 48,
                "num_queries": 5,
            },
        ),
        modes=("inference",),
    ),
    *transformers(
        "frames of a film",
        (
            "VJEPA2ForVideoClassification",
            {
                "patch_size": 8,
                "crop_size": 32,
                "frames_per_clip": 4,
                "hidden_size": 32,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "num_pooler_layers": 1,
                "pred_hidden_size": 32,
                "pred_num_attention_heads": 4,
                "pred_num_hidden_layers": 1,
            },
        ),
    ),
    *transformers(
        "points in a picture",
        (
            "Sam2Model",
            {
                "vision_config": {
                    "backbone_config": {
                        "model_type": "sam2_hiera_det_model",
                        "hidden_size": 8,
                        "image_size": [64, 64],
                        "window_positional_embedding_background_size": [4, 4],
                        "blocks_per_stage": [1, 1, 2, 1],
                        "embed_dim_per_stage": [8, 16, 32, 64],
                        "num_attention_heads_per_stage": [1, 2, 2, 4],
                        "window_size_per_stage": [4, 4, 4, 2],
                        "global_attention_blocks": [3],
                    },
                    "backbone_channel_list": [64, 32, 16, 8],
                    "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
                    "fpn_hidden_size": 16,
                },
                "prompt_encoder_config": {"hidden_size": 16, "image_size": 64, "patch_size": 16, "mask_input_channels": 4},
                "mask_decoder_config": {"hidden_size": 16, "mlp_dim": 24, "num_attention_heads": 2, "iou_head_hidden_dim": 16},
            },
        ),
        modes=("inference",),
    ),
]

_CODEC = {"hidden_size": 32, "num_filters": 4, "codebook_size": 16, "codebook_dim": 32}
SOUND = [
    *transformers(
        "spoken frames",
        (
            "ParakeetForCTC",
            {
                "vocab_size": VOCABULARY,
                "pad_token_id": 0,
                "encoder_config": {
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "intermediate_size": 48,
                    "subsampling_conv_channels": 8,
                    "num_mel_bins": 16,
                    "layerdrop": 0.0,
                },
            },
        ),
        modes=("inference",),
    ),
    *transformers(
        "spoken",
        (
            "MoonshineForConditionalGeneration",
            {
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "intermediate_size": 48,
                "encoder_num_hidden_layers": 2,
                "decoder_num_hidden_layers": 2,
                "encoder_num_attention_heads": 4,
                "decoder_num_attention_heads": 4,
                "pad_token_id": 0,
            },
        ),
    ),
    *transformers(
        "sound",
        (
            "MimiModel",
            {
                **_CODEC,
                "upsampling_ratios": [4, 4],
                "num_quantizers": 4,
                "vector_quantization_hidden_dimension": 16,
                "codebook_dim": 16,
                "upsample_groups": 32,
                "num_hidden_layers": 2,
                "intermediate_size": 48,
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "sliding_window": 8,
            },
        ),
        ("EncodecModel", {**_CODEC, "upsampling_ratios": [4, 4], "num_lstm_layers": 1, "target_bandwidths": [24.0]}),
        (
            "DacModel",
            {
                "encoder_hidden_size": 8,
                "downsampling_ratios": [4, 4],
                "decoder_hidden_size": 32,
                "n_codebooks": 4,
                "codebook_size": 16,
            },
        ),
        modes=("inference",),
    ),
    *transformers(
        "causal",
        (
            "MoshiForCausalLM",
            {**DECODER, "ffn_dim": 48, "audio_vocab_size": 16, "num_codebooks": 2, "sliding_window": 8},
        ),
    ),
]

SERIES = transformers(
    "series",
    (
        "PatchTSMixerForPrediction",
        {"num_input_channels": 3, "context_length": 32, "d_model": 16, "num_layers": 2, "prediction_length": 8, "dropout": 0.1},
    ),
)

RECENT = [*DECODERS, *ENCODERS_AND_DECODERS, *PICTURES_IN_TEXT, *VISION, *SOUND, *SERIES]
