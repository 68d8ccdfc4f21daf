"""RECORDS: the architectures, as data. A record is a name, a library, how to build the model and what to call it with."""

from __future__ import annotations

from collections.abc import Mapping

from .recent import RECENT
from .record import (
    D_MODEL,
    DECODER,
    EMBEDDED,
    ENCODER,
    EXPERTS,
    GROUPED,
    HEAD8,
    IMAGE_TOWER,
    LATENT_HEADS,
    LENGTH,
    N_EMBD,
    PATCHES,
    SEQ2SEQ,
    SOUND_TOWER,
    SPEECH,
    TEXT_TOWER,
    VOCABULARY,
    Record,
    transformers,
)

TRANSFORMERS = [
    *transformers(
        "tokens",
        ("BertForMaskedLM", ENCODER),
        ("RobertaForMaskedLM", ENCODER),
        ("CamembertForMaskedLM", ENCODER),
        ("DistilBertForMaskedLM", {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
        ("AlbertForMaskedLM", EMBEDDED),
        ("MPNetForMaskedLM", ENCODER),
        ("DebertaForMaskedLM", {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
        ("DebertaV2ForMaskedLM", {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}),
        ("SqueezeBertForMaskedLM", {**ENCODER, "embedding_size": 32, "intermediate_size": 64}),
        ("ConvBertForMaskedLM", {**ENCODER, "embedding_size": 32, "hidden_size": 64}),
        ("MobileBertForMaskedLM", {**ENCODER, "embedding_size": 32, "intra_bottleneck_size": 16}),
        ("FNetForMaskedLM", {k: v for k, v in ENCODER.items() if k != "num_attention_heads"}),
        ("RoFormerForMaskedLM", EMBEDDED),
        (
            "ModernBertForMaskedLM",
            {**ENCODER, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        ),
        ("LayoutLMForMaskedLM", ENCODER),
        ("NystromformerForMaskedLM", {**ENCODER, "num_landmarks": LENGTH, "segment_means_seq_len": LENGTH}),
        ("EsmForMaskedLM", {**ENCODER, "pad_token_id": 0, "mask_token_id": 3, "position_embedding_type": "rotary"}),
        ("XLNetLMHeadModel", {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
        (
            "FunnelForMaskedLM",
            {"vocab_size": VOCABULARY, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48},
        ),
        ("LongformerForMaskedLM", {**ENCODER, "attention_window": 8}),
        ("BigBirdForMaskedLM", {**ENCODER, "attention_type": "original_full"}),
        ("XmodForMaskedLM", {**ENCODER, "languages": ["en_XX"], "default_language": "en_XX"}),
        ("IBertForMaskedLM", ENCODER),
    ),
    *transformers("pair", ("ElectraForPreTraining", EMBEDDED), ("BertForSequenceClassification", ENCODER)),
    *transformers(
        "causal",
        ("GPT2LMHeadModel", N_EMBD),
        (
            "GPTNeoForCausalLM",
            {
                "hidden_size": 32,
                "num_layers": 2,
                "num_heads": 4,
                "attention_types": [[["global", "local"], 1]],
                "vocab_size": VOCABULARY,
                "window_size": 8,
                "max_position_embeddings": 64,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
        ),
        ("GPTNeoXForCausalLM", DECODER),
        ("GPTJForCausalLM", {**N_EMBD, "rotary_dim": 4}),
        ("CodeGenForCausalLM", {**N_EMBD, "rotary_dim": 4}),
        ("OPTForCausalLM", {**DECODER, "ffn_dim": 48, "word_embed_proj_dim": 32}),
        ("BloomForCausalLM", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
        ("MptForCausalLM", {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
        ("FalconForCausalLM", DECODER),
        ("LlamaForCausalLM", GROUPED),
        ("MistralForCausalLM", {**HEAD8, "sliding_window": 8}),
        ("Qwen2ForCausalLM", GROUPED),
        ("Qwen3ForCausalLM", HEAD8),
        ("GemmaForCausalLM", HEAD8),
        ("Gemma2ForCausalLM", {**HEAD8, "sliding_window": 8}),
        ("Gemma3ForCausalLM", {**HEAD8, "sliding_window": 8}),
        ("PhiForCausalLM", GROUPED),
        ("Phi3ForCausalLM", GROUPED),
        ("OlmoForCausalLM", GROUPED),
        ("Olmo2ForCausalLM", GROUPED),
        ("CohereForCausalLM", GROUPED),
        ("StableLmForCausalLM", GROUPED),
        ("Starcoder2ForCausalLM", GROUPED),
        ("GraniteForCausalLM", GROUPED),
        ("SmolLM3ForCausalLM", GROUPED),
        ("GlmForCausalLM", HEAD8),
        ("NemotronForCausalLM", HEAD8),
        (
            "XGLMForCausalLM",
            {
                "vocab_size": VOCABULARY,
                "d_model": 32,
                "ffn_dim": 48,
                "num_layers": 2,
                "attention_heads": 4,
                "max_position_embeddings": 64,
                "layerdrop": 0.0,
            },
        ),
        ("BioGptForCausalLM", {**DECODER, "layerdrop": 0.0}),
        ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}),
        ("Qwen2MoeForCausalLM", {**EXPERTS, "shared_expert_intermediate_size": 24}),
        ("Qwen3MoeForCausalLM", {**EXPERTS, "head_dim": 8}),
        ("OlmoeForCausalLM", {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
        ("DeepseekV3ForCausalLM", {**DECODER, "num_key_value_heads": 4, **LATENT_HEADS}),
        ("GptOssForCausalLM", {**HEAD8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}),
        ("MambaForCausalLM", {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
        (
            "Mamba2ForCausalLM",
            {
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "state_size": 8,
                "num_heads": 8,
                "head_dim": 8,
                "n_groups": 2,
                "chunk_size": 8,
            },
        ),
        (
            "RwkvForCausalLM",
            {
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "attention_hidden_size": 32,
                "num_hidden_layers": 2,
                "context_length": 32,
            },
        ),
    ),
    *transformers(
        "translation",
        ("T5ForConditionalGeneration", D_MODEL),
        ("MT5ForConditionalGeneration", D_MODEL),
        (
            "SwitchTransformersForConditionalGeneration",
            {**D_MODEL, "num_experts": 4, "expert_capacity": 16, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
        ),
        ("BartForConditionalGeneration", SEQ2SEQ),
        ("MBartForConditionalGeneration", SEQ2SEQ),
        ("PegasusForConditionalGeneration", SEQ2SEQ),
        ("BlenderbotForConditionalGeneration", SEQ2SEQ),
        ("M2M100ForConditionalGeneration", {**SEQ2SEQ, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}),
        ("MarianMTModel", {**SEQ2SEQ, "decoder_vocab_size": VOCABULARY}),
        (
            "LEDForConditionalGeneration",
            {**SEQ2SEQ, "attention_window": 8, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
        ),
    ),
    *transformers(
        "pixels",
        ("ViTForImageClassification", PATCHES),
        ("DeiTForImageClassification", PATCHES),
        ("BeitForImageClassification", {**PATCHES, "use_relative_position_bias": True}),
        ("Dinov2ForImageClassification", PATCHES),
        (
            "SwinForImageClassification",
            {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        ),
        (
            "Swinv2ForImageClassification",
            {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        ),
        ("ConvNextForImageClassification", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}),
        ("ConvNextV2ForImageClassification", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}),
        ("ResNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}),
        ("RegNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4}),
        ("SegformerForImageClassification", {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16}),
        ("MobileNetV2ForImageClassification", {"depth_multiplier": 0.25, "image_size": 32}),
        ("PoolFormerForImageClassification", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
        (
            "PvtForImageClassification",
            {"image_size": 32, "hidden_sizes": [8, 16, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 4, 4]},
        ),
    ),
    *transformers(
        "image only",
        (
            "ViTMAEForPreTraining",
            {
                **PATCHES,
                "decoder_hidden_size": 16,
                "decoder_num_hidden_layers": 1,
                "decoder_num_attention_heads": 2,
                "decoder_intermediate_size": 24,
            },
        ),
    ),
    *transformers(
        "wave",
        ("Wav2Vec2ForCTC", SPEECH),
        ("HubertForCTC", SPEECH),
        ("WavLMForCTC", SPEECH),
    ),
    *transformers(
        "spectrum",
        ("ASTForAudioClassification", {**PATCHES, "max_length": 32, "num_mel_bins": 32, "frequency_stride": 8, "time_stride": 8}),
    ),
    *transformers(
        "mel",
        (
            "WhisperForConditionalGeneration",
            {
                **SEQ2SEQ,
                "num_mel_bins": 16,
                "max_source_positions": 16,
                "max_target_positions": 32,
                "begin_suppress_tokens": None,
                "suppress_tokens": None,
            },
        ),
    ),
    *transformers(
        "image and text",
        ("CLIPModel", {"text_config": TEXT_TOWER, "vision_config": IMAGE_TOWER, "projection_dim": 16}),
        (
            "SiglipModel",
            {
                "text_config": {**TEXT_TOWER, "projection_size": 32, "max_position_embeddings": LENGTH},
                "vision_config": IMAGE_TOWER,
            },
        ),
    ),
    *transformers(
        "series",
        (
            "PatchTSTForPrediction",
            {
                "num_input_channels": 3,
                "context_length": 32,
                "patch_length": 8,
                "patch_stride": 8,
                "num_hidden_layers": 2,
                "d_model": 32,
                "num_attention_heads": 4,
                "ffn_dim": 48,
                "prediction_length": 8,
            },
        ),
    ),
    *transformers("speech", ("Wav2Vec2ForSequenceClassification", SPEECH), ("Data2VecAudioForSequenceClassification", SPEECH)),
    *transformers("spectrogram", ("ClapAudioModelWithProjection", SOUND_TOWER)),
    *transformers(
        "points",
        (
            "SamModel",
            {
                "vision_config": {
                    **PATCHES,
                    "image_size": 64,
                    "output_channels": 16,
                    "window_size": 4,
                    "global_attn_indexes": [1],
                    "num_pos_feats": 8,
                },
                "prompt_encoder_config": {"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4},
                "mask_decoder_config": {
                    "hidden_size": 16,
                    "mlp_dim": 24,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 2,
                    "iou_head_hidden_dim": 16,
                },
            },
        ),
    ),
    *transformers(
        "boxes",
        (
            "YolosForObjectDetection",
            {**PATCHES, "image_size": [32, 32], "num_detection_tokens": 5, "num_labels": 3, "use_mid_position_embeddings": True},
        ),
    ),
    *transformers(
        "image and text",
        (
            "BlipForImageTextRetrieval",
            {
                "text_config": {**TEXT_TOWER, "encoder_hidden_size": 32, "sep_token_id": 2},
                "vision_config": IMAGE_TOWER,
                "projection_dim": 16,
                "image_text_hidden_size": 16,
            },
        ),
    ),
    *transformers(
        "generate",
        ("LlamaForCausalLM", GROUPED),
        ("GPT2LMHeadModel", N_EMBD),
        ("Qwen3ForCausalLM", HEAD8),
        ("MistralForCausalLM", {**HEAD8, "sliding_window": 8}),
        ("Gemma3ForCausalLM", {**HEAD8, "sliding_window": 8}),
        ("GPTNeoXForCausalLM", DECODER),
        ("OPTForCausalLM", {**DECODER, "ffn_dim": 48, "word_embed_proj_dim": 32}),
        ("Phi3ForCausalLM", GROUPED),
        ("T5ForConditionalGeneration", D_MODEL),
        ("BartForConditionalGeneration", SEQ2SEQ),
        modes=("generate",),
    ),
]

TIMM = [
    Record(f"timm/{name}", "timm", name, {"num_classes": 10, **settings}, "image", side=side)
    for name, side, settings in (
        ("resnet18", 64, {}),
        ("resnetv2_50", 64, {"layers": (1, 1, 1, 1)}),
        ("seresnet50", 64, {"layers": (1, 1, 1, 1)}),
        ("resnext50_32x4d", 64, {"layers": (1, 1, 1, 1)}),
        ("res2net50_26w_4s", 64, {"layers": (1, 1, 1, 1)}),
        ("skresnet18", 128, {}),  # at 64 a batch norm normalises two numbers, whose gradient is rounding alone
        ("densenet121", 64, {"block_config": (2, 2, 2, 2)}),
        ("efficientnet_b0", 64, {}),
        ("tf_efficientnetv2_b0", 64, {}),
        ("mobilenetv3_small_100", 64, {}),
        ("mobilenetv4_conv_small", 64, {}),
        ("mnasnet_100", 64, {}),
        ("ghostnet_100", 64, {}),
        ("regnety_002", 64, {}),
        ("repvgg_a0", 64, {}),
        ("nfnet_l0", 64, {}),
        ("rexnet_100", 64, {}),
        ("inception_next_tiny", 64, {"depths": (1, 1, 1, 1)}),
        ("convnext_atto", 64, {"depths": (1, 1, 1, 1)}),
        ("convnextv2_atto", 64, {"depths": (1, 1, 1, 1)}),
        ("vit_tiny_patch16_224", 32, {"img_size": 32, "depth": 2}),
        ("deit_tiny_patch16_224", 32, {"img_size": 32, "depth": 2}),
        ("eva02_tiny_patch14_224", 28, {"img_size": 28, "depth": 2}),
        ("beit_base_patch16_224", 32, {"img_size": 32, "depth": 2, "embed_dim": 48, "num_heads": 4}),
        ("cait_xxs24_224", 32, {"img_size": 32, "depth": 2}),
        ("swin_tiny_patch4_window7_224", 56, {"img_size": 56, "depths": (2, 2), "num_heads": (2, 4), "embed_dim": 32}),
        ("mixer_s32_224", 64, {"img_size": 64}),
        ("gmlp_ti16_224", 32, {"img_size": 32}),
        ("resmlp_12_224", 32, {"img_size": 32}),
        ("poolformer_s12", 64, {}),
        ("pvt_v2_b0", 64, {"depths": (1, 1, 1, 1)}),
        ("xcit_nano_12_p16_224", 32, {"img_size": 32, "depth": 2}),
        ("edgenext_xx_small", 64, {"depths": (1, 1, 1, 1)}),
        ("mobilevit_xxs", 64, {}),
        ("convmixer_768_32", 64, {}),
        ("crossvit_tiny_240", 240, {"depth": ((1, 1, 0),)}),
        ("levit_128s", 64, {"img_size": 64}),
        ("efficientformer_l1", 224, {"depths": (1, 1, 1, 2)}),
        ("maxvit_pico_rw_256", 64, {"img_size": 64}),
        ("coat_tiny", 64, {"img_size": 64}),
        ("swinv2_cr_tiny_224", 56, {"img_size": 56, "depths": (2, 2), "num_heads": (2, 4), "embed_dim": 32}),
        ("twins_svt_small", 64, {"img_size": 64, "depths": (1, 1, 1, 1)}),
        ("focalnet_tiny_srf", 64, {}),
        ("hrnet_w18_small", 64, {}),
        ("nest_tiny", 64, {"img_size": 64}),
        ("mvitv2_tiny", 64, {"img_size": 64}),
        ("davit_tiny", 64, {"depths": (1, 1, 1, 1)}),
        ("halonet26t", 256, {}),
        ("fastvit_t8", 64, {"layers": (1, 1, 1, 1)}),
    )
]

TORCHVISION = [
    Record(f"torchvision/{name}", "torchvision", name, {"num_classes": 10, **settings}, "image", modes=modes, side=side)
    for name, side, settings, modes in (
        ("resnet50", 64, {}, ("inference", "training")),
        ("wide_resnet50_2", 64, {}, ("inference",)),
        ("vgg11_bn", 32, {}, ("inference",)),
        ("alexnet", 64, {}, ("inference",)),
        ("squeezenet1_1", 64, {}, ("inference", "training")),
        ("densenet121", 64, {}, ("inference",)),
        ("googlenet", 64, {"init_weights": False}, ("inference", "training")),
        ("inception_v3", 96, {"init_weights": False, "aux_logits": False}, ("inference",)),
        ("shufflenet_v2_x0_5", 64, {}, ("inference", "training")),
        ("mobilenet_v2", 64, {}, ("inference", "training")),
        ("mobilenet_v3_small", 64, {}, ("inference", "training")),
        ("efficientnet_b0", 64, {}, ("inference",)),
        ("mnasnet0_5", 64, {}, ("inference",)),
        ("regnet_y_400mf", 64, {}, ("inference",)),
        ("convnext_tiny", 32, {}, ("inference",)),
        ("swin_t", 64, {}, ("inference",)),
        ("swin_v2_t", 64, {}, ("inference",)),
        ("maxvit_t", 224, {}, ("inference",)),
    )
]

_BARE = {"num_classes": 4, "weights_backbone": None}
TORCHVISION += [
    Record(f"torchvision/{name}", "torchvision", name, settings, inputs, modes=modes, side=64)
    for name, inputs, settings, modes in (
        ("detection.retinanet_resnet50_fpn", "targets", {**_BARE, "min_size": 64}, ("training",)),
        ("detection.ssdlite320_mobilenet_v3_large", "targets", _BARE, ("training",)),
        ("segmentation.lraspp_mobilenet_v3_large", "segmented", _BARE, ("inference", "training")),
        ("optical_flow.raft_small", "frames", {}, ("inference",)),
    )
]

DIFFUSERS = [
    Record(f"diffusers/{build}", "diffusers", build, settings, inputs)
    for build, inputs, settings in (
        (
            "UNet2DConditionModel",
            "denoising",
            {
                "sample_size": 8,
                "block_out_channels": (16, 32),
                "layers_per_block": 1,
                "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
                "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
                "cross_attention_dim": 16,
                "attention_head_dim": 4,
                "norm_num_groups": 4,
            },
        ),
        (
            "AutoencoderKL",
            "latent image",
            {
                "block_out_channels": (8, 16),
                "down_block_types": ("DownEncoderBlock2D",) * 2,
                "up_block_types": ("UpDecoderBlock2D",) * 2,
                "norm_num_groups": 4,
            },
        ),
        (
            "DiTTransformer2DModel",
            "denoising of classes",
            {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "num_layers": 2, "sample_size": 8},
        ),
    )
]


def _keyed(records: list[Record]) -> dict[str, Record]:
    """By name; a second record of one class carries its input's kind."""
    table: dict[str, Record] = {}
    for record in records:
        table[record.name if record.name not in table else f"{record.name}/{record.inputs}"] = record
    return table


RECORDS: Mapping[str, Record] = _keyed([*TRANSFORMERS, *RECENT, *TIMM, *TORCHVISION, *DIFFUSERS])
