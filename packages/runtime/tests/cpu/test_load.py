import gc
import linecache
import logging
from pathlib import Path

import pytest
import torch
from tracework_runtime import Artifact, BuildError, KernelSource, LoadError, RuntimeOptions, load
from tracework_runtime.build import cpp

SOURCE = """
#include <cstdint>
extern "C" void twice(const float* x, float* y, int64_t n) {
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) y[i] = 2 * x[i];
}
"""
HOST = """
import torch
def call(args):
    x, = args
    args.clear()
    y = torch.empty_like(x)
    k0(x.data_ptr(), y.data_ptr(), x.numel())
    return (y,)
"""


@pytest.fixture
def options(tmp_path):
    return RuntimeOptions(cache_dir=str(tmp_path / "cache"))


def artifact(source=SOURCE):
    kernel = KernelSource("k0", "cpp", source, ("*fp32", "*fp32", "i64"), {"entry": "twice"})
    return Artifact("k" * 8, HOST, (kernel,), places={"k0": {"m.py:3 in f add": (0,)}})


def test_builds_and_runs(options):
    fn = load(artifact(), options)
    x = torch.randn(1000)
    box = [x]
    assert torch.equal(fn(box)[0], 2 * x)
    assert box == []
    assert fn.origins == {"k0": ("m.py:3 in f add",)}


def test_second_load_builds_nothing(options, monkeypatch):
    load(artifact(), options)
    monkeypatch.setattr(cpp, "_compile", None)
    load(artifact(), options)


def test_damaged_product_is_built_again(options, caplog):
    from tracework_runtime.launch import cpp as launch

    load(artifact(), options)
    launch._OPEN.clear()
    (product,) = __import__("pathlib").Path(options.cache_dir).rglob("*.so")
    other = product.read_bytes()[:-50]
    product.unlink()
    product.write_bytes(other)
    with caplog.at_level(logging.WARNING, "tracework.runtime.cache"):
        fn = load(artifact(), options)
    assert "thrown away" in caplog.text
    assert torch.equal(fn([torch.ones(3)])[0], torch.full((3,), 2.0))


def test_compile_error_has_an_excerpt(options):
    with pytest.raises(BuildError, match="around line") as caught:
        load(artifact("void f() { nonsense; }"), options)
    assert "nonsense" in caught.value.excerpt


def test_missing_compiler_names_the_extra(monkeypatch):
    monkeypatch.setattr(cpp, "COMPILERS", (("g++", lambda: None),))
    cpp.find_compiler.cache_clear()
    try:
        with pytest.raises(BuildError, match="ziglang"):
            cpp.find_compiler()
    finally:
        cpp.find_compiler.cache_clear()


def test_missing_device(options):
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(LoadError, match="cuda"):
        load(artifact().replace(devices=frozenset({"cuda:0"})), options)


PARALLEL = """
#include <stdint.h>
extern "C" void twice(const float* p0, float* p1, int64_t n) {
  #pragma omp parallel for num_threads(4)
  for (int64_t i = 0; i < n; ++i) p1[i] = 2 * p0[i];  // NUMBER
}
"""


def test_what_nobody_holds_is_unloaded(options):
    """A process may compile more graphs than it can map libraries. The threads of OpenMP stay."""
    x = torch.randn(1000)

    def all_mapped():
        """What the libraries and host programs of the whole process have."""
        gc.collect()
        lines = Path("/proc/self/maps").read_text().splitlines()
        libraries = {line for line in lines if options.cache_dir in line or "memfd:" in line}
        return libraries, {name for name in linecache.cache if name.startswith("<tracework host")}

    before = all_mapped()

    def mapped():
        """How much of it is of this test: what others left may go meanwhile."""
        return tuple(len(now - then) for now, then in zip(all_mapped(), before, strict=True))

    held = load(artifact(PARALLEL.replace("NUMBER", "7")), options)
    one = mapped()
    assert all(one)
    for n in range(12):
        kernels = artifact(PARALLEL.replace("NUMBER", str(n % 4))).replace(key=f"{n:08}")
        assert torch.equal(load(kernels, options)([x])[0], 2 * x)
        assert torch.equal(held([x])[0], 2 * x)
    assert mapped() == one
    call = held.call
    del held
    assert mapped()[0] == one[0] and torch.equal(call([x])[0], 2 * x)
    del call
    assert mapped() == (0, 0)
