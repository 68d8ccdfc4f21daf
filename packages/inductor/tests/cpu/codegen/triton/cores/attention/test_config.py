"""Blocks of attention's kernels, compiled for Hopper and Ampere."""

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[5]))

import pytest
import torch

pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_forms import causal, everything
from attention_kernels import BF16, CASES, CUDA, F32, SUMS, backward_program, forward_program, sums_program, texts, trained
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.codegen.triton.config import LIMITS
from tracework_inductor.codegen.triton.cores.attention import config as core
from tracework_primops import FakeMode, SymbolTable, trace_bodies
from tracework_runtime import RuntimeOptions, Store
from tracework_runtime.build import triton as build_triton
from triton_programs import graph_of, rendered

# functions that change scores and hide some, and what they read
READ_BY_BODIES = {
    "a slope of each head": (lambda s, b, h, i, j, x: s + x[h] * (j - i), causal, [torch.empty(4)]),
    "a bias of each head": (lambda s, b, h, i, j, x: s + x[h, i, j], causal, [torch.empty(4, 256, 256, dtype=BF16)]),
    "a mask, within a cap": (
        lambda s, b, h, i, j, x: 5 * torch.tanh(s / 5) + x[i, j],
        causal,
        [torch.empty(256, 256, dtype=BF16)],
    ),
    "a bias, then a low number": (
        lambda s, b, h, i, j, x: torch.where(i >= j, s + x[h, j], torch.finfo(F32).min),
        everything,
        [torch.empty(4, 256, dtype=BF16)],
    ),
}


@pytest.mark.parametrize(("capability", "name"), [(80, "documents"), (90, "soft-cap")])
def test_compiles(capability, name, tmp_path):
    like = [torch.empty(1, heads, 100, 64, dtype=BF16, device="meta") for heads in (8, 2, 2)]
    rows, captured, bodies = torch.empty(1, 8, 100, device="meta"), CASES[name][2], texts(name)
    jobs = []
    for program, inputs in ((forward_program(*bodies), like), (backward_program(*bodies), [like[0], *like, rows, rows, rows])):
        for kernel in rendered(graph_of(program, *inputs, *captured, device=CUDA))[1].values():
            (packed,) = TritonRenderer().pack([("attention", kernel)])
            jobs.append(build_triton.request(packed, "kernel", packed.launch["configs"][0], build_triton.Variant(), capability))
    for of in ("of each head", "of each key", "of each distance"):
        axes, sizes, function = SUMS[of]
        x = torch.empty([8 if a == "h" else n for a, n in zip(axes, sizes(100, 100))], device="meta")
        score, keep, _, ((_, _, factor),) = texts_of = trained(function, axes, x.shape)
        graph = graph_of(
            sums_program(score, keep, factor, texts_of.trained[0].along), like[0], *like, rows, rows, rows, x, device=CUDA
        )
        (kernel,) = rendered(graph)[1].values()
        (packed,) = TritonRenderer().pack([("attention", kernel)])
        jobs.append(build_triton.request(packed, "kernel", packed.launch["configs"][0], build_triton.Variant(), capability))
    cubins = build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    assert len(cubins) == len(jobs) == 6


@pytest.mark.parametrize("table", [core.FORWARD, core.OF_QUERIES, core.OF_KEYS], ids=["forward", "queries", "keys"])
def test_no_warp_computes_the_scores_of_another(table):
    """Each has 16 rows of a block or more, since warps stand below one another."""
    for width, (rows, _, warps, _) in table.items():
        assert rows >= 16 * warps or width > 128


@pytest.mark.parametrize(("capability", "most"), [(90, 32), (80, 104)], ids=str)
def test_no_register_spills(capability, most, tmp_path, monkeypatch):
    """Of kernels whose bodies read numbers of heads, masks and biases, and compute functions. A few of one of them do on each device.
    Narrower heads need fewer registers."""
    width = 128
    monkeypatch.setattr(core, "has_warp_groups", lambda index: capability == 90)
    tool = Path(pytest.importorskip("triton").__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        pytest.skip("triton brings no cuobjdump")
    like = [torch.empty(1, 4, 256, width, dtype=BF16, device="meta") for _ in range(3)]
    rows = torch.empty(1, 4, 256, device="meta")
    jobs, names = [], []
    for name, (score, keep, read) in READ_BY_BODIES.items():
        mode = FakeMode(SymbolTable())
        bodies = trace_bodies(score, keep, [mode.from_real(x) for x in read], F32, torch.device("cpu"), None)[:3]
        for program, inputs in (
            (forward_program(*bodies), like),
            (backward_program(*bodies), [like[0], *like, rows, rows, rows]),
        ):
            for kernel in rendered(graph_of(program, *inputs, *read, device=CUDA))[1].values():
                (packed,) = TritonRenderer().pack([("attention", kernel)])
                jobs.append(
                    build_triton.request(packed, "kernel", packed.launch["configs"][0], build_triton.Variant(), capability)
                )
                names.append((name, packed.launch["kind"]))
    cubins = build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    for name, cubin in zip(names, cubins, strict=True):
        path = tmp_path / "kernel.cubin"
        path.write_bytes(cubin.code)
        dump = [tool, "--dump-resource-usage", path]
        said = subprocess.run(dump, capture_output=True, text=True, check=True, timeout=60).stdout
        assert int(re.search(r"\bSTACK:(\d+)", said)[1]) <= most, (name, said)
        assert cubin.shared <= LIMITS[capability][0]
