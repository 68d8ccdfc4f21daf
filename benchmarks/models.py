"""MODELS and MORE_MODELS: name -> how to build a model and its inputs, small for two CPU cores and full size for a GPU.

Weights are random and dropout is off, so that every system computes the same function and errors can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.torchvision_on_cpu import torchvision_models

Built = tuple[torch.nn.Module, dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How large a run is: layers of a transformer, batch, sequence length or image side, and width."""

    batch: int
    length: int
    layers: int = 4
    width: int = 256


def _transformer(config_name: str, model_name: str, settings: Callable[[Size], dict[str, Any]]) -> Callable[[Size], Built]:
    def build(size: Size) -> Built:
        torchvision_models()  # transformers looks for torchvision, which cannot be imported before this
        import transformers

        config = getattr(transformers, config_name)(**settings(size))
        model = getattr(transformers, model_name)(config)
        ids = torch.randint(0, config.vocab_size, (size.batch, size.length))
        return model, {"input_ids": ids}

    return build


def _vision(name: str, **settings: Any) -> Callable[[Size], Built]:
    def build(size: Size) -> Built:
        models = torchvision_models()
        extra = {"image_size": size.length} if name.startswith("vit") else {}
        model = getattr(models, name)(weights=None, **settings, **extra)
        for module in model.modules():
            if type(module).__name__ == "StochasticDepth":
                module.p = 0.0  # swin takes no such argument
        if name.startswith("vit"):
            torch.nn.init.normal_(model.heads.head.weight)  # it starts as zeros, and so would every result
        return model, {"x": torch.randn(size.batch, 3, size.length, size.length)}

    return build


_gpt2 = _transformer(
    "GPT2Config",
    "GPT2LMHeadModel",
    lambda s: dict(
        n_layer=s.layers, n_embd=s.width, n_head=s.width // 64, vocab_size=8192 if s.width < 768 else 50257,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    ),
)  # fmt: skip
_bert = _transformer(
    "BertConfig",
    "BertForMaskedLM",
    lambda s: dict(
        num_hidden_layers=s.layers, hidden_size=s.width, num_attention_heads=s.width // 64, intermediate_size=4 * s.width,
        vocab_size=8192 if s.width < 768 else 30522, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ),
)  # fmt: skip
_llama = _transformer(
    "LlamaConfig",
    "LlamaForCausalLM",
    lambda s: dict(
        num_hidden_layers=s.layers, hidden_size=s.width, num_attention_heads=s.width // 64,
        num_key_value_heads=max(1, s.width // 128), intermediate_size=s.width * 11 // 4,
        vocab_size=8192 if s.width < 768 else 32000, use_cache=False,
    ),
)  # fmt: skip


def _t5(size: Size) -> Built:
    torchvision_models()
    import transformers

    vocabulary = 8192 if size.width < 768 else 32128
    config = transformers.T5Config(
        vocab_size=vocabulary, num_layers=size.layers, num_decoder_layers=size.layers, d_model=size.width, d_kv=64,
        num_heads=size.width // 64, d_ff=4 * size.width, dropout_rate=0.0, use_cache=False, feed_forward_proj="gated-gelu",
    )  # fmt: skip
    ids = [torch.randint(0, vocabulary, (size.batch, size.length)) for _ in range(2)]
    return transformers.T5ForConditionalGeneration(config), {"input_ids": ids[0], "decoder_input_ids": ids[1]}


def _whisper(size: Size) -> Built:
    torchvision_models()
    import transformers

    config = transformers.WhisperConfig(
        d_model=size.width, encoder_layers=size.layers, decoder_layers=size.layers, encoder_attention_heads=size.width // 64,
        decoder_attention_heads=size.width // 64, encoder_ffn_dim=4 * size.width, decoder_ffn_dim=4 * size.width,
        max_source_positions=size.length, dropout=0.0, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, config.vocab_size, (size.batch, 128))
    return transformers.WhisperForConditionalGeneration(config), {
        "input_features": torch.randn(size.batch, config.num_mel_bins, 2 * size.length),
        "decoder_input_ids": ids,
    }


def _timm(name: str) -> Callable[[Size], Built]:
    def build(size: Size) -> Built:
        torchvision_models()
        import timm

        model = timm.create_model(name, pretrained=False)
        torch.nn.init.normal_(model.get_classifier().weight, std=0.02)  # some start as zeros, and so would every result
        return model, {"x": torch.randn(size.batch, 3, size.length, size.length)}

    return build


_qwen2 = _transformer(
    "Qwen2Config",
    "Qwen2ForCausalLM",
    lambda s: dict(
        num_hidden_layers=s.layers, hidden_size=s.width, num_attention_heads=s.width // 64,
        num_key_value_heads=max(1, s.width // 256), intermediate_size=s.width * 5, vocab_size=8192 if s.width < 768 else 151936,
        use_cache=False, tie_word_embeddings=True,
    ),
)  # fmt: skip
_opt = _transformer(
    "OPTConfig",
    "OPTForCausalLM",
    lambda s: dict(
        num_hidden_layers=s.layers, hidden_size=s.width, word_embed_proj_dim=s.width, num_attention_heads=s.width // 64,
        ffn_dim=4 * s.width, vocab_size=8192 if s.width < 768 else 50272, dropout=0.0, use_cache=False,
    ),
)  # fmt: skip
_deberta = _transformer(
    "DebertaV2Config",
    "DebertaV2ForMaskedLM",
    lambda s: dict(
        num_hidden_layers=s.layers, hidden_size=s.width, num_attention_heads=s.width // 64, intermediate_size=4 * s.width,
        vocab_size=8192 if s.width < 768 else 128100, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
    ),
)  # fmt: skip


def _clip(size: Size) -> Built:
    torchvision_models()
    import transformers

    shared = dict(
        hidden_size=size.width, intermediate_size=4 * size.width, num_hidden_layers=size.layers,
        num_attention_heads=size.width // 64, projection_dim=size.width, attention_dropout=0.0,
    )  # fmt: skip
    config = transformers.CLIPConfig(text_config=shared, vision_config={**shared, "patch_size": 16}, projection_dim=size.width)
    ids = torch.randint(0, 40000, (size.batch, 77))
    return _Logits(transformers.CLIPModel(config)), {
        "input_ids": ids,
        "pixel_values": torch.randn(size.batch, 3, size.length, size.length),
    }


class _Logits(torch.nn.Module):
    """A model of two towers whose result is the product of both, images by texts."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(**inputs).logits_per_image
        return found


def _wav2vec2(size: Size) -> Built:
    torchvision_models()
    import transformers

    config = transformers.Wav2Vec2Config(
        hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=size.width // 64, intermediate_size=4 * size.width,
        hidden_dropout=0.0, activation_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0, final_dropout=0.0, layerdrop=0.0,
        apply_spec_augment=False,
    )  # fmt: skip
    return transformers.Wav2Vec2ForCTC(config), {"input_values": torch.randn(size.batch, size.length)}


@dataclass(frozen=True)
class Model:
    """One row of MODELS."""

    build: Callable[[Size], Built]
    small: Size
    full: Size


_IMAGE = Size(4, 224), Size(64, 224)
_TEXT = Size(4, 128), Size(16, 512, 12, 768)
MODELS: Mapping[str, Model] = {
    "gpt2": Model(_gpt2, Size(4, 128), Size(16, 1024, 12, 768)),
    "bert": Model(_bert, Size(4, 128), Size(32, 512, 12, 768)),
    "llama": Model(_llama, Size(4, 128), Size(8, 1024, 12, 1024)),
    "resnet18": Model(_vision("resnet18"), *_IMAGE),
    "resnet50": Model(_vision("resnet50"), Size(2, 224), Size(64, 224)),
    "vit": Model(_vision("vit_b_16", dropout=0.0), Size(1, 224), Size(64, 224)),
    "mobilenetv3": Model(_vision("mobilenet_v3_large", dropout=0.0), *_IMAGE),
    "t5": Model(_t5, Size(4, 128), Size(16, 512, 12, 768)),
    "whisper": Model(_whisper, Size(2, 128), Size(8, 1500, 12, 768)),
    "swin": Model(_vision("swin_t"), Size(1, 224), Size(64, 224)),
    "efficientnet": Model(_vision("efficientnet_b0", stochastic_depth_prob=0.0, dropout=0.0), Size(2, 224), Size(64, 224)),
    "convnext": Model(_vision("convnext_tiny", stochastic_depth_prob=0.0), Size(1, 224), Size(64, 224)),
}
MORE_MODELS: Mapping[str, Model] = {
    "mobilevit": Model(_timm("mobilevit_s"), Size(2, 256), Size(64, 256)),
    "regnety": Model(_timm("regnety_008"), Size(2, 224), Size(64, 224)),
    "mixer": Model(_timm("mixer_s16_224"), Size(2, 224), Size(64, 224)),
    "densenet": Model(_timm("densenet121"), Size(1, 224), Size(64, 224)),
    "poolformer": Model(_timm("poolformer_s12"), Size(2, 224), Size(64, 224)),
    "qwen2": Model(_qwen2, *_TEXT),
    "opt": Model(_opt, *_TEXT),
    "deberta": Model(_deberta, *_TEXT),
    "clip": Model(_clip, Size(4, 224), Size(64, 224, 12, 768)),
    "wav2vec2": Model(_wav2vec2, Size(1, 16000), Size(16, 80000, 12, 768)),
}
"""Nobody tuned for these: what is won on MODELS ought to be won here."""


def names_of(models: str) -> list[str]:
    """What a command was given: names with commas between them, "all" for MODELS, "more" for MORE_MODELS."""
    names = list({"all": MODELS, "more": MORE_MODELS}.get(models) or models.split(","))
    if unknown := [name for name in names if name not in MODELS and name not in MORE_MODELS]:
        raise ValueError(f"no model is called {', '.join(unknown)}: there are {', '.join([*MODELS, *MORE_MODELS])}, all and more")
    return names


def build(name: str, scale: str, device: str, dtype: torch.dtype, training: bool, batch: int | None = None) -> Built:
    """Model and keyword inputs of MODELS[name] or MORE_MODELS[name], seeded, on `device`; floating inputs and weights in `dtype`.

    `scale` is "small", "full", or "single": the full model on a batch of one. `batch`, if it is given, takes the place of the row's.
    """
    torch.manual_seed(0)
    row = {**MODELS, **MORE_MODELS}[name]
    size = {"small": row.small, "full": row.full, "single": replace(row.full, batch=1)}[scale]
    model, inputs = row.build(replace(size, batch=batch or size.batch))
    model = model.to(device=device, dtype=dtype).train(training)
    moved = {k: v.to(device=device, dtype=dtype if v.is_floating_point() else v.dtype) for k, v in inputs.items()}
    return model, moved


def output_tensor(output: Any) -> torch.Tensor:
    """The tensor that errors and losses are taken of: logits, or the output itself."""
    return getattr(output, "logits", output)
