"""torchao's configurations on an MLP and a block of a GPT: graphs, time and errors, against eager and torch.compile.

    python tools/run_in_tree.py python -m benchmarks.micro.quantized [--device cuda] [--only int8] [--dtype bfloat16] [--seconds 0.5]

Milliseconds are the least of rounds in turns: of a call without gradients, or of a forward and a backward where the configuration is for
training. On a GPU they are those between two events, of calls that follow each other, and of replays of what is compiled as a CUDA graph (not
of training; torchao's eager waits for the device), which leave out what the host takes. Errors are the largest element's over the largest of
eager's, of results or, in training, of gradients too: where activations are rounded to whole numbers, an element that was between two of them
is one step off. Who raises has no figures, and is told below the row.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
import tracework
from torch import Tensor, nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.quantization import (
    Float8DynamicActivationFloat8WeightConfig,
    Float8WeightOnlyConfig,
    FqnToConfig,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8Tensor,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    PerAxis,
    PerGroup,
    PerRow,
    PerTensor,
    quantize_,
)
from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig
from torchao.quantization.quant_primitives import MappingType

from benchmarks.micro.gemv import recorded

WIDTHS = {"cpu": (512, 2048), "cuda": (4096, 11008)}
"""Of a layer, and inside of an MLP."""
HEAD = 64
CASES = {"cpu": [("mlp", 1), ("mlp", 32), ("gpt", 32)], "cuda": [("mlp", 1), ("mlp", 32), ("mlp", 1024), ("gpt", 1024)]}
"""Device -> models, and rows of their inputs."""
AT_ONCE = 10
"""Calls between two events."""


class Block(nn.Module):
    """One of a GPT."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = [part.unflatten(-1, (-1, HEAD)).transpose(-2, -3) for part in self.qkv(self.before(x)).chunk(3, -1)]
        attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(-2, -3).flatten(-2))
        return x + self.down(nn.functional.gelu(self.up(self.behind(x))))


MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "mlp": lambda width, inner: nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)),
    "gpt": Block,
}


def mixed() -> Any:
    """A configuration for each layer of one kind, and another one for the rest."""
    rows = {"re:(up|0)": Int8DynamicActivationInt8WeightConfig(), "re:(qkv|out|down|2)": Int8WeightOnlyConfig()}
    return FqnToConfig(OrderedDict(rows))


def rounded(dtype: torch.dtype, **facts: Any) -> Any:
    return IntxFakeQuantizeConfig(dtype, **facts)


INFERENCE: dict[str, Callable[[], Any]] = {
    "int8 weights": Int8WeightOnlyConfig,
    "int8 weights, one scale": lambda: Int8WeightOnlyConfig(granularity=PerTensor()),
    "int8 weights, groups": lambda: Int8WeightOnlyConfig(granularity=PerGroup(64)),
    "int4 weights": lambda: IntxWeightOnlyConfig(torch.int4, PerAxis(0)),
    "int4 weights, groups": lambda: IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
    "int8 both": Int8DynamicActivationInt8WeightConfig,
    "int8 both, one scale": lambda: Int8DynamicActivationInt8WeightConfig(granularity=PerTensor()),
    "int8 both, asymmetric": lambda: Int8DynamicActivationInt8WeightConfig(act_mapping_type=MappingType.ASYMMETRIC),
    "int8, int4 weights, groups": lambda: Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)),
    "float8 weights": Float8WeightOnlyConfig,
    "by layer": mixed,
}
ON_GPUS: dict[str, Callable[[], Any]] = {
    "int4 weights, packed": lambda: Int4WeightOnlyConfig(int4_packing_format="tile_packed_to_4d"),
    "float8 both": lambda: Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()),
    "float8 both, one scale": lambda: Float8DynamicActivationFloat8WeightConfig(granularity=PerTensor()),
}
"""More inference, which a CPU's kernels are missing for."""
TRAINING: dict[str, Callable[[], Any]] = {
    "int8 weights, trained": lambda: QATConfig(weight_config=rounded(torch.int8, granularity="per_channel"), step="prepare"),
    "int8 and int4, trained": lambda: QATConfig(
        activation_config=rounded(torch.int8, granularity="per_token", is_symmetric=False),
        weight_config=rounded(torch.int4, group_size=32),
        step="prepare",
    ),
}
FLOAT8_TRAINING = {"float8, trained": "rowwise", "float8, one scale, trained": "tensorwise"}
"""Name -> torchao's name of the recipe; on GPUs."""
NESTED = "two int8, nested"


class Pair(Tensor):
    """A weight that is the sum of two quantised ones: a wrapper of wrappers."""

    @staticmethod
    def __new__(cls, coarse: Tensor, rest: Tensor) -> Pair:
        facts = {"dtype": coarse.dtype, "device": coarse.device}
        return torch.Tensor._make_wrapper_subclass(cls, coarse.shape, **facts)

    def __init__(self, coarse: Tensor, rest: Tensor) -> None:
        self.coarse, self.rest = coarse, rest

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["coarse", "rest"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> Pair:
        return Pair(inner["coarse"], inner["rest"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, bias = args
            return func(x, weight.coarse, bias) + func(x, weight.rest)
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is torch.ops.aten.detach.default, func
        return cls(func(args[0].coarse), func(args[0].rest))


def paired(model: nn.Module) -> None:
    """Quantises the weights of linear layers to two numbers of eight bits each."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            coarse = Int8Tensor.from_hp(layer.weight.detach(), PerRow())
            rest = Int8Tensor.from_hp(layer.weight.detach() - coarse.dequantize(), PerRow())
            layer.weight = nn.Parameter(Pair(coarse, rest), requires_grad=False)


def quantized(model: nn.Module, name: str) -> nn.Module:
    if name == NESTED:
        paired(model)
    elif name in FLOAT8_TRAINING:
        convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(FLOAT8_TRAINING[name]))
    else:
        config = {**INFERENCE, **ON_GPUS, **TRAINING}[name]()
        quantize_(model, config, **({"filter_fn": None} if isinstance(config, FqnToConfig) else {}))
    return model


def step(call: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor, trains: bool) -> list[Tensor]:
    """The result, and the gradients of parameters."""
    if not trains:
        with torch.no_grad():
            return [call(x)]
    found = call(x)
    return [found.detach(), *torch.autograd.grad(found.float().square().mean(), [*model.parameters()])]


def error(found: list[Tensor], expected: list[Tensor]) -> float:
    pairs = zip(found, expected, strict=True)
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


def graphs(fn: Callable[[Tensor], Tensor], x: Tensor, trains: bool) -> int:
    """How many tracework makes."""
    with torch.set_grad_enabled(trains):
        return int(tracework.explain(fn)(x).graphs)


def once(call: Callable[[], Any]) -> float:
    """Milliseconds of a call."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def on_device(call: Callable[[], Any]) -> float:
    """The same of calls that follow each other, between events of the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(AT_ONCE):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / AT_ONCE


def least(calls: dict[str, Callable[[], Any]], seconds: float, timed: Callable[[Callable[[], Any]], float]) -> dict[str, float]:
    """Milliseconds of each, in turns, of rounds that take so long for each."""
    times = dict.fromkeys(calls, float("inf"))
    began, rounds = time.perf_counter(), 0
    while calls and (time.perf_counter() - began < seconds * len(calls) or rounds < 5):
        for name, call in calls.items():
            times[name] = min(times[name], timed(call))
        rounds += 1
    return times


COMPILED = ("torch", "tracework")
WHO = ("eager", *COMPILED)


def figures(times: dict[str, float], who: Sequence[str]) -> list[str]:
    """Cells: milliseconds of each, and torch.compile's time over ours."""
    speed = f"{times['torch'] / times['tracework']:.2f}" if {"torch", "tracework"} <= times.keys() else "-"
    return [*(f"{times[one]:.3f}" if one in times else "-" for one in who), speed]


def recordings(steps: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """Replays of what can be recorded."""
    found = {}
    for who, call in steps.items():
        with contextlib.suppress(RuntimeError):
            found[who] = recorded([call]).replay
    return found


def measure(name: str, kind: str, rows: int, dtype: torch.dtype, device: str, seconds: float) -> str:
    """A row of the table, and who raised."""
    torch.manual_seed(0)
    width, inner = WIDTHS[device]
    with torch.device(device):
        model = quantized(MODELS[kind](width, inner).to(dtype), name)
        x, trains = torch.randn(1, rows, width, dtype=dtype), name in TRAINING or name in FLOAT8_TRAINING
    tracework.reset()
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    calls = {"eager": model, "torch": torch.compile(model), "tracework": tracework.compile(model)}
    steps = {who: functools.partial(step, call, model, x, trains) for who, call in calls.items()}
    results, raised = {}, ""
    for who in WHO:
        try:
            results[who] = steps[who]()
        except Exception as failure:
            raised += f"\n{who}: {' '.join(str(failure).split())[:200]}"
            del steps[who]
    made = graphs(model, x, trains) if "tracework" in steps else 0, torch._dynamo.utils.counters["stats"]["unique_graphs"]
    cells = figures(least(steps, seconds, once if device == "cpu" else on_device), WHO)
    if device != "cpu":
        replays = recordings({} if trains else {who: call for who, call in steps.items() if who != "eager"})
        cells += figures(least(replays, seconds, on_device), COMPILED)
    compared = [who for who in reversed(COMPILED) if {"eager", who} <= results.keys()]
    told = ", ".join(f"{error(results[who], results['eager']):.1e}" for who in compared)
    return f"| {name} | {kind} {rows} | {made[0]}, {made[1]} | {' | '.join(cells)} | {told} |{raised}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=WIDTHS)
    parser.add_argument(
        "--only", default="", help="regular expression: of rows whose first two cells, with a blank between them, match"
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=0.5)
    given = parser.parse_args()
    on_gpu = given.device == "cuda"
    columns = "eager | torch.compile | tracework | times its speed"
    columns += " | as a graph: torch.compile | tracework | times its speed" if on_gpu else ""
    print(f"| {given.dtype} | model, rows | graphs, torch.compile's | {columns} | error, its |")
    print("|---" * (5 + columns.count(" | ")) + "|")
    for name in [*INFERENCE, *(ON_GPUS if on_gpu else ()), NESTED, *TRAINING, *(FLOAT8_TRAINING if on_gpu else ())]:
        for kind, rows in CASES[given.device]:
            if re.search(given.only, f"{name} {kind} {rows}"):
                print(measure(name, kind, rows, getattr(torch, given.dtype), given.device, given.seconds), flush=True)


if __name__ == "__main__":
    main()
