"""Convolutions of real models with what follows them: by the library, alone and with kernels of ours, and by tiles of ours, config by config.

    python tools/run_in_tree.py python -m benchmarks.micro.convolutions [--only WORDS] [--configs 3]

bfloat16, channels last; float32 is left out, whose products the core computes exactly and the library in TF32. Times are of the device, of
calls in one replayed CUDA graph, one after the other with operands of their own, of more bytes together than the L2 cache keeps; what is
compared takes turns. "alone" is the library's convolution without what follows it, "library" the plan that keeps the library's call, "tiles"
the first guess of ours with the copies that it reads, "best" the quickest config, "limit" the operations at the chip's dense rate or the
bytes at its bandwidth. "error" is that of the best result of ours, and of the library's, in units of float64's norm, of the first images.

The end says, for each kind of convolution that product_costs.py tells apart, which shares of the device's bandwidth and rate explain what was
measured: the rows of `calibrated` in autotune/cost.py, how far off they are, and what default mode would lose by them.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tracework_inductor import InductorOptions, compile_plan, lower, schedule
from tracework_inductor.autotune.choose import FAVOUR
from tracework_inductor.autotune.cost import Calibration, Shares, device
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.codegen.triton.config import TileConfig
from tracework_inductor.codegen.triton.cores import tiles
from tracework_inductor.decisions.products import question
from tracework_inductor.schedule.choice import Answer, Choice
from tracework_primops import GraphBuilder, PrimGraph, PrimValue, TensorSpec, prims
from tracework_runtime import DEFAULT_OPTIONS, Artifact, load
from tracework_runtime.build import triton as build
from tracework_runtime.cache.memory import open_store

from benchmarks.micro.gemv import error, in_turns, recorded

BF16, F32 = torch.bfloat16, torch.float32
SETS_BYTES = 200_000_000
RATE, BANDWIDTH = 989e12, 4.2e12
"""Of an H200's tensor cores, and of its memory as copies reach it."""
REFERENCE = 2
"""Images whose results are compared with float64's."""
OPTIONS = InductorOptions(products="tiles")


@dataclass(frozen=True)
class Case:
    """A convolution of `images` images, and what follows it: words of AFTER."""

    name: str
    images: int
    channels: int
    sizes: tuple[int, ...]
    results: int
    window: int
    stride: int = 1
    padding: int = 0
    after: str = "norm relu"

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """Of the images of the result."""
        return tuple((s + 2 * self.padding - self.window) // self.stride + 1 for s in self.sizes)

    def shapes(self) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Of image, weight, scale, shift, bias and residual."""
        of_channels, dims = (self.results,), len(self.sizes)
        return [
            ((self.images, self.channels, *self.sizes), BF16),
            ((self.results, self.channels, *[self.window] * dims), BF16),
            (of_channels, F32),
            (of_channels, F32),
            (of_channels, BF16),
            ((self.images, self.results, *self.result_sizes), BF16),
        ]

    @property
    def moved(self) -> int:
        """Bytes of image, weight, result and residual."""
        image, weight, *_, result = (2 * math.prod(sizes) for sizes, _ in self.shapes())
        return image + weight + result * (2 if "residual" in self.after else 1)

    @property
    def operations(self) -> int:
        """A multiplication and an addition are two."""
        weight, result = (math.prod(self.shapes()[n][0]) for n in (1, 5))
        return 2 * weight * result // self.results


def _gelu(y: Any) -> Any:
    return prims.mul(prims.mul(y, 0.5), prims.add(prims.erf(prims.mul(y, 0.7071067811865476)), 1.0))


def _hardswish(y: Any) -> Any:
    return prims.mul(y, prims.div(prims.minimum(prims.relu(prims.add(y, 3.0)), 6.0), 6.0))


Part = tuple[Callable[..., Any], Callable[..., Any]]
AFTER: dict[str, Part] = {
    "bias": (lambda y, s, t, b, h: prims.add(y, b), lambda y, s, t, b, h: y + b),
    "norm": (
        lambda y, s, t, b, h: prims.convert(prims.add(prims.mul(prims.convert(y, F32), s), t), BF16),
        lambda y, s, t, b, h: y * s + t,
    ),
    "residual": (lambda y, s, t, b, h: prims.add(y, h), lambda y, s, t, b, h: y + h),
    "relu": (lambda y, *_: prims.relu(y), lambda y, *_: torch.relu(y)),
    "silu": (lambda y, *_: prims.mul(y, prims.sigmoid(y)), lambda y, *_: torch.nn.functional.silu(y)),
    "hardswish": (lambda y, *_: _hardswish(y), lambda y, *_: torch.nn.functional.hardswish(y)),
    "gelu": (lambda y, *_: _gelu(y), lambda y, *_: torch.nn.functional.gelu(y)),
}
"""Word -> of a result, scale, shift, bias and another image, what follows: in prims, and in torch. "norm" is a batch norm in inference."""

SQUARE = {size: (size, size) for size in (7, 14, 28, 56, 64, 112, 224)}
CASES = (
    Case("resnet first", 64, 3, SQUARE[224], 64, 7, 2, 3),
    Case("mobilenetv3 first", 64, 3, SQUARE[224], 16, 3, 2, 1, "norm hardswish"),
    Case("efficientnet first", 64, 3, SQUARE[224], 32, 3, 2, 1, "norm silu"),
    Case("vgg first", 32, 3, SQUARE[224], 64, 3, 1, 1, "bias relu"),
    Case("convnext first", 64, 3, SQUARE[224], 96, 4, 4, 0, "bias"),
    Case("unet first", 8, 4, SQUARE[64], 320, 3, 1, 1, "bias"),
    Case("resnet50 1x1 64>64", 64, 64, SQUARE[56], 64, 1),
    Case("resnet50 1x1 64>256", 64, 64, SQUARE[56], 256, 1, after="norm residual relu"),
    Case("resnet50 1x1 256>64", 64, 256, SQUARE[56], 64, 1),
    Case("resnet50 1x1 128>512", 64, 128, SQUARE[28], 512, 1, after="norm residual relu"),
    Case("resnet50 1x1 512>128", 64, 512, SQUARE[28], 128, 1),
    Case("resnet50 1x1 256>1024", 64, 256, SQUARE[14], 1024, 1, after="norm residual relu"),
    Case("resnet50 1x1 1024>256", 64, 1024, SQUARE[14], 256, 1),
    Case("resnet50 1x1 512>2048", 64, 512, SQUARE[7], 2048, 1, after="norm residual relu"),
    Case("resnet50 stride 256>512", 64, 256, SQUARE[56], 512, 1, 2, after="norm"),
    Case("mobilenetv3 1x1 16>64", 64, 16, SQUARE[112], 64, 1),
    Case("mobilenetv3 1x1 72>24", 64, 72, SQUARE[56], 24, 1, after="norm residual"),
    Case("mobilenetv3 1x1 40>240", 64, 40, SQUARE[28], 240, 1, after="norm hardswish"),
    Case("mobilenetv3 1x1 672>112", 64, 672, SQUARE[14], 112, 1, after="norm"),
    Case("mobilenetv3 1x1 160>960", 64, 160, SQUARE[7], 960, 1, after="norm hardswish"),
    Case("efficientnet 1x1 16>96", 64, 16, SQUARE[112], 96, 1, after="norm silu"),
    Case("efficientnet 1x1 144>24", 64, 144, SQUARE[56], 24, 1, after="norm residual"),
    Case("resnet18 3x3 64", 64, 64, SQUARE[56], 64, 3, 1, 1, "norm residual relu"),
    Case("resnet18 3x3 128", 64, 128, SQUARE[28], 128, 3, 1, 1, "norm residual relu"),
    Case("resnet18 3x3 256", 64, 256, SQUARE[14], 256, 3, 1, 1, "norm residual relu"),
    Case("resnet18 3x3 512", 64, 512, SQUARE[7], 512, 3, 1, 1, "norm residual relu"),
    Case("resnet18 3x3 64>128/2", 64, 64, SQUARE[56], 128, 3, 2, 1),
    Case("unet 3x3 320", 8, 320, SQUARE[64], 320, 3, 1, 1, "bias"),
    Case("whisper first", 8, 80, (3000,), 512, 3, 1, 1, "bias gelu"),
    Case("whisper second", 8, 512, (3000,), 512, 3, 2, 1, "bias gelu"),
)
"""Batches of 64 images of 224x224 through image classifiers, and others as they are served."""


def strides_of(sizes: Sequence[int]) -> tuple[int, ...]:
    """Channels last of images, row-major of everything else."""
    return tuple(_memory(torch.empty(sizes, device="meta")).stride())


def _memory(t: torch.Tensor) -> torch.Tensor:
    return t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t


def graph_of(case: Case) -> PrimGraph:
    """The graph of a case."""
    graph, values = torch.fx.Graph(), []
    for n, (sizes, dtype) in enumerate(case.shapes()):
        node = graph.placeholder(f"a{n}")
        node.meta["spec"] = TensorSpec(dtype, torch.device("cuda", 0), sizes, strides_of(sizes))
        values.append(PrimValue(node.meta["spec"], node))
    dims = len(case.sizes)
    with GraphBuilder(graph):
        x, w, *channels, h = values
        y = prims.convolution(x, w, None, *((n,) * dims for n in (case.stride, case.padding, 1)), False, (0,) * dims, 1)
        beside = [prims.reshape(v, (1, case.results, *[1] * dims)) for v in channels]
        for word in case.after.split():
            y = AFTER[word][0](y, *beside, h)
    graph.output((y.node,))
    return PrimGraph.from_fx(graph)


def convolved(case: Case, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The convolution alone, by the library."""
    call = (torch.nn.functional.conv1d, torch.nn.functional.conv2d)[len(case.sizes) - 1]
    return call(x, w, None, case.stride, case.padding)


def exact(case: Case, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The first images of the result in float64."""
    x, w, *channels, h = (t.double() for t in operands)
    y = convolved(case, x[:REFERENCE], w)
    for word in case.after.split():
        y = AFTER[word][1](y, *(v.view(-1, *[1] * len(case.sizes)) for v in channels), h[:REFERENCE])
    return y


@dataclass
class Ways:
    """What is measured of a case: the choice, the configs that it is measured with, the best guess first, and the program of each way."""

    case: Case
    choice: Choice
    configs: dict[str, TileConfig]
    artifacts: dict[str, Artifact]


def ways_of(case: Case, count: int, capability: int) -> Ways:
    """Plans of the library, and of so many configs of each form: with descriptors or not, of blocks that take several tiles or one."""
    graph, found = graph_of(case), list[Choice]()
    program = lower(graph, OPTIONS)

    def planned(config: TileConfig | None) -> Artifact:
        def choose(choices: Sequence[Choice]) -> Answer:
            found[:] = choices
            return Answer({} if config is None else {choices[0].name: config.record()})

        return compile_plan(graph, schedule(program, OPTIONS, TritonRenderer.capabilities, choose), OPTIONS)

    library = planned(None)
    guesses = tiles.configs(found[0].core, capability)
    of_form: dict[tuple[bool, bool], list[TileConfig]] = {}
    for guess in guesses:
        of_form.setdefault((guess.descriptors, guess.persistent), []).append(guess)
    picked = {guess for some in of_form.values() for guess in some[:count]}
    configs = {f"tiles {n}": c for n, c in enumerate(guess for guess in guesses if guess in picked)}
    return Ways(case, found[0], configs, {"library": library, **{way: planned(config) for way, config in configs.items()}})


def build_kernels(artifacts: Sequence[Artifact], capability: int) -> None:
    """Compiles what is not in the cache folder, in as many processes as there are cores."""
    jobs = [
        build.request(kernel, entry, kernel.launch["configs"][0], build.Variant(), capability)
        for artifact in artifacts
        for kernel in artifact.kernels
        if kernel.language == "triton"
        for entry in kernel.launch["entries"]
    ]
    build.build_each(jobs, DEFAULT_OPTIONS, open_store(DEFAULT_OPTIONS))


def measure(ways: Ways) -> tuple[list[str], dict[str, float]]:
    """Lines: the case, and each config; microseconds of each way."""
    case = ways.case
    torch.manual_seed(0)
    count = max(2, min(16, -(-SETS_BYTES // case.moved)))
    sets = [[_memory(torch.randn(sizes, dtype=dtype, device="cuda") / 4) for sizes, dtype in case.shapes()] for _ in range(count)]
    calls: dict[str, Callable[..., Any]] = {"alone": lambda s: convolved(case, s[0], s[1])}
    lines = []
    for way, artifact in ways.artifacts.items():
        try:
            program = load(artifact)
            program(list(sets[0]))
            calls[way] = lambda s, program=program: program(list(s))[0]  # type: ignore[misc]
        except Exception as refused:  # a config that the device cannot run is a row, not the end
            lines.append(f"    {way} {ways.configs.get(way)}: {type(refused).__name__}: {refused}")
    wanted = exact(case, sets[0])
    errors = {way: error(call(sets[0])[:REFERENCE], wanted) for way, call in calls.items() if way != "alone"}
    graphs = {way: recorded([lambda s=s, call=call: call(s) for s in sets]) for way, call in calls.items()}  # type: ignore[misc]
    us = {way: ms * 1e3 / len(sets) for way, ms in in_turns(graphs).items()}
    ran = {way: us[way] for way in ways.configs if way in us}
    best = min(ran, key=lambda way: ran[way])
    limit = 1e6 * max(case.operations / RATE, case.moved / BANDWIDTH)
    figures = "".join(f"{n:8.1f}" for n in (limit, us["alone"], us["library"], us.get("tiles 0", math.nan), us[best]))
    head = f"{case.name:24s}{case.after:19s}{figures}{us['library'] / us[best]:8.2f}   {errors[best]:.1e} {errors['library']:.1e}"
    for way, taken in ran.items():
        c = ways.configs[way]
        form = f"parts {c.parts}" if c.parts > 1 else f"persistent {c.at_once}" if c.persistent else ""
        form = f"{form} descriptors {c.slices}" if c.descriptors else form
        lines.append(f"    {c.rows}x{c.columns}x{c.inner} warps {c.num_warps} stages {c.num_stages} {form:28s}{taken:8.1f}")
    return [head, *lines], us


STEPS = tuple(0.05 * n for n in (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20))
"""Shares that are tried."""


def predictions(choices: Sequence[Choice], kind: str, shares: Shares) -> list[tuple[float, float]]:
    """Microseconds of ours and of the library's way, if both reach these shares."""
    on = dataclasses.replace(device(), calibrated={kind: Calibration(shares, shares)})
    asked = [question(choice, on, "default").candidates for choice in choices]
    return [(ours.predicted_us or 0.0, library.predicted_us or 0.0) for library, ours, *_ in asked]


def calibration(kind: str, measured: Sequence[tuple[Ways, dict[str, float]]]) -> list[str]:
    """The shares with the least typical error, and what is lost where they choose the slower way."""
    choices = [ways.choice for ways, _ in measured]
    times = [(us["tiles 0"], us["library"]) for _, us in measured]
    by_shares = {s: predictions(choices, kind, s) for s in itertools.starmap(Shares, itertools.product(STEPS, STEPS))}

    def off(shares: Shares, way: int) -> float:
        return sum(abs(math.log(p[way] / t[way])) for p, t in zip(by_shares[shares], times, strict=True)) / len(times)

    core, library = (min(by_shares, key=lambda s, way=way: off(s, way)) for way in (0, 1))  # type: ignore[misc]
    taken = [(p[0], q[1]) for p, q in zip(by_shares[core], by_shares[library], strict=True)]
    chosen = [t[0] if p[0] < FAVOUR * p[1] else t[1] for p, t in zip(taken, times, strict=True)]
    text = ", ".join(f"Shares({s.bandwidth:.2f}, {s.rate:.2f})" for s in (core, library))
    lines = [
        f'"{kind}": Calibration({text})  off by {off(core, 0):.0%} and {off(library, 1):.0%};'
        f" chosen {sum(chosen):.0f} us, best {sum(map(min, times)):.0f}, library {sum(t[1] for t in times):.0f}"
    ]
    for (ways, _), p, t, c in zip(measured, taken, times, chosen, strict=True):
        note = "  the slower one" if c > min(t) * 1.02 else ""
        lines.append(f"    {ways.case.name:24s}ours {p[0]:7.1f} for {t[0]:7.1f}, library {p[1]:7.1f} for {t[1]:7.1f}{note}")
    return lines


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names hold one of these words, separated by commas")
    parser.add_argument("--configs", type=int, default=3, help="how many configs of each form are measured")
    chosen = parser.parse_args()
    major, minor = torch.cuda.get_device_capability()
    capability = 10 * major + minor
    words = chosen.only.split(",")
    every = [ways_of(c, chosen.configs, min(capability, 90)) for c in CASES if any(word in c.name for word in words)]
    build_kernels([artifact for ways in every for artifact in ways.artifacts.values()], capability)
    print(torch.cuda.get_device_name())
    print(
        f"{'case':24s}{'':19s}{'limit':>8s}{'alone':>8s}{'library':>8s}{'tiles':>8s}{'best':>8s}{'/libr.':>8s}   error: ours, library's"
    )
    by_kind: dict[str, list[tuple[Ways, dict[str, float]]]] = {}
    for ways in every:
        lines, us = measure(ways)
        print("\n".join(lines), flush=True)
        if "tiles 0" in us:
            by_kind.setdefault(question(ways.choice, device(), "default").problem.kind, []).append((ways, us))
        torch.cuda.empty_cache()
    for kind, measured in by_kind.items():
        print("\n".join(calibration(kind, measured)), flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
