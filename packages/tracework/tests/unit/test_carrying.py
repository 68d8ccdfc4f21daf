"""Entries of the cache as bytes."""

import functools
import subprocess
import sys

import pytest
import torch
import tracework
import tracework_runtime as runtime
from tracework import carrying, compiler, dynamism
from tracework_runtime.cache import memory

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
    assert saved == "['artifact', 'backward', 'compiler', 'cpp', 'cut', 'entry'] 2" and "cache.artifact.miss" in missed
    loaded, missed = run("load", tmp_path / "bytes", tmp_path / "other", monkeypatch)
    assert loaded == "['artifact', 'backward', 'compiler', 'cpp', 'cut', 'entry']" and missed == "['cache.package.miss']"


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


def test_what_is_carried_can_be_signed(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path))
    store = carrying._store()
    store.put("cut", "key1", b"1 2")
    content, _ = compiler.save_cache_artifacts(key="ours")
    store.drop("cut", "key1")
    with pytest.raises(tracework.InvalidArgument, match="signed with another key"):
        compiler.load_cache_artifacts(content, key=b"theirs")
    assert store.get("cut", "key1") is None
    assert compiler.load_cache_artifacts(content, key="ours").artifacts == {"cut": ["key1"]}
    for call in (compiler.save_cache_artifacts, functools.partial(compiler.load_cache_artifacts, content)):
        with pytest.raises(tracework.InvalidArgument, match="the key is empty"):
            call(key="")
    assert store.get("cut", "key1") == b"1 2"


@pytest.mark.parametrize("variable", ["TRACEWORK_CACHE_LAYERS", "TRACEWORK_CACHE_SHARED"])
def test_a_place_that_the_environment_names_has_what_was_compiled(variable, tmp_path, monkeypatch):
    """Another folder of its own stands for another machine."""
    monkeypatch.setenv("TRACEWORK_CACHE_KEY", str(tmp_path / "key"))
    place = str(tmp_path / "place")
    given = [{"TRACEWORK_CACHE_DIR": place}] if variable == "TRACEWORK_CACHE_LAYERS" else [{variable: place}]
    model, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    for environment in (*given, {variable: place, "TRACEWORK_CACHE_DIR": str(tmp_path / "own")}):
        monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path / "first"))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        tracework.reset()
        memory._cache.cache_clear()
        runtime.reset_counters()
        tracework.compile(lambda x: model(x).sum())(x).backward()
    found = runtime.counters()
    where = "below" if variable == "TRACEWORK_CACHE_LAYERS" else "shared"
    assert found[f"cache.artifact.{where}"] == 2 and "build.cpp" not in found


def test_a_profile_of_sizes_is_an_entry(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRACEWORK_JOB_ID", f"job of {tmp_path}")
    monkeypatch.setattr(dynamism, "_kept", {})
    monkeypatch.setattr(dynamism.atexit, "register", lambda *given: None)
    call = tracework.compile(lambda x: x + 1, backend="eager")
    for size in (3, 4):
        call(torch.ones(size))
    content, info = compiler.save_cache_artifacts()
    (key,) = info.artifacts["dynamism"]
    assert b"functions" in carrying._store().get("dynamism", key, ".json")


def test_collectives_of_guards_are_off():
    assert compiler.set_enable_guard_collectives(True) is False
    assert compiler.set_enable_guard_collectives(False) is True
    assert compiler.cudagraph_mark_warmup_incomplete() is None
