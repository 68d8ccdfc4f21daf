"""Binaries: what kernels were built to is carried as named bytes, and nothing is built where it is loaded."""

import importlib.util

import pytest
import torch
from tracework_runtime import Artifact, ArtifactError, Binaries, KernelSource, LoadError, RuntimeOptions, load
from tracework_runtime.build import cpp, triton
from tracework_runtime.build.triton import Cubin

SOURCE = 'extern "C" void twice(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = 2 * x[i]; }'
HOST = """
import torch


def call(args):
    (x,) = args
    y = torch.empty_like(x)
    twice(x.data_ptr(), y.data_ptr(), x.numel())
    return (y,)
"""
ON_CPU = Artifact("k" * 8, HOST, (KernelSource("twice", "cpp", SOURCE, ("*fp32", "*fp32", "i64")),))
LAUNCH = {
    "entries": ["kernel"],
    "configs": [{"constants": {}, "num_warps": 4, "num_stages": 3}],
    "grids": ["1"],
    "fits32": "ks0 < 9",
}
ON_GPU = KernelSource("k0", "triton", "source", ("*fp32", "i64"), LAUNCH)


def never(*args, **kwargs):
    raise AssertionError("something is built")


def test_kernels_of_a_cpu(tmp_path, monkeypatch):
    members = Binaries.of([ON_CPU], RuntimeOptions(cache_dir=str(tmp_path))).members()
    monkeypatch.setattr(cpp, "build_all", never)
    carried = Binaries.from_members(members)
    assert [name.partition("/")[0] for name in members] == ["cpp"]
    assert load(ON_CPU, binaries=carried)([torch.ones(3)])[0].tolist() == [2.0] * 3
    other = ON_CPU.replace(kernels=(KernelSource("twice", "cpp", SOURCE + "\n", ("*fp32", "*fp32", "i64")),))
    with pytest.raises(LoadError, match="not among what was carried"):
        load(other, binaries=carried)
    with pytest.raises(ArtifactError):
        Binaries.from_members({name: data[:-1] for name, data in members.items()})


@pytest.fixture
def on_gpu(monkeypatch):
    """What is carried of a kernel of a GPU, and what Triton was asked for."""
    asked = []

    def build(jobs, options, store):
        asked.extend(jobs)
        return [Cubin(job["symbol"].encode(), job["symbol"], 70_000 if job["num_stages"] == 3 else 50_000, 4, 2) for job in jobs]

    monkeypatch.setattr(triton, "build_all", build)
    made = Binaries.of([Artifact("k" * 8, HOST, (ON_GPU,))], RuntimeOptions(disk_cache=False))
    return made, asked


def test_kernels_of_a_gpu_in_every_form(on_gpu, monkeypatch):
    made, asked = on_gpu
    forms = {(bool(job["aligned"]), job["constants"]["WIDE"]) for job in asked}
    assert forms == {(aligned, wide) for aligned in (True, False) for wide in (True, False)}
    carried = Binaries.from_members(made.members())
    monkeypatch.undo()
    monkeypatch.setattr(triton, "triton_pool", never)
    for job in asked:
        (found,) = triton.build_all([job], RuntimeOptions(), carried)
        assert found.code == b"k0" and found.shared == 70_000


def test_kernels_of_other_gpus(monkeypatch):
    """Where a block may take less memory, there are fewer steps under way, as where it is launched."""
    asked = []

    def build(jobs, options, store):
        asked.extend((job["capability"], job["num_stages"]) for job in jobs)
        return [Cubin(b"code", job["symbol"], 40_000 * job["num_stages"], 4, 2) for job in jobs]

    monkeypatch.setattr(triton, "build_all", build)
    for capability in (80, 86):
        Binaries.of([Artifact("k" * 8, HOST, (ON_GPU,))], RuntimeOptions(disk_cache=False), capability)
    assert set(asked) == {(80, 3), (86, 3), (86, 2)}


def test_a_form_that_is_not_carried_needs_triton(on_gpu, monkeypatch):
    made, asked = on_gpu
    key = triton.content_key({**asked[0], "num_stages": 1})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LoadError, match="no Triton to make it"):
        made.get("triton", key, ".cubin")
    assert made.get("cut", key) is None
