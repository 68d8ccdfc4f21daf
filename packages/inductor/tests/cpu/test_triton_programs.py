"""Whole programs of prims: Triton's interpreter against eager references, and compiled for Hopper."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from prim_programs import result_names

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build  # noqa: E402
from triton_programs import PROGRAMS, graph_of, rendered  # noqa: E402


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name, tmp_path):
    torch.manual_seed(0)
    program, inputs = PROGRAMS[name]
    arguments = inputs()
    graph = graph_of(program, *arguments)
    expected = graph.run(*[a.clone() for a in arguments])
    host, kernels = rendered(graph)
    outputs = triton_interpreter.host_call(host, kernels, tmp_path)(list(arguments))
    for one, value, wanted in zip(result_names(graph), outputs, expected, strict=True):
        limit = 2e-2 if wanted.dtype == torch.bfloat16 else 1e-4
        torch.testing.assert_close(value, wanted, rtol=limit, atol=limit, msg=lambda m, one=one: f"{one}: {m}")


def test_all_compile_for_hopper(tmp_path):
    renderer, jobs = TritonRenderer(), []
    for program, inputs in PROGRAMS.values():
        for kernel in renderer.pack(list(rendered(graph_of(program, *inputs()))[1].items())):
            for entry in kernel.launch["entries"]:
                jobs.append(build.request(kernel, entry, kernel.launch["configs"][0], build.Variant(), 90))
    assert len(build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))) == len(jobs) > 10
