"""Several processes that build the same kernels into one cache."""

import subprocess
import sys
import textwrap

from tracework_runtime import FORMAT

SCRIPT = """
import sys, torch
from tracework_runtime import Artifact, KernelSource, RuntimeOptions, load
source = 'extern "C" void k(float* x) { x[0] = 41 + 1; }'
host = "import torch\\ndef call(args):\\n    y = torch.zeros(1)\\n    k0(y.data_ptr())\\n    return (y,)\\n"
fn = load(Artifact("c" * 8, host, (KernelSource("k0", "cpp", source, ("*fp32",), {"entry": "k"}),)),
          RuntimeOptions(cache_dir=sys.argv[1]))
print(fn([])[0].item())
"""


def test_processes_share_a_cache(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "cache")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [p.communicate(timeout=120)[0].strip() for p in processes] == ["42.0"] * 3
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1
    assert not list((tmp_path / "cache" / f"v{FORMAT}" / "tmp").iterdir())
