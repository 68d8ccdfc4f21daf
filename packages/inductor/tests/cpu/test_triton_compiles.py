"""Every rendered kernel compiles for Hopper, without a GPU."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_runtime import RuntimeOptions, Store
from tracework_runtime.build import triton as build
from tracework_runtime.elf import is_whole
from triton_samples import SAMPLES

pytest.importorskip(
    "triton_interpreter", reason="triton is not installed"
)  # chooses the interpreter before anybody imports triton


@pytest.mark.parametrize("block", range(4))
def test_all_samples_compile_for_hopper(block, tmp_path):
    """In blocks, as processes that compile take seconds to start."""
    renderer = TritonRenderer()
    jobs = []
    for name in [*SAMPLES][block::4]:
        (kernel,) = renderer.pack([(name.replace(" ", "_"), renderer.render(SAMPLES[name]().kernel))])
        for variant in (build.Variant(), build.Variant(aligned=False, wide=bool(kernel.launch["fits32"]))):
            for entry in kernel.launch["entries"]:
                jobs.append(build.request(kernel, entry, kernel.launch["configs"][0], variant, 90))
    cubins = build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    assert len(cubins) == len(jobs)
    for cubin, job in zip(cubins, jobs, strict=True):
        assert is_whole(cubin.code) and not is_whole(cubin.code[:-1])
        if job["entry"] == "kernel":
            assert (b"__assertfail" in cubin.code) == job["checks"] == ("device_assert" in job["source"])
        assert cubin.params >= len(job["arguments"])
        assert cubin.num_warps == job["num_warps"]
        assert cubin.symbol == job["symbol"]
