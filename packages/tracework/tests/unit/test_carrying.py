"""Entries of the cache as bytes."""

import subprocess
import sys

import pytest
import tracework
import tracework_runtime as runtime
from tracework import compiler

PROGRAM = """
import sys, torch, tracework, tracework_runtime
from tracework import compiler
if sys.argv[1] == "load":
    print(sorted(compiler.load_cache_artifacts(open(sys.argv[2], "rb").read()).artifacts))
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU(), torch.nn.Linear(3, 3))
tracework.compile(model)(torch.ones(2, 3)).sum().backward()
if sys.argv[1] == "save":
    content, info = compiler.save_cache_artifacts()
    open(sys.argv[2], "wb").write(content)
    print(sorted(info.artifacts), len(info.inductor_artifacts))
print(sorted(name for name in tracework_runtime.counters() if name.startswith("cache.") and name.endswith("miss")))
"""


def run(task, file, cache, monkeypatch):
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(cache))
    done = subprocess.run([sys.executable, "-c", PROGRAM, task, str(file)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_is_loaded_is_not_compiled_again(tmp_path, monkeypatch):
    saved, missed = run("save", tmp_path / "bytes", tmp_path / "one", monkeypatch)
    assert saved == "['artifact', 'cpp', 'cut'] 2" and "cache.artifact.miss" in missed
    loaded, missed = run("load", tmp_path / "bytes", tmp_path / "other", monkeypatch)
    assert loaded == "['artifact', 'cpp', 'cut']" and missed == "['cache.entry.miss', 'cache.package.miss']"


def test_nothing_is_there_before_something_was_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path / "fresh"))
    assert compiler.save_cache_artifacts() is None
    monkeypatch.setenv("TRACEWORK_CACHE", "0")
    assert compiler.save_cache_artifacts() is None and compiler.load_cache_artifacts(b"anything") is None


def carried(entries):
    from tracework_runtime import container

    return container.pack({"entries": [list(name) for name, _ in entries]}, {str(n): c for n, (_, c) in enumerate(entries)})


DAMAGED = {
    "not bytes of ours": b"nothing",
    "cut short": carried([(("cut", "key", ""), b"1")])[:-3],
    "a name that leaves the folder": carried([(("cut", "../../key", ""), b"1")]),
    "a kind that leaves the folder": carried([(("..", "key", ""), b"1")]),
    "a suffix that leaves the folder": carried([(("cut", "key", "/../x"), b"1")]),
    "no list": carried([]).replace(b"entries", b"entriez"),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damaged_bytes_are_refused_as_a_whole(data, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path))
    with pytest.raises(tracework.InvalidArgument, match=r"load_cache_artifacts\(\)"):
        compiler.load_cache_artifacts(data)
    assert not [path for path in tmp_path.rglob("*key*") if path.is_file()]
    with pytest.raises(tracework.InvalidArgument, match="takes the bytes"):
        compiler.load_cache_artifacts((data, None))


def test_entries_are_sealed_anew_where_they_are_put(tmp_path):
    one, other = (runtime.Store(tmp_path / name, secret_key=name.encode() * 8) for name in ("one1", "two2"))
    one.put("cut", "key1", b"1 2")
    assert runtime.put_carried(other, runtime.carry(one, one.used)) == [("cut", "key1", "")]
    assert other.get("cut", "key1") == b"1 2"


def test_collectives_of_guards_are_off():
    assert compiler.set_enable_guard_collectives(False) is False
    with pytest.raises(tracework.InvalidArgument, match="each rank compiles for itself"):
        compiler.set_enable_guard_collectives(True)
    assert compiler.cudagraph_mark_warmup_incomplete() is None
