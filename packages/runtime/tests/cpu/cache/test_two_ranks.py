"""Two processes of torch.distributed on the CPU, each with a cache folder of its own."""

import os
import subprocess
import sys
import time

import pytest

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
import torch.distributed as dist
from tracework_runtime import Artifact, KernelSource, RuntimeOptions, counters, load, open_cache
from tracework_runtime.cache import ranks

ranks.DEAD, ranks.BEAT = 2.0, 0.2
rank, killed, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[4]}", rank=rank, world_size=2)
options = RuntimeOptions(cache_dir=str(folder / str(rank)), cache_key=str(folder / "key"))
cache = open_cache(options)
host = "def call(args):\\n    return (answer(),)\\n"
source = KernelSource("answer", "cpp", 'extern "C" int answer(void) { return 42; }', (), {"result": "i32"})

def make():
    time.sleep(0.5)
    return Artifact("a" * 64, host, (source,))

def make_and_die():
    (folder / "begun").touch()
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)

dist.barrier()
assert load(cache.get_or_make("a" * 64, make), options)([]) == (42,)
found = counters()
print(found.get("ranks.made", 0), found.get("ranks.fetched", 0), flush=True)
dist.barrier()
if rank == killed:
    cache.get_or_make("b" * 64, make_and_die)
while not (folder / "begun").exists():
    time.sleep(0.01)
print(cache.get_or_make("b" * 64, make).key[0], flush=True)
os._exit(0)  # the other one is not there to say goodbye
"""


@pytest.mark.parametrize("killed", [0, 1], ids=["the rank with the store", "another rank"])
def test_one_makes_and_the_other_goes_on_where_it_is_killed(killed, tmp_path):
    (tmp_path / "key").write_bytes(os.urandom(32))
    port = 20000 + os.getpid() % 20000 + killed
    commands = [[sys.executable, "-c", PROGRAM, str(rank), str(killed), str(tmp_path), str(port)] for rank in (0, 1)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    begun = time.monotonic()
    said = [process.communicate(timeout=60)[0].split() for process in running]
    # the artifact and its kernel: what one has made, the other has fetched
    assert [float(one[0]) + float(one[1]) for one in said] == [2, 2] and sum(float(one[0]) for one in said) == 2
    assert [one[2:] for one in said] == ([[], ["b"]] if killed == 0 else [["b"], []])
    assert [process.returncode == 0 for process in running] == [killed == 1, killed == 0]
    assert time.monotonic() - begun < 60
