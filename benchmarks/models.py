"""MODELS: name -> how to build a model and its inputs, small for two CPU cores and full size for a GPU.

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


@dataclass(frozen=True)
class Model:
    """One row of MODELS."""

    build: Callable[[Size], Built]
    small: Size
    full: Size


_IMAGE = Size(4, 224), Size(64, 224)
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


def build(name: str, scale: str, device: str, dtype: torch.dtype, training: bool) -> Built:
    """Model and keyword inputs of MODELS[name], seeded, on `device`; floating inputs and weights in `dtype`.

    `scale` is "small", "full", or "single": the full model on a batch of one.
    """
    torch.manual_seed(0)
    row = MODELS[name]
    model, inputs = row.build({"small": row.small, "full": row.full, "single": replace(row.full, batch=1)}[scale])
    model = model.to(device=device, dtype=dtype).train(training)
    moved = {k: v.to(device=device, dtype=dtype if v.is_floating_point() else v.dtype) for k, v in inputs.items()}
    return model, moved


def output_tensor(output: Any) -> torch.Tensor:
    """The tensor that errors and losses are taken of: logits, or the output itself."""
    return getattr(output, "logits", output)
