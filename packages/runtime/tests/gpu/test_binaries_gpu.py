"""Stored cubins that the driver cannot load are compiled again."""

import pytest
import torch
from tracework_runtime import Artifact, KernelSource, RuntimeOptions, container, counters, load, open_cache, reset_counters
from tracework_runtime.cache import memory

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def kernel(p0, p1, XBLOCK: tl.constexpr, WIDE: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(p1 + x, tl.load(p0 + x) * 2)
"""
HOST = "import torch\ndef call(args):\n    y = torch.empty_like(args[0])\n    k0(args[0], y)\n    return (y,)\n"
LAUNCH = {
    "entries": ["kernel"],
    "grids": ["4"],
    "configs": [{"constants": {"XBLOCK": 128}, "num_warps": 4, "num_stages": 1}],
}
DAMAGES = {
    "nothing": lambda code: code,
    "empty": lambda code: b"",
    "rubbish": lambda code: b"rubbish",
    "half": lambda code: code[: len(code) // 2],
    "nine tenths": lambda code: code[: len(code) * 9 // 10],
    "without its last byte": lambda code: code[:-1],
}


def run(options):
    """What a process that starts now compiles; its values are right."""
    memory._store.cache_clear()
    memory._cache.cache_clear()
    reset_counters()
    fn = load(
        Artifact("k", HOST, (KernelSource("k0", "triton", SOURCE, ("*fp32", "*fp32"), LAUNCH),), devices={"cuda:0"}), options
    )
    x = torch.randn(512, device="cuda")
    assert torch.equal(fn([x])[0], x * 2)
    return int(counters().get("build.triton.kernels", 0))


@pytest.mark.parametrize("name", DAMAGES)
def test_binaries_that_cannot_be_loaded(tmp_path, name):
    options = RuntimeOptions(cache_dir=str(tmp_path / "cache"), cache_key=str(tmp_path / "key"))
    assert run(options) == 1
    store = open_cache(options).store
    (path,) = (tmp_path / "cache").rglob("*.cubin")
    facts, sections = container.unpack(store.get("triton", path.stem, ".cubin"))
    store.put("triton", path.stem, container.pack(facts, {"cubin": DAMAGES[name](sections["cubin"])}), ".cubin")
    assert run(options) == (name != "nothing")
    assert run(options) == 0
