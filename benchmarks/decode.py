"""Decoding: milliseconds a token of language models with a static cache, batch of one, each system in a process of its own.

`python -m benchmarks --decode` is the table; `python -m benchmarks.decode JSON` is one measurement and prints one JSON line. A step takes a
token and gives the most likely next one; its model, cache and arg-max are compiled as one function. Eager is measured in the same process,
in turns, with a cache of its own. The limit is what the weights' bytes alone take at the bandwidth that a copy of 1 GiB shows there.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch import nn

from benchmarks.torchvision_on_cpu import torchvision_models
from benchmarks.worker import DTYPES, compiler, relative_error, timed

PROMPT = 64
BLOCK = 16
"""Tokens between two changes of turn."""
SYSTEMS = (
    ("torch.compile", None),
    ("torch.compile", "reduce-overhead"),
    ("tracework", None),
    ("tracework", "reduce-overhead"),
)
CAUSAL: Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama-1b": (
        "Llama",
        dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
             vocab_size=128256, head_dim=64, max_position_embeddings=131072, rope_theta=500000.0, tie_word_embeddings=True),
        dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1024, head_dim=64),
    ),
    "llama-8b": (
        "Llama",
        dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
             vocab_size=128256, head_dim=128, max_position_embeddings=131072, rope_theta=500000.0),
        dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1024, head_dim=64),
    ),
    "llama-125m": (
        "Llama",
        dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=16, num_attention_heads=12, num_key_value_heads=4,
             vocab_size=32000, head_dim=64, max_position_embeddings=8192),
        dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1024, head_dim=32),
    ),
    "qwen-0.5b": (
        "Qwen2",
        dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
             vocab_size=151936, max_position_embeddings=32768, tie_word_embeddings=True),
        dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1024),
    ),
    "gpt2": (
        "GPT2",
        dict(n_layer=12, n_embd=768, n_head=12, n_positions=8192, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
        dict(n_layer=2, n_embd=128, n_head=4, vocab_size=1024, n_positions=8192, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    ),
}  # fmt: skip
"""name -> (what transformers calls the architecture, the full configuration, a small one for a CPU)"""
T5_SIZES = dict(
    d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12, vocab_size=32128, dropout_rate=0.0
)
T5_SMALL = dict(
    d_model=128, d_kv=32, d_ff=256, num_layers=2, num_decoder_layers=2, num_heads=4, vocab_size=1024, dropout_rate=0.0
)
WHISPER_SIZES = dict(
    d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072,
    decoder_ffn_dim=3072, max_target_positions=8192,
)  # fmt: skip
WHISPER_SMALL = dict(
    d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256,
    decoder_ffn_dim=256, max_target_positions=8192, vocab_size=1024, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
)  # fmt: skip
MODELS = (*CAUSAL, "llama-1b-int8", "llama-125m-int8", "t5-base", "whisper-small")


class Int8Linear(nn.Module):
    """A linear layer whose weights are int8 buffers with a scale for each output, dequantised in its forward."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1, keepdim=True).float() / 127
        self.register_buffer("weight", (weight.float() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.to(weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale)


@dataclass
class Decoder:
    """A model, what its calls get beside a token, and how its cache is made."""

    model: nn.Module
    arguments: dict[str, Any]
    token_name: str
    new_cache: Callable[[], Any]

    def bytes_read(self) -> int:
        """Of weights that one token needs: all but tables that are only looked into, and an encoder."""
        looked_up = {id(m.weight) for m in self.model.modules() if isinstance(m, nn.Embedding)}
        products = {id(m.weight) for m in self.model.modules() if isinstance(m, (nn.Linear, Int8Linear))}
        encoder = (
            {id(p) for p in getattr(self.model, "get_encoder", nn.Module)().parameters()}
            if self.token_name != "input_ids"
            else set()
        )
        found = {id(t): t for t in (*self.model.parameters(), *self.model.buffers())}
        return sum(
            t.nbytes
            for key, t in found.items()
            if key not in encoder - products and not (key in looked_up and key not in products)
        )

    def step_of(self, compile_function: Callable[[Any], Any]) -> tuple[Callable[[torch.Tensor], torch.Tensor], Any]:
        """(token -> next token and logits, its cache with the prompt in it)."""
        cache = self.new_cache()

        def step(token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits = self.model(**{self.token_name: token}, past_key_values=cache, use_cache=True, **self.arguments).logits[:, -1]
            return logits.argmax(-1, keepdim=True), logits

        step(self.prompt())
        return compile_function(step), cache

    def prompt(self) -> torch.Tensor:
        """The same for every system."""
        device = next(self.model.parameters()).device
        generator = torch.Generator().manual_seed(1)
        return torch.randint(3, self.model.config.vocab_size, (1, PROMPT), generator=generator).to(device)


def build(name: str, cache: int, scale: str, device: str, dtype: torch.dtype) -> Decoder:
    """MODELS[name] with random weights and a static cache of `cache` tokens; scale is "full" or "small"."""
    torchvision_models()  # transformers looks for torchvision, which cannot be imported before this
    import transformers
    from transformers import StaticCache

    torch.manual_seed(0)
    full = scale == "full"
    if name.removesuffix("-int8") in CAUSAL:
        kind, large, small = CAUSAL[name.removesuffix("-int8")]
        head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
        config = getattr(transformers, f"{kind}Config")(**(large if full else small))
        with torch.device(device):
            model = getattr(transformers, kind + head)(config).to(dtype).eval()
        if name.endswith("-int8"):
            quantize(model)
        return Decoder(model, {}, "input_ids", lambda: StaticCache(config=config, max_cache_len=cache))
    if name == "t5-base":
        config = transformers.T5Config(**(T5_SIZES if full else T5_SMALL))
        with torch.device(device):
            model = transformers.T5ForConditionalGeneration(config).to(dtype).eval()
        source: dict[str, Any] = {"input_ids": torch.randint(3, config.vocab_size, (1, 128), device=device)}
        steps = 128
    else:
        config = transformers.WhisperConfig(**(WHISPER_SIZES if full else WHISPER_SMALL))
        with torch.device(device):
            model = transformers.WhisperForConditionalGeneration(config).to(dtype).eval()
        source = {"input_features": torch.randn(1, config.num_mel_bins, 3000, device=device, dtype=dtype)}
        steps = 1500
    encoded = model.get_encoder()(**source)
    decoder = config.get_text_config(decoder=True)

    def new_cache() -> Any:
        own, cross = (StaticCache(config=decoder, max_cache_len=n) for n in (cache, steps))
        return transformers.EncoderDecoderCache(own, cross)

    return Decoder(model, {"encoder_outputs": encoded}, "decoder_input_ids", new_cache)


def quantize(model: nn.Module) -> None:
    """All products but the last one, which shares its weight with the table of embeddings."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and name != "lm_head":
                setattr(module, name, Int8Linear(child))


def rewind(cache: Any, length: int) -> None:
    """Takes a cache back to its first `length` tokens; what lies behind is masked."""
    own = getattr(cache, "self_attention_cache", cache)
    for layer in own.layers:
        layer.cumulative_length.fill_(length)
        if hasattr(layer, "cumulative_length_int"):
            layer.cumulative_length_int = length


def bandwidth(device: str) -> float:
    """Bytes a second: on a GPU of a copy of 1 GiB, both ways counted; on a CPU of reading 256 MiB, which is what a token's weights take."""
    if device == "cuda":
        source = torch.empty(1 << 30, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return 2 * source.numel() / min(timed(lambda: target.copy_(source), device) for _ in range(6))
    source = torch.ones(1 << 26, dtype=torch.float32)
    return source.nbytes / min(timed(source.sum, device) for _ in range(6))


@torch.no_grad()
def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One job: model, cache, system, mode, device, dtype, scale, seconds."""
    device = job["device"]
    decoder = build(job["model"], job["cache"], job["scale"], device, DTYPES[job["dtype"]])
    make = compiler(job["system"], job["mode"])
    eager, eager_cache = decoder.step_of(lambda f: f)
    step, cache = decoder.step_of(make)
    first = decoder.prompt()[:, :1]
    result = {**job, "weights_bytes": decoder.bytes_read(), "limit_ms": decoder.bytes_read() / bandwidth(device) * 1e3}

    def run(function: Callable[[torch.Tensor], Any], own: Any) -> None:
        rewind(own, PROMPT)
        token = first
        for _ in range(BLOCK):
            token, _ = function(token)
            token = token.clone()

    result["first_call_s"] = timed(lambda: run(step, cache), device)
    for _ in range(3):
        run(step, cache), run(eager, eager_cache)
    same, errors = [], []
    rewind(cache, PROMPT), rewind(eager_cache, PROMPT)
    token = first
    for _ in range(BLOCK):  # both read eager's tokens
        (mine, logits), (theirs, expected) = step(token), eager(token)
        same.append(bool((mine == theirs).all()))
        errors.append(relative_error(logits, expected))
        token = theirs
    result |= {"same_tokens": sum(same) / len(same), "error": max(errors)}
    ours, plain = [], []
    deadline = time.perf_counter() + job["seconds"]
    while len(ours) < 5 or time.perf_counter() < deadline:
        ours.append(timed(lambda: run(step, cache), device) / BLOCK)
        plain.append(timed(lambda: run(eager, eager_cache), device) / BLOCK)
    result |= {"token_ms": statistics.median(ours) * 1e3, "eager_token_ms": statistics.median(plain) * 1e3}
    return result


def table_of(rows: list[dict[str, Any]]) -> Table:
    """A line for each model and length of cache: milliseconds a token."""
    names = ["torch" if s == "torch.compile" else s for s, _ in SYSTEMS]
    heads = [f"{n} {m or ''}".strip() for n, (_, m) in zip(names, SYSTEMS, strict=True)]
    table = Table(
        "model",
        "cache",
        "limit",
        "eager",
        *heads,
        "same tokens",
        "error",
        title="ms a token, medians of blocks in turns with eager",
    )
    for model, cache in dict.fromkeys((r["model"], r["cache"]) for r in rows):
        mine = {(r["system"], r["mode"]): r for r in rows if (r["model"], r["cache"]) == (model, cache)}
        good = [r for r in mine.values() if "token_ms" in r]
        cells = [f"{statistics.median(r[k] for r in good):.2f}" if good else "-" for k in ("limit_ms", "eager_token_ms")]
        cells += [_cell(mine.get(key)) for key in SYSTEMS]
        ours = [r for r in good if r["system"] == "tracework"]
        cells += [f"{min(r['same_tokens'] for r in ours):.2f}", f"{max(r['error'] for r in ours):.1e}"] if ours else ["-", "-"]
        table.add_row(model, str(cache), *cells)
    return table


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return f"{row['token_ms']:.2f}" if "token_ms" in row else f"failed: {row['failed'][:40]}"


if __name__ == "__main__":
    print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
