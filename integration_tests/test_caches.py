"""Cache folders with faults, seen from the entry point: eager's values, at most one warning, and the run after next finds everything."""

import contextlib
import shutil
import warnings
from pathlib import Path

import pytest
import torch
import tracework
import tracework_runtime as runtime
from tracework_runtime.cache import memory, store
from tracework_runtime.launch import cpp as launch


def program(x, w):
    return torch.tanh(x @ w).sum() + (x * 3).relu().mean(0)


def other(x, w):
    return torch.sigmoid(x @ w).sum() - (x * 5).relu().mean(0)


def new_process():
    """Forgets what a process remembers."""
    tracework.reset()
    runtime.reset_counters()
    for remembered in (memory._store, memory._cache, store.warn_once):
        remembered.cache_clear()
    launch._OPEN.clear()


def run(fn, folder):
    """A training step in a process of its own: what it built, and what it warned of; its values are eager's."""
    new_process()
    torch.manual_seed(0)
    x, w = torch.randn(6, 8, requires_grad=True), torch.randn(8, 4, requires_grad=True)
    expected = fn(x, w)
    gradients = torch.autograd.grad(expected.sum(), (x, w))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        actual = tracework.compile(fn, fullgraph=True, options={"cache_dir": str(folder), "cache_key": f"{folder}.key"})(x, w)
        actual_gradients = torch.autograd.grad(actual.sum(), (x, w))
    torch.testing.assert_close((actual, *actual_gradients), (expected, *gradients))
    return int(runtime.counters().get("build.cpp", 0)), [w for w in caught if issubclass(w.category, runtime.CacheWarning)]


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("warm") / "cache"
    assert run(program, folder)[0] and run(other, folder)[0]
    return folder


@pytest.fixture
def folder(warm, tmp_path):
    shutil.copytree(warm, tmp_path / "cache")
    shutil.copy(f"{warm}.key", tmp_path / "cache.key")
    yield tmp_path / "cache"
    new_process()


def entries(folder, pattern):
    found = sorted(p for p in folder.rglob(pattern) if p.is_file())
    assert found
    return found


def rotated(pattern):
    """Each file has the next one's bytes."""

    def damage(folder):
        files = entries(folder, pattern)
        contents = [p.read_bytes() for p in files]
        assert len(set(contents)) > 1
        for path, content in zip(files, [*contents[1:], contents[0]]):
            path.write_bytes(content)

    return damage


def sealed_anew(pattern, change):
    """Other bytes under the user's own seal, as after a bug or an adoption."""

    def damage(folder):
        kept = runtime.Store(folder, secret_key=runtime.secret(f"{folder}.key"))
        for path in entries(folder, pattern):
            kind, _, name = path.relative_to(kept.root).parts
            content = kept.get(kind, name.removesuffix(path.suffix), path.suffix)
            kept.put(kind, name.removesuffix(path.suffix), change(content), path.suffix)

    return damage


def without_host(content):
    return runtime.Artifact.from_bytes(content).replace(host_source="def call(args):").to_bytes()


FAULTS = {
    "nothing": (lambda folder: None, 0),
    "artifacts swapped": (rotated("*.twa"), 0),
    "libraries swapped": (rotated("*.so"), 0),
    "artifacts of rubbish": (sealed_anew("*.twa", lambda content: b"rubbish"), 0),
    "host programs that do not parse": (sealed_anew("*.twa", without_host), 0),
    "libraries of rubbish": (sealed_anew("*.so", lambda content: b"rubbish"), 0),
    "cuts of rubbish": (sealed_anew("cut/*/*", lambda content: b"rubbish"), 0),
    "cuts of numbers": (sealed_anew("cut/*/*", lambda content: b"1 999999"), 0),
    "another key": (lambda folder: Path(f"{folder}.key").unlink(), 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_entries_that_cannot_be_used(folder, fault):
    damage, said = FAULTS[fault]
    damage(folder)
    built, warned = run(program, folder)
    assert len(warned) == said
    assert bool(built) == ("libraries" in fault or "key" in fault)
    assert run(program, folder) == (0, [])


def mode(bits):
    return lambda folder: folder.chmod(bits)


UNUSABLE = {
    "open to all": mode(0o777),
    "in a folder open to all": lambda folder: folder.parent.chmod(0o777),
    "a file": lambda folder: (shutil.rmtree(folder), folder.write_text("")),
    "the key open to all": lambda folder: Path(f"{folder}.key").chmod(0o666),
}


@pytest.mark.parametrize("fault", UNUSABLE)
def test_folders_that_cannot_be_used(folder, fault):
    with contextlib.suppress(FileNotFoundError):
        UNUSABLE[fault](folder)
    built, warned = run(program, folder)
    assert built and len(warned) == 1 and "try:" in str(warned[0].message)
