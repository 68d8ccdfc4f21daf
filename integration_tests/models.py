"""MODELS: small real models with random weights, as name -> (module, keyword inputs)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

from benchmarks.torchvision_on_cpu import torchvision_models

torchvision_models()  # transformers looks for torchvision, which cannot be imported before this
Built = tuple[torch.nn.Module, dict[str, Any]]


def _ids(vocabulary: int, batch: int = 2, length: int = 16) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def gpt2(dropout: float = 0.0) -> Built:
    """Two layers of GPT-2."""
    config = transformers.GPT2Config(
        n_layer=2,
        n_embd=64,
        n_head=4,
        vocab_size=128,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        use_cache=False,
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": _ids(128)}


def bert(dropout: float = 0.0) -> Built:
    """Two layers of BERT with the masked-language head."""
    config = transformers.BertConfig(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=128,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return transformers.BertForMaskedLM(config), {"input_ids": _ids(128)}


def llama(dropout: float = 0.0) -> Built:
    """Two layers of Llama with grouped key and value heads."""
    config = transformers.LlamaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=128,
        attention_dropout=dropout,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": _ids(128)}


def _vision(name: str, side: int, **settings: Any) -> Built:
    model = getattr(torchvision_models(), name)(weights=None, num_classes=10, **settings)
    return model, {"x": torch.randn(2, 3, side, side)}


def resnet18() -> Built:
    """torchvision's ResNet-18."""
    return _vision("resnet18", 64)


def vit() -> Built:
    """torchvision's vision transformer, two layers."""
    model = torchvision_models().VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10
    )
    torch.nn.init.normal_(model.heads.head.weight)  # it starts as zeros, and so would every result
    return model, {"x": torch.randn(2, 3, 32, 32)}


def convnext() -> Built:
    """torchvision's ConvNeXt, two blocks."""
    networks = torchvision_models().convnext
    blocks = [networks.CNBlockConfig(32, 64, 1), networks.CNBlockConfig(64, None, 1)]
    return networks.ConvNeXt(blocks, layer_scale=0.5, num_classes=10), {"x": torch.randn(2, 3, 32, 32)}


MODELS: Mapping[str, Callable[[], Built]] = {
    "gpt2": gpt2,
    "bert": bert,
    "llama": llama,
    "resnet18": resnet18,
    "vit": vit,
    "convnext": convnext,
}


def output_tensor(output: Any) -> torch.Tensor:
    """The tensor that is compared: logits, or the output itself."""
    return getattr(output, "logits", output)
