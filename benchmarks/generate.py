"""Generation by transformers: milliseconds a token of `model.generate` with a static cache, batch of one, greedy, each in a process of its own.

`python -m benchmarks --generate` is the table; `python -m benchmarks.generate JSON` is one measurement and prints one JSON line. Ways:
"generate" lets generate compile the model by itself, as it does on a GPU with a static cache (by torch.compile, mode reduce-overhead, which
tracework replaces); "forward" compiles `model.forward` before, and generate compiles nothing. "step" is the model's call alone, without
what generate does around it: the same token again, as generate passes it. "text" is a whole text by the number of its tokens, with its prompt and
with what a cache of its own costs the recordings.
"""

from __future__ import annotations

import contextlib
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.table import Table

from benchmarks.decode import PROMPT, build
from benchmarks.worker import DTYPES, compiler, timed

MODELS = ("llama-1b", "qwen-0.5b", "gpt2", "t5-base", "whisper-small")
TOKENS = 160
WARM_UP = 32
"""Tokens of each text before those that are timed: a prompt, and what is compiled or recorded late."""
SYSTEMS = (
    ("torch.compile", "generate", "reduce-overhead"),
    ("tracework", "generate", "reduce-overhead"),
    ("tracework", "forward", None),
    ("tracework", "forward", "reduce-overhead"),
)


class Clock:
    """A stopping criterion that stops nothing, and writes down when the token after WARM_UP others was asked for."""

    def __init__(self, prompt: int, device: str) -> None:
        self._at, self._device, self.started = prompt + WARM_UP, device, 0.0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        if input_ids.shape[1] == self._at:
            timed(lambda: None, self._device)
            self.started = time.perf_counter()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


class Steps:
    """Keeps what the model's call was given last."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call, self.arguments = call, {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.arguments = kwargs
        return self._call(*args, **kwargs)


def arguments_of(name: str, model: Any, arguments: dict[str, Any], prompt: torch.Tensor) -> tuple[dict[str, Any], int]:
    """What generate gets, and with how many tokens a text begins."""
    if name == "t5-base":
        return {"input_ids": torch.cat([prompt] * 2, 1)}, 1
    if name == "whisper-small":
        config = model.config
        shape = 1, config.num_mel_bins, 2 * config.max_source_positions
        generator = torch.Generator().manual_seed(1)
        return {"input_features": torch.randn(shape, generator=generator).to(prompt.device, model.dtype)}, 1
    return {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}, PROMPT


@torch.no_grad()
def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One job: model, system, way, mode, device, dtype, scale, seconds."""
    device = job["device"]
    decoder = build(job["model"], 512, job["scale"], device, DTYPES[job["dtype"]])
    model: Any = decoder.model
    logging.getLogger("transformers").setLevel(logging.ERROR)
    nothing = dict.fromkeys(("eos_token_id", "suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids"))
    model.generation_config.update(**nothing, decoder_start_token_id=1)
    given, prompt = arguments_of(job["model"], model, decoder.arguments, decoder.prompt())
    settings = dict(max_new_tokens=TOKENS, do_sample=False, use_cache=True, cache_implementation="static")

    def text(**other: Any) -> tuple[torch.Tensor, float]:
        clock = Clock(prompt, device)
        tokens = model.generate(**given, **settings, **other, stopping_criteria=[clock])
        timed(lambda: None, device)
        return tokens, (time.perf_counter() - clock.started) / (TOKENS - WARM_UP)

    expected, _ = text(disable_compile=True)
    eager = min(text(disable_compile=True)[1] for _ in range(2))
    steps: Steps | None = None
    other: dict[str, Any] = {"disable_compile": job["way"] == "forward"}
    with contextlib.ExitStack() as stack:
        if job["system"] == "tracework":
            import tracework

            stack.enter_context(tracework.replace_torch_compile())
        if job["way"] == "forward":
            model.forward = steps = Steps(compiler(job["system"], job["mode"])(model.forward))
        else:
            compiled_call = model.get_compiled_call

            def get_compiled_call(config: Any) -> Any:
                nonlocal steps
                if steps is None:
                    steps = Steps(compiled_call(config))
                return steps

            model.get_compiled_call = get_compiled_call
            other["compile_config"] = _compile_config(job)
        first_call = timed(lambda: text(**other), device)
        tokens, _ = text(**other)
        times, texts = [], []
        deadline = time.perf_counter() + job["seconds"]
        while len(times) < 3 or time.perf_counter() < deadline:
            started = time.perf_counter()
            times.append(text(**other)[1])
            texts.append((time.perf_counter() - started) / TOKENS)
        assert steps is not None
        result = {
            **job,
            "first_text_s": first_call,
            "same_tokens": _same(tokens, expected),
            "token_ms": statistics.median(times) * 1e3,
            "text_ms": statistics.median(texts) * 1e3,
        }
        return result | {"eager_token_ms": eager * 1e3, "step_ms": step_ms(steps, device)}


def _compile_config(job: dict[str, Any]) -> Any:
    from transformers import CompileConfig

    config = CompileConfig(mode=job["mode"])
    config._compile_all_devices = True  # a CPU, too
    return config


def _same(tokens: torch.Tensor, expected: torch.Tensor) -> float:
    """Which part of a text came before the first token that is another."""
    differ = (tokens[0] != expected[0]).nonzero()
    return (int(differ[0]) if len(differ) else expected.shape[1]) / expected.shape[1]


def step_ms(steps: Steps, device: str) -> float:
    """Milliseconds of the model's call, with what it was given last."""
    cache = steps.arguments["past_key_values"]
    own = getattr(cache, "self_attention_cache", cache)
    lengths = [(layer, layer.cumulative_length.clone()) for layer in own.layers]

    def block() -> None:
        for _ in range(16):
            steps(**steps.arguments)

    times = []
    for _ in range(5):
        for layer, length in lengths:  # what lies behind is masked
            layer.cumulative_length.copy_(length - 64)
        times.append(timed(block, device) / 16)
    return statistics.median(times) * 1e3


def table_of(rows: list[dict[str, Any]]) -> Table:
    """A line for each measurement."""
    heads = ("model", "system", "compiled by", "mode", "eager", "token", "text", "step alone", "first text s", "same tokens")
    table = Table(*heads, title=f"generate: ms a token of {TOKENS - WARM_UP} after {WARM_UP} others")
    for row in rows:
        if "failed" in row:
            table.add_row(row["model"], row["system"], row["way"], row["mode"] or "default", "failed: " + row["failed"][:60])
            continue
        cells = [
            f"{row[k]:.2f}" if k in row else "-"
            for k in ("eager_token_ms", "token_ms", "text_ms", "step_ms", "first_text_s", "same_tokens")
        ]
        table.add_row(row["model"], row["system"], row["way"], row["mode"] or "default", *cells)
    return table


if __name__ == "__main__":
    print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
