"""Faults in the cache folder, from a table: no wrong value, no error, and the process after next finds everything again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tracework_runtime import Artifact, CacheWarning, KernelSource, RuntimeOptions, Store, container, load, open_cache, secret
from tracework_runtime.build import cpp as build_cpp
from tracework_runtime.build import triton as build_triton
from tracework_runtime.cache import memory
from tracework_runtime.cache import store as store_module
from tracework_runtime.elf import is_whole
from tracework_runtime.errors import BuildError, LaunchError
from tracework_runtime.launch import cpp as launch_cpp
from tracework_runtime.launch.triton import TritonKernel

ROOT = os.geteuid() == 0
STRANGER = 12345
OTHER_SECRET = bytes(32)


# What is kept. A program gives (value, what it had to make): `A` is the one whose entry is damaged, `B` the one whose entry it is swapped with.


class Made(list):
    """What had to be made, by name."""


def graph(name: str, options: RuntimeOptions, made: Made) -> float:
    """An artifact with one C++ kernel, which multiplies by 2 in A and by 3 in B."""
    factor = {"A": 2, "B": 3}[name]
    source = f'extern "C" void times(const float* x, float* y) {{ y[0] = {factor} * x[0]; }}'
    host = "import torch\ndef call(args):\n    y = torch.empty(1)\n    k0(args[0].data_ptr(), y.data_ptr())\n    return (y,)\n"
    kernel = KernelSource("k0", "cpp", source, ("*fp32", "*fp32"), {"entry": "times"})

    def make() -> Artifact:
        made.append("artifact")
        return Artifact(name * 64, host, (kernel,))

    cache, compiled = open_cache(options), build_cpp._compile
    with patched(build_cpp, "_compile", lambda *args: (made.append("library"), compiled(*args))[1]):
        fn = cache.loaded(lambda: cache.get_or_make(name * 64, make), lambda artifact: load(artifact, options))
    return fn([torch.ones(1)])[0].item()


class Driver:
    """Takes what the worker below makes for a binary, and times a kernel by its blocks."""

    launch_address, current_stream = 0, None

    def load(self, code: bytes, symbol: str, shared: int, device: int) -> int:
        if not code.startswith(b"binary of "):
            raise LaunchError("no binary")
        return int(code.removeprefix(b"binary of "))


def triton_kernel(name: str, options: RuntimeOptions, made: Made) -> TritonKernel:
    number = {"A": 2, "B": 3}[name]

    def build(requests: list[dict[str, Any]]) -> list[tuple[dict[str, Any], bytes]]:
        made.extend("cubin" for _ in requests)
        facts = {"ok": True, "symbol": "kernel", "shared": 0, "num_warps": 4, "params": 1}
        return [(dict(facts), b"binary of %d" % number) for _ in requests]

    launch = {
        "entries": ["kernel"],
        "grids": ["4"],
        "configs": [{"constants": {"X": 1}, "num_warps": 4, "num_stages": 1}],
    }
    build_triton.triton_pool = lambda limit: SimpleNamespace(build=build)
    source = KernelSource("k0", "triton", f"source {number}", ("*fp32",), launch)
    return TritonKernel(source, options, open_cache(options).store, 0, Driver(), 90)


def binary(name: str, options: RuntimeOptions, made: Made) -> int:
    """A Triton kernel's binary."""
    kernel = triton_kernel(name, options, made)
    return kernel._function("kernel", build_triton.Variant())[0]


def answer(name: str, options: RuntimeOptions, made: Made) -> bytes:
    """Bytes that a caller keeps: the cut of a joint graph."""
    store = open_cache(options).store
    found = store.get("cut", name * 64)
    if found is None:
        made.append("cut")
        found = {"A": b"1 2", "B": b"1 3"}[name]
        store.put("cut", name * 64, found)
    return found


KINDS: dict[str, tuple[Callable[[str, RuntimeOptions, Made], Any], Any, str]] = {
    "artifact": (graph, 2.0, "artifact"),
    "library": (graph, 2.0, "cpp"),
    "cubin": (binary, 2, "triton"),
    "cut": (answer, b"1 2", "cut"),
}


# The faults of one entry: what is done to the file of A, given B's.


def write(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def flipped(at: float) -> Callable[[Path, Path], None]:
    def damage(mine: Path, other: Path) -> None:
        data = bytearray(mine.read_bytes())
        data[int(at * (len(data) - 1))] ^= 1
        write(mine, bytes(data))

    return damage


def cut_to(length: Callable[[int], int]) -> Callable[[Path, Path], None]:
    return lambda mine, other: write(mine, mine.read_bytes()[: length(mine.stat().st_size)])


def resealed(content: Callable[[bytes, bytes], bytes], key: bytes | None = None) -> Callable[[Path, Path], None]:
    """Another content under A's name, with a seal that fits it; key None: the user's own."""

    def damage(mine: Path, other: Path) -> None:
        root = next(p for p in mine.parents if p.name.startswith("v"))
        store = Store(root.parent, secret_key=secret(root.parent.parent / "key") if key is None else key)
        seal, trailer = store._seal, len(store._seal.close("", b""))
        write(
            mine,
            seal.close(mine.relative_to(root).as_posix(), content(mine.read_bytes()[:-trailer], other.read_bytes()[:-trailer])),
        )

    return damage


def folder_for_file(mine: Path, other: Path) -> None:
    mine.unlink()
    mine.mkdir()
    (mine / "x").write_text("x")


def file_for_folder(level: int) -> Callable[[Path, Path], None]:
    def damage(mine: Path, other: Path) -> None:
        shutil.rmtree(mine.parents[level])
        mine.parents[level].write_text("x")

    return damage


def link_to_itself(mine: Path, other: Path) -> None:
    mine.unlink()
    mine.symlink_to(mine)


def pipe(mine: Path, other: Path) -> None:
    mine.unlink()
    os.mkfifo(mine)


def open_to_all(level: int) -> Callable[[Path, Path], None]:
    return lambda mine, other: (mine, *mine.parents)[level].chmod(0o777)


def foreign(level: int) -> Callable[[Path, Path], None]:
    return lambda mine, other: os.chown((mine, *mine.parents)[level], STRANGER, STRANGER)


def gone(mine: Path, other: Path) -> None:
    shutil.rmtree(next(p for p in mine.parents if p.name.startswith("v")).parent)


ENTRY_FAULTS: dict[str, Callable[[Path, Path], None]] = {
    "first byte": flipped(0),
    "middle byte": flipped(0.5),
    "last byte": flipped(1),
    "empty": cut_to(lambda n: 0),
    "ten bytes": cut_to(lambda n: 10),
    "half": cut_to(lambda n: n // 2),
    "without its seal": cut_to(lambda n: n - 72),
    "without its last byte": cut_to(lambda n: n - 1),
    "swapped": lambda mine, other: write(mine, other.read_bytes()),
    "resealed by another": resealed(lambda mine, other: other, OTHER_SECRET),
    "rubbish, resealed by another": resealed(lambda mine, other: b"rubbish", OTHER_SECRET),
    "folder for file": folder_for_file,
    "file for inner folder": file_for_folder(0),
    "file for kind": file_for_folder(1),
    "file for root": file_for_folder(2),
    "link to itself": link_to_itself,
    "pipe": pipe,
    "file open to all": open_to_all(0),
    "inner folder open to all": open_to_all(1),
    "kind open to all": open_to_all(2),
    "root open to all": open_to_all(3),
    "foreign file": foreign(0),
    "foreign inner folder": foreign(1),
    "foreign kind": foreign(2),
    "foreign root": foreign(3),
    "the whole folder gone": gone,
}
NEED_ROOT = {name for name in ENTRY_FAULTS if name.startswith("foreign")}

# Contents that are sealed with the user's own key and cannot be used: by a bug, or adopted from elsewhere.
PARTS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "nothing": lambda mine, other: b"",
    "rubbish": lambda mine, other: b"\xff rubbish",
    "half": lambda mine, other: mine[: len(mine) // 2],
    "other": lambda mine, other: other,
}
HOSTS = ["def call(args:", "call = None", "raise ValueError('no')", "import tracework_of_another_time", ""]


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def new_process() -> None:
    """Forgets what a process remembers of its caches."""
    memory._store.cache_clear()
    memory._cache.cache_clear()
    launch_cpp._OPEN.clear()
    store_module.warn_once.cache_clear()


@pytest.fixture(autouse=True)
def own_process(monkeypatch):
    monkeypatch.setattr(build_triton, "triton_pool", build_triton.triton_pool)  # what the programs put there goes with the test
    new_process()
    yield
    new_process()


def options_of(place: Path) -> RuntimeOptions:
    return RuntimeOptions(cache_dir=str(place / "cache"), cache_key=str(place / "key"))


def run(kind: str, place: Path, name: str = "A") -> tuple[Any, Made, list[str]]:
    """(value, what was made, warnings) of a program in a process of its own."""
    new_process()
    made = Made()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = KINDS[kind][0](name, options_of(place), made)
    assert all(issubclass(w.category, CacheWarning) for w in caught)
    return value, made, [str(w.message) for w in caught]


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> Path:
    """A place where everything was made once."""
    place = tmp_path_factory.mktemp("warm")
    original = build_triton.triton_pool
    for kind in KINDS:
        for name in "AB":
            run(kind, place, name)
    build_triton.triton_pool = original
    return place


def entry(kind: str, place: Path, name: str) -> Path:
    """The file of a program's entry, found by what a run of that program alone leaves."""
    index = json.loads((place / "index").read_text()) if (place / "index").exists() else {}
    return place / "cache" / index[f"{kind} {name}"]


@pytest.fixture(scope="module")
def indexed(warm, tmp_path_factory) -> Path:
    """The warm place, with a list of which entry is whose."""
    index = {}
    original = build_triton.triton_pool
    for kind, (_, _, folder) in KINDS.items():
        for name in "AB":
            alone = tmp_path_factory.mktemp("alone")
            shutil.copy(warm / "key", alone / "key")
            run(kind, alone, name)
            files = sorted(p for p in (alone / "cache").rglob("*") if p.is_file() and folder in p.parts)
            index[f"{kind} {name}"] = str(files[0].relative_to(alone / "cache"))
    build_triton.triton_pool = original
    (warm / "index").write_text(json.dumps(index))
    return warm


@pytest.fixture
def place(indexed, tmp_path) -> Path:
    """A copy of the warm place."""
    shutil.copytree(indexed, tmp_path / "place")
    return tmp_path / "place"


@pytest.mark.parametrize("kind", KINDS)
def test_a_copied_folder_gives_all_hits(place, kind):
    assert run(kind, place) == (KINDS[kind][1], [], [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ENTRY_FAULTS)
def test_faults_of_entries(place, kind, fault):
    if fault in NEED_ROOT and not ROOT:
        pytest.skip("only root can give files away")
    ENTRY_FAULTS[fault](entry(kind, place, "A"), entry(kind, place, "B"))
    value, made, said = run(kind, place)
    assert value == KINDS[kind][1]
    assert len(said) == (1 if "by another" in fault or fault == "last byte" else 0)  # the last byte is the mark of the key
    if "open to all" not in fault:
        assert made
    assert run(kind, place) == (KINDS[kind][1], [], [])
    for path in (place / "cache").rglob("*"):
        assert not path.stat().st_mode & 0o022


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS)
def test_contents_that_cannot_be_used_are_made_again(place, kind, part):
    if kind == "cut":
        pytest.skip("any bytes are an answer to the store; aotautograd's test_partition has the reader of cuts")
    resealed(PARTS[part])(entry(kind, place, "A"), entry(kind, place, "B"))
    value, made, said = run(kind, place)
    assert value == KINDS[kind][1] and made and not said
    assert run(kind, place) == (KINDS[kind][1], [], [])


def test_a_binary_that_the_driver_refuses_is_made_again(place):
    def content(mine: bytes, other: bytes) -> bytes:
        facts, _ = container.unpack(mine)
        return container.pack(facts, {"cubin": b"rubbish"})

    resealed(content)(entry("cubin", place, "A"), entry("cubin", place, "B"))
    assert run("cubin", place) == (2, ["cubin"], [])
    assert run("cubin", place) == (2, [], [])


@pytest.mark.parametrize("host", HOSTS)
def test_host_programs_that_do_not_load_are_made_again(place, host):
    def content(mine: bytes, other: bytes) -> bytes:
        return Artifact.from_bytes(mine).replace(host_source=host).to_bytes()

    resealed(content)(entry("artifact", place, "A"), entry("artifact", place, "B"))
    assert run("artifact", place) == (2.0, ["artifact"], [])
    assert run("artifact", place) == (2.0, [], [])


# The faults of the folder. Each gives whether entries that were there before can still be read.


@contextlib.contextmanager
def unwritable(place: Path, code: int) -> Iterator[None]:
    """Whatever is made in the cache folder fails with this errno."""

    def failing(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            target = str(kwargs.get("dir") or (args[0] if args else ""))
            if target.startswith(str(place / "cache")):
                raise OSError(code, os.strerror(code), target)
            return original(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for owner, name in (
            (store_module.tempfile, "mkstemp"),
            (store_module.tempfile, "TemporaryDirectory"),
            (os, "mkdir"),
            (os, "utime"),
            (os, "chmod"),
            (os, "unlink"),
        ):
            stack.enter_context(patched(owner, name, failing(getattr(owner, name))))
        yield


@contextlib.contextmanager
def file_system(place: Path, *options: str) -> Iterator[None]:
    """The cache folder on a file system of its own, mounted with these options once it holds what it held."""
    if not ROOT:
        pytest.skip("only root can mount")
    mounted = place / "cache"
    kept = place / "kept"
    mounted.rename(kept)
    mounted.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "none", str(mounted)]
    if subprocess.run(command, capture_output=True, check=False, timeout=300).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        shutil.copytree(kept, mounted, dirs_exist_ok=True)
        mounted.chmod(0o700)
        subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(mounted)], check=True, timeout=300)
        yield
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True, timeout=300)
        mounted.rmdir()
        kept.rename(mounted)


@contextlib.contextmanager
def full(place: Path) -> Iterator[None]:
    with file_system(place):
        with contextlib.suppress(OSError), open(place / "cache" / "filler", "wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        yield


@contextlib.contextmanager
def noexec(place: Path) -> Iterator[None]:
    """The linker refuses files of the cache folder."""
    original = launch_cpp.ctypes.CDLL

    def refusing(name: str) -> Any:
        if name.startswith(str(place / "cache")):
            raise OSError(f"{name}: failed to map segment from shared object")
        return original(name)

    with patched(launch_cpp.ctypes, "CDLL", refusing):
        yield


@contextlib.contextmanager
def mode(place: Path, level: int, bits: int) -> Iterator[None]:
    path = (place / "cache", place)[level]
    before = path.stat().st_mode
    path.chmod(bits)
    yield
    path.chmod(before)


@contextlib.contextmanager
def owner(place: Path, name: str) -> Iterator[None]:
    if not ROOT:
        pytest.skip("only root can give files away")
    os.chown(place / name, STRANGER, STRANGER)
    yield
    os.chown(place / name, 0, 0)


@contextlib.contextmanager
def instead(place: Path, name: str, put: Callable[[Path], Any]) -> Iterator[None]:
    """Something else where the folder or the key belongs."""
    (place / name).rename(place / "aside")
    put(place / name)
    yield
    shutil.rmtree(place / name) if (place / name).is_dir() else (place / name).unlink(missing_ok=True)
    (place / "aside").rename(place / name)


@contextlib.contextmanager
def evicting(place: Path) -> Iterator[None]:
    """Another process removes each library between its look-up and its loading."""
    original = launch_cpp.open_library

    def opening(product: build_cpp.Product) -> Any:
        if product.file is not None:
            product.file.unlink(missing_ok=True)
        return original(product)

    with patched(launch_cpp, "open_library", opening):
        yield


FOLDER_FAULTS: dict[str, tuple[Callable[[Path], contextlib.AbstractContextManager[None]], bool]] = {
    "ENOSPC": (lambda place: unwritable(place, errno.ENOSPC), True),
    "EDQUOT": (lambda place: unwritable(place, errno.EDQUOT), True),
    "EIO": (lambda place: unwritable(place, errno.EIO), True),
    "EROFS": (lambda place: unwritable(place, errno.EROFS), True),
    "EACCES": (lambda place: unwritable(place, errno.EACCES), True),
    "full disk": (full, True),
    "read-only": (lambda place: file_system(place, "ro"), True),
    "noexec": (lambda place: file_system(place, "noexec"), True),
    "linker refuses": (noexec, True),
    "evicting reader": (evicting, True),
    "open to all": (lambda place: mode(place, 0, 0o777), False),
    "open to the group": (lambda place: mode(place, 0, 0o770), False),
    "parent open to all": (lambda place: mode(place, 1, 0o777), False),
    "foreign folder": (lambda place: owner(place, "cache"), False),
    "file for folder": (lambda place: instead(place, "cache", lambda p: p.write_text("x")), False),
    "dangling link for folder": (lambda place: instead(place, "cache", lambda p: p.symlink_to(p.with_name("nowhere"))), False),
    "foreign key": (lambda place: owner(place, "key"), False),
    "empty key": (lambda place: instead(place, "key", lambda p: (p.write_text(""), p.chmod(0o600))), False),
    "folder for key": (lambda place: instead(place, "key", lambda p: p.mkdir()), False),
    "key that others write": (lambda place: instead(place, "key", lambda p: (p.write_bytes(bytes(32)), p.chmod(0o666))), False),
}
SILENT = {"noexec", "linker refuses", "evicting reader"}  # nothing is lost by these


@pytest.mark.parametrize("fault", FOLDER_FAULTS)
@pytest.mark.parametrize("state", ["warm", "cold"])
def test_faults_of_the_folder(place, fault, state):
    make, readable = FOLDER_FAULTS[fault]
    if state == "cold":
        shutil.rmtree(place / "cache")
        (place / "cache").mkdir(mode=0o700)
    with make(place):
        value, made, said = run("artifact", place)
        assert value == 2.0
        assert bool(made) == (state == "cold" or not readable)
        assert len(said) == (1 if made and fault not in SILENT else 0), said
    assert run("artifact", place)[0] == 2.0
    assert run("artifact", place) == (2.0, [], [])


def test_without_a_folder_libraries_are_loaded_from_memory():
    """Each is itself, although the system gives them one file number after the other."""
    options = RuntimeOptions(disk_cache=False)
    values, handles = [], []
    for n in range(6):
        source = f'extern "C" void put(float* x) {{ x[0] = {n}; }}'
        host = "import torch\ndef call(args):\n    x = torch.empty(1)\n    k0(x.data_ptr())\n    return (x,)\n"
        kernel = KernelSource("k0", "cpp", source, ("*fp32",), {"entry": "put"})
        values.append(load(Artifact("k", host, (kernel,)), options)([])[0].item())
        opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        handles.append(sum("memfd:" in file for file in opened))
    assert values == [0, 1, 2, 3, 4, 5] and len(set(handles)) == 1


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_parts_of_binaries_are_no_binaries(place, part):
    content = Store(place / "cache", secret_key=secret(place / "key")).get("cpp", entry("library", place, "A").stem, ".so")
    assert is_whole(content) and not is_whole(content[: int(part * len(content))])


def test_a_foreign_folder_is_used_once_it_is_adopted(place):
    (place / "key").unlink()
    value, made, said = run("artifact", place, "B")
    assert value == 3.0 and made and len(said) == 1 and "another key" in said[0]
    damaged = entry("cut", place, "A")
    write(damaged, damaged.read_bytes()[:-1])
    entry("cubin", place, "A").chmod(0o664)  # as an archive may leave it
    store = Store(place / "cache", secret_key=secret(place / "key"))
    assert store.adopt() == 5  # not B's artifact and library, which were made again, nor what is damaged
    assert store.adopt() == 0 and not damaged.exists()
    for kind in ("artifact", "cubin"):
        assert run(kind, place) == (KINDS[kind][1], [], [])


def test_a_key_that_is_named_may_be_read_by_others(place):
    (place / "key").chmod(0o644)
    assert run("artifact", place) == (2.0, [], [])


def test_the_users_own_key_is_made_anew_where_others_know_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    first = secret()
    path = tmp_path / ".config" / "tracework" / "cache.key"
    assert len(first) == 32 and path.stat().st_mode & 0o777 == 0o600 and secret() == first
    path.chmod(0o640)
    assert secret() != first
    path.write_bytes(b"short")
    assert len(secret()) == 32


@pytest.mark.parametrize("given", ["nothing", "a folder", "a key"])
def test_a_user_without_a_home(tmp_path, monkeypatch, given):
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    facts = {"nothing": {}, "a folder": {"cache_dir": str(tmp_path / "cache")}, "a key": {"cache_key": str(tmp_path / "key")}}
    with pytest.warns(CacheWarning, match="TRACEWORK_CACHE_") as caught:
        assert graph("A", RuntimeOptions(**facts[given]), Made()) == 2.0
    assert len(caught) == 1


# Builds that are under way or were given up.


def test_builds_of_others_are_left_alone(place):
    store = Store(place / "cache", secret_key=secret(place / "key"))
    with store.scratch() as folder:
        (Path(folder) / "kernel.cpp").write_text("x")
        Store(place / "cache", limit=0, secret_key=secret(place / "key")).evict()
        Store(place / "cache", secret_key=secret(place / "key")).clear()
        assert (Path(folder) / "kernel.cpp").exists()
    assert not Path(folder).exists() and store.size() == 0


def test_what_killed_writers_leave_is_removed(place):
    process = subprocess.Popen(["true"])
    process.wait(60)
    tmp = place / "cache" / next(p.name for p in (place / "cache").iterdir()) / "tmp"
    killed, alive, old = (tmp / f"{store_module._machine()}-{pid}-x" for pid in (process.pid, os.getppid(), os.getppid()))
    elsewhere, old = tmp / f"another-{process.pid}-x", tmp / "another-1-old"
    for path in (killed, alive, elsewhere, old):
        path.mkdir()
        (path / "out.so").write_text("half")
    os.utime(old, (time.time() - 1e6,) * 2)
    assert run("artifact", place) == (2.0, [], [])
    assert set(tmp.iterdir()) == {alive, elsewhere}


SLOW = """#!/bin/sh
case "$*" in *--version*) echo slow 1; exit;; esac
touch {started}
exec sleep 60
"""
KILLED = """
import sys
from tracework_runtime import Artifact, KernelSource, RuntimeOptions, load
load(Artifact("k", "", (KernelSource("k0", "cpp", "int x;", ()),)), RuntimeOptions(cache_dir=sys.argv[1], cache_key=sys.argv[2], cxx=sys.argv[3]))
"""


def test_a_process_killed_while_it_compiles(place):
    started = place / "started"
    slow = place / "slow"
    slow.write_text(SLOW.format(started=started))
    slow.chmod(0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(place / "cache"), str(place / "key"), str(slow)], start_new_session=True
    )
    for _ in range(600):
        if started.exists():
            break
        time.sleep(0.1)
    os.killpg(process.pid, 9)
    process.wait(60)
    (tmp,) = (place / "cache").glob("*/tmp")
    assert list(tmp.iterdir())
    assert run("artifact", place) == (2.0, [], [])
    assert not list(tmp.iterdir())


# Compilers.


def compiler(place: Path, text: str) -> RuntimeOptions:
    path = place / "compiler"
    path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo strange 1; exit;; esac\n{text}\n')
    path.chmod(0o700)
    build_cpp.find_compiler.cache_clear()
    return options_of(place).replace(cxx=str(path))


COMPILERS = {
    "writes nothing": ("exit 0", "exit status 0, and it wrote nothing", "TRACEWORK_CXX"),
    "writes an empty file": ('while [ "$1" != -o ]; do shift; done; : > "$2"', "it wrote nothing", "TRACEWORK_CXX"),
    "writes no library": (
        'while [ "$1" != -o ]; do shift; done; echo text > "$2"',
        "no library that can be loaded",
        "TRACEWORK_CXX",
    ),
    "writes another library": (
        'while [ "$1" != -o ]; do shift; done; echo "int x;" | gcc -x c -shared -fPIC - -o "$2"',
        "no library that can be loaded",
        "TRACEWORK_CXX",
    ),
    "fails": ('echo "x.cpp:1:1: error: no" >&2; exit 3', "exit status 3", "TRACEWORK_CXX"),
    "is killed": ("kill -9 $$", "exit status -9", "TRACEWORK_CXX"),
    "finds no room": ('echo "No space left on device" >&2; exit 1', "exit status 1", "TRACEWORK_CXX"),
    "says bytes that are no text": (r"printf '\377\376 error: no' >&2; exit 1", "exit status 1", "TRACEWORK_CXX"),
}


@pytest.mark.parametrize("name", COMPILERS)
def test_compilers_that_do_not_work(place, name):
    text, message, advice = COMPILERS[name]
    options = compiler(place, text)
    with pytest.raises(Exception, match=message) as caught:
        graph("A", options, Made())
    assert "compiler" in str(caught.value) and advice in str(caught.value)
    build_cpp.find_compiler.cache_clear()
    assert run("artifact", place) == (2.0, [], [])


def test_a_compiler_without_openmp_compiles_for_one_thread(place):
    real = shutil.which("g++") or pytest.skip("no g++ here")
    refuses = f'for x in "$@"; do if [ "$x" = -fopenmp ]; then echo "error: libgomp.spec: No such file" >&2; exit 1; fi; done\nexec {real} "$@"'
    options = compiler(place, refuses)
    try:
        with pytest.warns(UserWarning, match="one thread.*\n.*libgomp"):
            assert graph("A", options, Made()) == 2.0
        new_process()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = Made()
            assert graph("A", options, made) == 2.0 and not made
        with pytest.raises(BuildError, match=r"(?s)nonsense.*report this kernel"):
            source = KernelSource("k0", "cpp", "nonsense", ())
            load(Artifact("k", "", (source,)), options)
    finally:
        build_cpp._WITHOUT_OPENMP.clear()
        build_cpp.find_compiler.cache_clear()
