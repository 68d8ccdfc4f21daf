"""Several processes that share one cache."""

import subprocess
import sys

from tracework_runtime import FORMAT

LOADING = """
import sys, torch
from tracework_runtime import Artifact, KernelSource, RuntimeOptions, counters, load, open_cache
from tracework_runtime.cache import memory
from tracework_runtime.launch import cpp
folder, times, kinds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
host = "import torch\\ndef call(args):\\n    y = torch.zeros(1)\\n    k0(y.data_ptr())\\n    return (y,)\\n"
options = RuntimeOptions(cache_dir=folder + "/cache", cache_key=folder + "/key")
for n in range(times):
    memory._store.cache_clear(), memory._cache.cache_clear(), cpp._OPEN.clear()
    kind = n % kinds
    source = 'extern "C" void k(float* x) { x[0] = 41 + %d; }' % kind
    kernels = (KernelSource("k0", "cpp", source, ("*fp32",), {"entry": "k"}),)
    cache, key = open_cache(options), f"{kind:064d}"
    fn = cache.loaded(lambda: cache.get_or_make(key, lambda: Artifact(key, host, kernels)), lambda a: load(a, options))
    assert fn([])[0].item() == 41 + kind
print("right", int(counters().get("build.cpp", 0)))
"""
CLEARING = """
import sys, time
from tracework_runtime import Store, secret
store = Store(sys.argv[1] + "/cache", limit=0, secret_key=secret(sys.argv[1] + "/key"))
while True:
    store.clear()
    store.evict()
    time.sleep(0.005)
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def said(process):
    return process.communicate(timeout=120)[0].split()


def test_processes_share_a_cache_and_its_key(tmp_path):
    for process in [start(LOADING, tmp_path, 1, 1) for _ in range(3)]:
        assert said(process)[0] == "right"
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1
    assert not list((tmp_path / "cache" / f"v{FORMAT}" / "tmp").iterdir())
    assert said(start(LOADING, tmp_path, 1, 1)) == ["right", "0"]


def test_processes_load_while_another_clears(tmp_path):
    clearing = start(CLEARING, tmp_path)
    try:
        for process in [start(LOADING, tmp_path, 12, 4) for _ in range(2)]:
            assert said(process)[0] == "right"
    finally:
        clearing.kill()
        clearing.communicate(timeout=60)
