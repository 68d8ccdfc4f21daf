"""Products of real models with what follows them: by the library, with and without it, and by tiles of ours, config by config, in one run.

    python tools/run_in_tree.py python -m benchmarks.micro.products [--only WORDS] [--configs 4] [--compile]

Times are of the device, of calls in one replayed CUDA graph, one after the other with operands of their own, of more bytes together than the
L2 cache keeps; what is compared takes turns. "alone" is the library's product without what follows it, "eager" with it, "library" the plan
that keeps the library's call, "limit" its operations at the chip's dense rate or its bytes at its bandwidth. "error" is that of our result
beside eager's, in units of float64's norm.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from tracework_inductor import InductorOptions, compile_plan, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.codegen.triton.config import TileConfig
from tracework_inductor.codegen.triton.cores import tiles
from tracework_inductor.schedule.choice import Answer, Choice
from tracework_primops import GraphBuilder, PrimGraph, PrimValue, TensorSpec, prims
from tracework_runtime import DEFAULT_OPTIONS, Artifact, load
from tracework_runtime.build import triton as build
from tracework_runtime.cache.memory import open_store
from tracework_runtime.device.cuda import capability

from benchmarks.micro.gemv import error, in_turns, recorded

BF16 = torch.bfloat16
SETS_BYTES = 200_000_000
RATE, BANDWIDTH = 989e12, 3.35e12
"""Of an H100's tensor cores and memory."""


@dataclass(frozen=True)
class Epilogue:
    """What follows x @ w.T: the same in torch and in prims, with a bias of the columns, or None, and another matrix of the result's size."""

    eager: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor], torch.Tensor]
    prims: Callable[[Any, Any, Any, Any], Any]
    bias: bool


def _linear(x: Any, w: Any, b: Any) -> Any:
    turned = prims.permute(w, (1, 0))
    return prims.mm(x, turned) if b is None else prims.addmm(b, x, turned)


def _gelu(y: Any) -> Any:
    cube = prims.mul(prims.mul(prims.mul(y, y), y), 0.044715)
    return prims.mul(prims.mul(y, 0.5), prims.add(prims.tanh(prims.mul(prims.add(y, cube), 0.7978845608028654)), 1.0))


EPILOGUES = {
    "": Epilogue(lambda x, w, b, h: F.linear(x, w), lambda x, w, b, h: _linear(x, w, None), False),
    "bias": Epilogue(lambda x, w, b, h: F.linear(x, w, b), lambda x, w, b, h: _linear(x, w, b), True),
    "bias gelu": Epilogue(
        lambda x, w, b, h: F.gelu(F.linear(x, w, b), approximate="tanh"), lambda x, w, b, h: _gelu(_linear(x, w, b)), True
    ),
    "relu": Epilogue(lambda x, w, b, h: F.relu(F.linear(x, w)), lambda x, w, b, h: prims.relu(_linear(x, w, None)), False),
    "bias residual": Epilogue(lambda x, w, b, h: h + F.linear(x, w, b), lambda x, w, b, h: prims.add(h, _linear(x, w, b)), True),
    "residual": Epilogue(lambda x, w, b, h: h + F.linear(x, w), lambda x, w, b, h: prims.add(h, _linear(x, w, None)), False),
    "silu gate": Epilogue(
        lambda x, w, b, h: F.silu(h) * F.linear(x, w),
        lambda x, w, b, h: prims.mul(prims.mul(h, prims.sigmoid(h)), _linear(x, w, None)),
        False,
    ),
}
"""name -> what follows a product."""

SHAPES: tuple[tuple[str, int, int, int, str], ...] = (
    ("bert o", 16384, 768, 768, "bias residual"),
    ("bert up", 16384, 3072, 768, "bias gelu"),
    ("bert down", 16384, 768, 3072, "bias residual"),
    ("gpt2 qkv", 8192, 2304, 768, "bias"),
    ("gpt2 up", 8192, 3072, 768, "bias gelu"),
    ("gpt2 down", 8192, 768, 3072, "bias residual"),
    ("gpt2 head", 8192, 50304, 768, ""),
    ("llama1b k", 2048, 512, 2048, ""),
    ("llama1b o", 2048, 2048, 2048, "residual"),
    ("llama1b up", 2048, 8192, 2048, "silu gate"),
    ("llama1b down", 2048, 2048, 8192, "residual"),
    ("llama8b k", 4096, 1024, 4096, ""),
    ("llama8b o", 4096, 4096, 4096, "residual"),
    ("llama8b up", 4096, 14336, 4096, "silu gate"),
    ("llama8b down", 4096, 4096, 14336, "residual"),
    ("vit qkv", 12608, 2304, 768, "bias"),
    ("vit up", 12608, 3072, 768, "bias gelu"),
    ("vit down", 12608, 768, 3072, "bias residual"),
    ("t5 q", 16384, 512, 512, ""),
    ("t5 up", 16384, 2048, 512, "relu"),
    ("t5 down", 16384, 512, 2048, "residual"),
    ("unet 320", 8192, 320, 320, "bias residual"),
    ("unet 2560", 8192, 2560, 320, "bias gelu"),
    ("unet 640", 2048, 640, 2560, "bias residual"),
    ("serve 16 o", 16, 4096, 4096, "residual"),
    ("serve 32 up", 32, 14336, 4096, "silu gate"),
    ("serve 64 down", 64, 4096, 14336, "residual"),
    ("serve 128 up", 128, 8192, 2048, "silu gate"),
    ("serve 256 o", 256, 4096, 4096, "residual"),
    ("odd", 1000, 1000, 1000, "bias"),
    ("gpt2 vocab", 16384, 50257, 768, ""),
    ("bert vocab", 16384, 30522, 768, "bias"),
)
"""Of real models: name, rows, columns, inner elements, what follows."""


def graph_of(program: Callable[..., Any], inputs: list[torch.Tensor]) -> PrimGraph:
    """The graph of a function of prims for inputs like these."""
    graph = torch.fx.Graph()
    values = []
    for n, t in enumerate(inputs):
        node = graph.placeholder(f"a{n}")
        node.meta["spec"] = TensorSpec(t.dtype, t.device, tuple(t.shape), tuple(t.stride()))
        values.append(PrimValue(node.meta["spec"], node))
    with GraphBuilder(graph):
        out = program(*values)
    graph.output((out.node,))
    return PrimGraph.from_fx(graph)


def artifact_of(graph: PrimGraph, config: TileConfig | None) -> Artifact:
    """The program with a core of this config, or by the library."""
    options = InductorOptions(products="tiles")
    plan = schedule(
        lower(graph, options),
        options,
        TritonRenderer.capabilities,
        lambda choices: Answer({} if config is None else {c.name: config.record() for c in choices}),
    )
    return compile_plan(graph, plan, options)


def loaded(artifact: Artifact) -> Callable[[list[torch.Tensor]], Any]:
    """The program, of a list of inputs."""
    run = load(artifact)
    return lambda inputs: run(list(inputs))[0]


def build_together(artifacts: Sequence[Artifact]) -> None:
    """Compiles the kernels of all of them at the same time, so that loading finds them in the store."""
    kernels = [k for artifact in artifacts for k in artifact.kernels]
    chip = capability()
    jobs = [build.request(k, e, k.launch["configs"][0], build.Variant(), chip) for k in kernels for e in k.launch["entries"]]
    build.build_each(jobs, DEFAULT_OPTIONS, open_store(DEFAULT_OPTIONS))


def configs_of(graph: PrimGraph, count: int) -> list[TileConfig]:
    """The best guesses."""
    options, found = InductorOptions(products="tiles"), []

    def choose(choices: Sequence[Choice]) -> Answer:
        found.extend(tiles.configs(choices[0].core, 90 if capability() >= 90 else 80)[:count])
        return Answer({})

    schedule(lower(graph, options), options, TritonRenderer.capabilities, choose)
    return found


def measure(case: tuple[str, int, int, int, str], count: int, compile_too: bool) -> list[str]:
    """Lines: the case, and each config."""
    name, m, n, k, what = case
    epilogue = EPILOGUES[what]
    torch.manual_seed(0)
    count_of_sets = max(2, min(16, -(-SETS_BYTES // (2 * (m * k + n * k + 2 * m * n)))))
    sets = [[torch.randn(s, dtype=BF16, device="cuda") / 8 for s in ((m, k), (n, k), (n,), (m, n))] for _ in range(count_of_sets)]
    graph = graph_of(epilogue.prims, sets[0])
    ways: dict[str, Callable[..., Any]] = {
        "alone": lambda s: torch.mm(s[0], s[1].T),
        "eager": lambda s: epilogue.eager(*s),
        "library": loaded(artifact_of(graph, None)),
    }
    if compile_too:
        torch.compiler.reset()
        fn = torch.compile(epilogue.eager, mode="max-autotune-no-cudagraphs", dynamic=False)
        ways["torch.compile"] = lambda s: fn(*s)
    texts, configs = {}, configs_of(graph, count)
    artifacts = [artifact_of(graph, config) for config in configs]
    build_together(artifacts)
    for number, (config, artifact) in enumerate(zip(configs, artifacts, strict=True)):
        try:
            ways[f"tiles {number}"] = loaded(artifact)
            texts[f"tiles {number}"] = config
        except Exception as refused:  # a config that the device cannot run is a row, not the end
            print(f"  {words(config)}: {type(refused).__name__}: {refused}")
    wanted = epilogue.eager(*(t.double() for t in sets[0]))
    errors = {way: error(run(sets[0]), wanted) for way, run in ways.items() if way != "alone"}
    graphs = {way: recorded([lambda s=s, run=run: run(s) for s in sets]) for way, run in ways.items()}  # type: ignore[misc]
    us = {way: ms * 1e3 / len(sets) for way, ms in in_turns(graphs).items()}
    moved = 2 * (m * k + n * k + m * n * (2 if what.endswith(("residual", "gate")) else 1))
    limit = 1e6 * max(2 * m * n * k / RATE, moved / BANDWIDTH)
    best = min(texts, key=lambda way: us[way], default="library")
    more = f"{us['torch.compile']:9.1f}" if compile_too else ""
    head = f"{name:15s}{m:6d}{n:6d}{k:6d} {what:14s}{limit:8.1f}{us['alone']:8.1f}{us['eager']:8.1f}{us['library']:8.1f}{more}"
    lines = [
        f"{head}{us[best]:8.1f}{us['alone'] / us[best]:7.2f}{us['library'] / us[best]:7.2f}   {errors[best]:.1e} {errors['eager']:.1e}"
    ]
    for way, c in texts.items():
        lines.append(f"    {words(c):74s}{us[way]:8.1f}")
    return lines


def words(c: TileConfig) -> str:
    """A config in words."""
    found = [f"{c.rows}x{c.columns}x{c.inner} warps {c.num_warps} stages {c.num_stages}"]
    found += [f"parts {c.parts}"] if c.parts > 1 else []
    found += [f"persistent {c.at_once}"] if c.persistent else []
    found += [f"slices {c.slices}"] if c.slices > 1 else []
    return " ".join(found + (["descriptors"] if c.descriptors else []))


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names hold one of these words, separated by commas")
    parser.add_argument("--configs", type=int, default=4, help="how many configs of each product are measured")
    parser.add_argument("--compile", action="store_true", help="torch.compile in its mode max-autotune beside them")
    chosen = parser.parse_args()
    print(torch.cuda.get_device_name())
    more = "  compile" if chosen.compile else ""
    print(
        f"{'case':15s}{'m':>6s}{'n':>6s}{'k':>6s} {'':14s}{'limit':>8s}{'alone':>8s}{'eager':>8s}{'library':>8s}{more}{'tiles':>8s}"
        f"{'/alone':>7s}{'/libr.':>7s}   error: ours, eager's"
    )
    for case in SHAPES:
        if any(word in case[0] for word in chosen.only.split(",")):
            print("\n".join(measure(case, chosen.configs, chosen.compile)), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    with torch.no_grad():
        main()
