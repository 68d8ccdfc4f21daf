"""Products in tiles on a GPU: values of every form that is proposed, at edges, from addresses of all kinds, and in a recorded graph."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from product_programs import BF16, linear, silu, turned
from tracework_inductor import InductorOptions, compile_graph, compile_plan, lower, schedule
from tracework_inductor.autotune.cost import PRODUCT_OF_ROWS, device
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.codegen.triton.cores import tiles
from tracework_inductor.schedule.choice import Answer
from tracework_primops import prims
from tracework_runtime import DEFAULT_OPTIONS, load
from tracework_runtime.build import triton as build
from tracework_runtime.cache.memory import open_store
from tracework_runtime.device.cuda import capability
from triton_programs import graph_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

M, N, K = 4000, 1032, 520
"""No multiples of tiles, and more tiles of the largest kind than multiprocessors."""

PROGRAMS = {
    "mm": (lambda x, w: linear(x, w), ((M, K), (N, K)), lambda x, w: x @ w.T),
    "turned": (lambda x, w: prims.mm(turned(x), w), ((K, M), (K, N)), lambda x, w: x.T @ w),
    "bias, tanh": (
        lambda x, w, b: prims.tanh(prims.addmm(b, x, turned(w))),
        ((M, K), (N, K), (N,)),
        lambda x, w, b: torch.tanh(x @ w.T + b),
    ),
    "gate": (
        lambda x, w, g: prims.mul(silu(g), linear(x, w)),
        ((M, K), (N, K), (M, N)),
        lambda x, w, g: torch.nn.functional.silu(g) * (x @ w.T),
    ),
    "rows of 16 bytes and a bit": (lambda x, w: linear(x, w), ((M, K), (N + 1, K)), lambda x, w: x @ w.T),
}
"""name -> program, sizes of its inputs, the same in torch."""


def compiled(graph, configs):
    """The program with a core of each of these configs; all are built at the same time."""
    artifacts = [artifact_of(graph, config.record()) for config in configs]
    kernels = [k for artifact in artifacts for k in artifact.kernels]
    jobs = [
        build.request(k, entry, k.launch["configs"][0], build.Variant(aligned), capability())
        for k in kernels
        for entry in k.launch["entries"]
        for aligned in (True, False)
    ]
    build.build_each(jobs, DEFAULT_OPTIONS, open_store(DEFAULT_OPTIONS))
    return [load(artifact, check_inputs=False) for artifact in artifacts]  # of other addresses, too


def artifact_of(graph, record):
    options = InductorOptions(products="tiles")
    plan = schedule(
        lower(graph, options),
        options,
        TritonRenderer.capabilities,
        lambda choices: Answer({choice.name: record for choice in choices}),
    )
    return compile_plan(graph, plan, options)


def proposed(graph):
    """Each way to walk over tiles and to compute what follows, once."""
    options, found = InductorOptions(products="tiles"), {}

    def choose(choices):
        for c in tiles.configs(choices[0].core, 90 if capability() >= 90 else 80):
            found.setdefault((c.slices, c.persistent, c.parts > 1, c.descriptors), c)
        return Answer({})

    schedule(lower(graph, options), options, TritonRenderer.capabilities, choose)
    return list(found.values())


def close(found, wanted):
    error = (found.double() - wanted).abs()
    return bool((error <= 2**-7 * wanted.abs() + 2**-8 * wanted.abs().mean()).all())


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    torch.manual_seed(0)
    program, sizes, eager = PROGRAMS[name]
    given = [torch.randn(s, device="cuda", dtype=BF16) for s in sizes]
    # From addresses that are not aligned, descriptors are not made; one before the first is a NaN.
    apart = [torch.full((t.numel() + 1,), torch.nan, device="cuda", dtype=BF16)[1:].view(t.shape).copy_(t) for t in given]
    wanted = eager(*(t.double() for t in given))
    graph = graph_of(program, *given)
    configs = proposed(graph)
    for config, run in zip(configs, compiled(graph, configs), strict=True):
        for inputs in (given, apart) if name == "mm" else (given,):
            for _ in range(2):  # what the first run left in memory of the kernel's own is there again
                (found,) = run(list(inputs))
                assert found.stride() == (wanted.shape[1], 1)
                assert close(found, wanted), (config, inputs is apart)


@pytest.mark.skipif(torch.cuda.is_available() and capability() < 90, reason="no descriptors before compute capability 9.0")
def test_recorded():
    """Descriptors are made anew in each replay, in memory that the graph keeps."""
    program, sizes, eager = PROGRAMS["gate"]
    given = [torch.randn(s, device="cuda", dtype=BF16) for s in sizes]
    graph = graph_of(program, *given)
    (run,) = compiled(graph, [next(c for c in proposed(graph) if c.descriptors)])
    run(list(given))
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        (found,) = run(list(given))
    for _ in range(3):
        for t in given:
            t.normal_()
        taken = torch.full((1 << 20,), 255, dtype=torch.uint8, device="cuda")
        recorded.replay()
        assert close(found, eager(*(t.double() for t in given))), taken.shape


@pytest.mark.skipif(
    not torch.cuda.is_available() or PRODUCT_OF_ROWS not in device().calibrated,
    reason="products are not predicted on this device",
)
def test_logits_in_default_mode():
    """One kernel writes rows that begin anywhere, and beside the result there is no memory of its size, nor of a piece of it."""
    rows, columns, inner = 16384, 30522, 768
    x, w, b = given = [torch.randn(s, device="cuda", dtype=BF16) for s in ((rows, inner), (columns, inner), (columns,))]
    run = load(compile_graph(graph_of(lambda x, w, b: prims.addmm(b, x, turned(w)), *given)))
    run(list(given))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    (found,) = run(list(given))
    result = 2 * rows * columns
    assert result <= torch.cuda.max_memory_allocated() - before < 1.01 * result
    assert found.stride() == (columns, 1)
    for first in range(0, rows, 4096):
        assert close(found[first : first + 4096], x[first : first + 4096].double() @ w.double().T + b.double())
