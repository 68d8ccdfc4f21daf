"""Generation with caches: tokens as eager's, how many graphs a step runs, and how many graphs are compiled.

python integration_tests/decoding.py [--steps N] [--models NAME,...] [--backend eager] [--device cuda] [--jobs N] [--write]

Small models of transformers with random weights generate two texts from prompts of seven tokens, plain and compiled. --jobs: rows are made in
that many processes, which take turns on the GPUs. --write puts the table into integration_tests/DECODING.md, or DECODING_CUDA.md. The exit
status is 1 where a row is not what `is_right` asks.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tracework
import transformers
from tracework import backends

TABLES = {"cpu": "DECODING.md", "cuda": "DECODING_CUDA.md"}
TEXT = {"vocab_size": 128, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
SMALL = {
    **TEXT,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**TEXT, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", SMALL),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", SMALL),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**SMALL, **WINDOWS}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {**TEXT, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            **TEXT,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "num_mel_bins": 16,
            "max_source_positions": 32,
            "max_target_positions": 448,
            "decoder_start_token_id": 1,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
    ),
    "mamba": ("MambaForCausalLM", "MambaConfig", {**TEXT, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}),
}
"""Class of the model, of its configuration, and its settings."""

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_k": 20},
    "beams": {"do_sample": False, "num_beams": 3},
    "assisted": {"do_sample": False},
}
CACHES = ("dynamic", "static")
QUANTIZED = "llama", "qwen3"
"""Models with a cache of eight bits, where transformers has one that needs no other library."""
OFFLOADED = (("llama", "offloaded"), ("llama", "offloaded_static"), ("gemma3", "offloaded_static"))
"""Models and caches that lie in the memory of the CPU, on a GPU alone."""
OTHERS = 32
"""Tokens that are chosen otherwise than greedily, where the graphs run as they are: which graphs there are is what is looked at."""


@dataclass(frozen=True)
class Case:
    """A model, a way of choosing tokens, a cache, and who compiles: `forward` is tracework.compile(model.forward), `generate` compiles by
    itself, as it does with a static cache, and calls torch.compile for it, which is replaced."""

    model: str
    way: str = "greedy"
    cache: str = "static"
    compiled_by: str = "forward"


class Counts:
    """Graphs that were compiled and run; steps: of each call of what is compiled, how many it ran."""

    def __init__(self) -> None:
        self.made = self.ran = 0
        self.steps: list[int] = []

    def of_backend(self, factory: backends.BackendFactory) -> backends.BackendFactory:
        """The backend, counted."""

        def counting(*settings: Any) -> backends.Backend:
            backend = factory(*settings)

            def compiled(graph: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
                self.made += 1
                return self.counted(backend(graph, given))

            return compiled

        return counting

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.ran += 1
            return function(*args)

        return run

    def step(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call of the model."""

        def one(*args: Any, **kwargs: Any) -> Any:
            before = self.ran
            result = call(*args, **kwargs)
            self.steps.append(self.ran - before)
            return result

        return one


@contextlib.contextmanager
def counted(backend: str) -> Iterator[Counts]:
    """Counts of what one of our backends compiles."""
    counts, factory = Counts(), backends.BACKENDS[backend]
    backends.BACKENDS[backend] = counts.of_backend(factory)
    try:
        yield counts
    finally:
        backends.BACKENDS[backend] = factory


@dataclass(frozen=True)
class Outcome:
    """Whether the tokens are eager's, the graphs that were compiled in the first run and in the second one, and how many calls of the
    model ran how many graphs."""

    same: bool
    compiled: int
    compiled_again: int
    graphs: dict[int, int]

    def row(self, case: Case) -> str:
        graphs = ", ".join(f"{count} x {graphs}" for graphs, count in sorted(self.graphs.items()))
        tokens = "eager's" if self.same else "**others**"
        cells = (case.model, case.way, case.cache, case.compiled_by, tokens, self.compiled, self.compiled_again, graphs)
        return "| " + " | ".join(map(str, cells)) + " |"


class EagerError(Exception):
    """There is nothing to compare with: the program does not run plainly."""


MOST_COMPILED = 3
"""The prompt, and two for what follows: sizes that grow are compiled once as they are and once open, a static sliding window before it is full
and after that."""
MOST_ASSISTED = 6
"""Guesses are one token or more, and the cache that they leave is whole or cut, each compiled by itself and open, whenever it comes."""


def is_right(case: Case, outcome: Outcome) -> bool:
    """One graph for each call of the model, tokens as eager's, few graphs, and none more for a second text. Offloaded caches break the graph
    at each layer, where streams wait for each other."""
    if case.way == "assisted":
        few = outcome.compiled + outcome.compiled_again <= MOST_ASSISTED
    else:
        few = outcome.compiled <= MOST_COMPILED and not outcome.compiled_again
    if (case.model, case.cache) in OFFLOADED:
        return outcome.same and not outcome.compiled_again
    return outcome.same and few and list(outcome.graphs) == [1]


def cases(models: list[str], device: str = "cpu") -> list[Case]:
    """Each model greedily, by both ways to compile; and other ways of choosing tokens."""
    made = [Case(model, cache=cache) for model in models for cache in CACHES]
    made += [Case(model, cache=cache) for model, cache in OFFLOADED if model in models and device == "cuda"]
    if hasattr(transformers.cache_utils, "Fp8QuantizedLayer"):
        made += [Case(model, cache="quantized") for model in QUANTIZED if model in models]
    made += [Case(model, compiled_by="generate") for model in models]
    made += [Case(model, way, cache) for model in models for way in ("sampled", "beams") for cache in CACHES]
    return made + [Case(model, "assisted", "dynamic") for model in models if model not in ("whisper", "mamba")]


def built(model: str, seed: int, device: str) -> Any:
    """One of MODELS with random weights."""
    import_first()
    of_model, of_config, settings = MODELS[model]
    torch.manual_seed(seed)
    return getattr(transformers, of_model)(getattr(transformers, of_config)(**settings)).eval().to(device)


def import_first() -> None:
    """transformers looks for torchvision, which cannot be imported before this."""
    if importlib.util.find_spec("torchvision"):
        from benchmarks.torchvision_on_cpu import torchvision_models

        torchvision_models()


def prompt(model: str, seed: int, device: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if model == "whisper":
        return {"input_features": torch.randn(1, 16, 64, generator=generator).to(device)}
    return {"input_ids": torch.randint(3, 128, (1, 7), generator=generator).to(device)}


def generated(case: Case, steps: int, backend: str = "eager", device: str = "cpu") -> Outcome:
    """Two texts of `steps` tokens, plain and compiled."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    model = built(case.model, 0, device)
    settings = WAYS[case.way] | {"max_new_tokens": steps, "min_new_tokens": steps, "use_cache": True, "disable_compile": True}
    if case.cache != "dynamic":
        settings["cache_implementation"] = case.cache
    if case.cache == "quantized":
        settings["cache_config"] = {"backend": "fp8"}
    if case.way == "assisted":
        settings["assistant_model"] = built(case.model, 1, device)

    def text(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return model.generate(**prompt(case.model, seed, device), **settings)

    try:
        expected = [text(seed) for seed in (1, 2)]
    except Exception as error:
        raise EagerError(f"eager raises {type(error).__name__}") from error
    tracework.reset()
    with counted(backend) as counts, tracework.replace_torch_compile():
        if case.compiled_by == "forward":
            model.forward = counts.step(tracework.compile(model.forward, backend=backend))
        else:
            config = transformers.CompileConfig(backend=backend, mode=None)
            config._compile_all_devices = True
            settings |= {"disable_compile": False, "compile_config": config}
            compiled_call = model.get_compiled_call
            model.get_compiled_call = lambda given: counts.step(compiled_call(given))
        got = [text(1)]
        compiled = counts.made
        got.append(text(2))
    same = all(torch.equal(a, b) for a, b in zip(got, expected))
    return Outcome(same, compiled, counts.made - compiled, dict(Counter(counts.steps)))


def reported(case: Case, steps: int, backend: str, device: str, number: int) -> tuple[str, bool]:
    """A row, and whether it is right; what raised is a row that is not. number: of the row, which chooses the GPU."""
    if device == "cuda":
        torch.cuda.set_device(number % torch.cuda.device_count())
    greedy = case.way == "greedy"
    try:
        outcome = generated(case, steps if greedy else min(steps, OTHERS), backend if greedy else "eager", device)
    except Exception as error:
        is_eagers = isinstance(error, EagerError)
        if not is_eagers:
            traceback.print_exc()
        found = str(error) if is_eagers else f"**{type(error).__name__}**"
        return f"| {case.model} | {case.way} | {case.cache} | {case.compiled_by} | {found} | | | |", is_eagers
    return outcome.row(case), is_right(case, outcome)


def all_reported(chosen: list[Case], steps: int, backend: str, device: str, jobs: int) -> Iterator[tuple[str, bool]]:
    """`reported` of each, in their order."""
    given = chosen, [steps] * len(chosen), [backend] * len(chosen), [device] * len(chosen), range(len(chosen))
    if jobs == 1:
        yield from map(reported, *given)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(reported, *given)


def main() -> int:
    """Run, report, and write the table when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backend", default="inductor", choices=backends.BACKENDS)
    parser.add_argument("--device", default="cpu", choices=TABLES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows, wrong = [], 0
    chosen = cases(given.models.split(","), given.device)
    for row, right in all_reported(chosen, given.steps, given.backend, given.device, given.jobs):
        rows.append(row)
        wrong += not right
        print(row, "" if right else " <-- wrong", flush=True)
    if given.write:
        heading = "| model | tokens | cache | compiled by | tokens are | graphs compiled | for a second text | calls x graphs |\n"
        name = torch.cuda.get_device_name() if given.device == "cuda" else given.device
        about = f"{given.steps} tokens by backend {given.backend} where they are greedy, else {OTHERS} by backend eager; transformers "
        about += f"{transformers.__version__}, torch {torch.__version__}, {name}."
        table = Path(__file__).with_name(TABLES[given.device])
        table.write_text(f"{__doc__.splitlines()[0]}\n\n{about}\n\n{heading}|{'---|' * 8}\n" + "\n".join(rows) + "\n")
    print(f"{wrong} of {len(rows)} rows are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
