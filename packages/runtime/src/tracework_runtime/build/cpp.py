"""C++ source to shared object: finds a compiler, chooses flags, stores the product by content.

One `CppJob` is one translation unit. `build_all` starts the compilers of all missing units as child processes,
`build_jobs` at a time, and waits. Two processes that build the same unit do double work and no harm. A product exports a symbol that
carries its key, so that it cannot be taken for another's.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tracework_runtime import _torch, observe
from tracework_runtime.build import pool
from tracework_runtime.cache.ranks import shared
from tracework_runtime.cache.store import Entries
from tracework_runtime.device import cpu
from tracework_runtime.errors import BuildError, NoCompiler
from tracework_runtime.options import RuntimeOptions

__all__ = ["BASE_FLAGS", "Compiler", "CppJob", "build_all", "compiler_for", "find_compiler"]

BASE_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-w")
_EXCERPT_LINES = 12
_ROOM = 4 << 20
"""Bytes that a compiler has to have for its files."""


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A command that compiles C++: its words, what it calls itself, the flags only it needs."""

    command: tuple[str, ...]
    identity: str
    openmp: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CppJob:
    """One translation unit and its extra flags."""

    source: str
    flags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Product:
    """A shared object: the symbol that says whose it is, its bytes, the file that has them if one does, and who made it."""

    symbol: str
    content: bytes
    file: Path | None
    compiler: str


def _on_path(name: str) -> Callable[[], tuple[str, ...] | None]:
    def find() -> tuple[str, ...] | None:
        path = shutil.which(name)
        return (path,) if path else None

    return find


def _zig() -> tuple[str, ...] | None:
    return (sys.executable, "-m", "ziglang", "c++") if importlib.util.find_spec("ziglang") else None


COMPILERS: tuple[tuple[str, Callable[[], tuple[str, ...] | None]], ...] = (
    ("g++", _on_path("g++")),
    ("c++", _on_path("c++")),
    ("clang++", _on_path("clang++")),
    ("ziglang", _zig),
)
"""Tried in this order."""


_ONE_THREAD = ("-fopenmp-simd",)
"""The pragmas of vector loops need no library."""
_FOR_ZIG = ("-nostdlib++", "-fno-exceptions")
"""Without them, zig builds its C++ library first, which kernels do not use."""
_GNUS_OWN = ("-fno-tree-", "-fno-unswitch-")
"""How flags begin that clang passes over and zig refuses."""
_KMPC = Path(__file__).with_name("kmpc.cpp")
_PROBE_TIMEOUT = 60.0
_WITHOUT_OPENMP: set[Compiler] = set()


@functools.cache
def find_compiler(wanted: str | None = None) -> Compiler:
    """The compiler to use: `wanted` if given, else the first of COMPILERS that is there.

    Raises NoCompiler, which names the `ziglang` extra, where there is none.
    """
    if wanted:
        words = tuple(wanted.split())
        if shutil.which(words[0]) is None:
            raise NoCompiler(f"C++ compiler {wanted!r} not found", advice="unset the option cxx, or install it")
        return _found(words)
    for _, find in COMPILERS:
        words_found = find()
        if words_found:
            return _found(words_found)
    names = ", ".join(name for name, _ in COMPILERS)
    raise NoCompiler(
        f"no C++ compiler: looked for {names}",
        advice="pip install 'tracework-runtime[ziglang]', install g++, or name one (option cxx, TRACEWORK_CXX)",
    )


def compiler_for(options: RuntimeOptions, store: Entries) -> Compiler:
    """The compiler to use; where there is none, that which made what a store has, which compiles nothing here. Raises NoCompiler."""
    try:
        return find_compiler(options.cxx)
    except NoCompiler:
        kept = None if options.cxx else store.get(*_USED)
        try:
            facts = json.loads(kept or b"")
            return Compiler((), facts["identity"], tuple(facts["openmp"]))
        except (ValueError, KeyError, TypeError):
            pass
        raise


_USED = ("compiler", "used", ".json")
"""The name of the entry that has what a store's products were made with last."""


def _remember(compiler: Compiler, store: Entries) -> None:
    facts = json.dumps({"identity": compiler.identity, "openmp": compiler.openmp[:1]}).encode()
    if store.get(*_USED) != facts:
        store.put(*_USED[:2], facts, _USED[2])


def _found(words: tuple[str, ...]) -> Compiler:
    if _is_zig(words):
        words = (*words, *_FOR_ZIG)
    compiler = Compiler(words, _identity(words), _openmp_flags_of_zig() if _is_zig(words) else _openmp_flags())
    return dataclasses.replace(compiler, openmp=_ONE_THREAD) if compiler in _WITHOUT_OPENMP else compiler


def _is_zig(words: Sequence[str]) -> bool:
    return "c++" in words and ("ziglang" in words or Path(words[0]).name == "zig")


def _works(compiler: Compiler) -> tuple[bool, bool]:
    """Whether a compiler compiles the smallest program, and whether with the OpenMP flags that it is given; asked after a failure, for it takes
    a while."""
    try:
        alone = _compiles(compiler, ())
        return alone, alone and (compiler.openmp in ((), _ONE_THREAD) or _compiles(compiler, compiler.openmp))
    except OSError:  # nothing can be said where there is no place to compile in
        return True, True


def _compiles(compiler: Compiler, flags: Sequence[str]) -> bool:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text("int probe;\n")
        command = [*compiler.command, "-shared", "-fPIC", str(source), "-o", str(Path(folder) / "probe.so"), *flags]
        return _run(command, _PROBE_TIMEOUT, Path(folder)).returncode == 0


def _identity(words: tuple[str, ...]) -> str:
    if _is_zig(words):  # wherever it is, so that what it has made is found by machines that have it elsewhere
        return f"zig {_first_line((*words[: words.index('c++')], 'version'))}"
    return f"{Path(shutil.which(words[0]) or words[0]).resolve()}: {_first_line((*words, '--version'))}"


def _first_line(command: tuple[str, ...]) -> str:
    """Of what a command says."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(
            f"{Path(shutil.which(command[0]) or command[0]).resolve()} cannot be run: {error}",
            advice="set another C++ compiler (option cxx, TRACEWORK_CXX)",
        ) from error
    return run.stdout.splitlines()[0] if run.stdout else "unknown version"


def _openmp_flags() -> tuple[str, ...]:
    """OpenMP linked against torch's own runtime first: two runtimes would mean two pools of spinning threads."""
    library = _torch.openmp_library()
    return ("-fopenmp", "-Wl,--as-needed", str(library)) if library else ("-fopenmp",)


def _openmp_flags_of_zig() -> tuple[str, ...]:
    """zig has clang's OpenMP without its runtime, which kmpc.cpp stands for, over torch's own; the first flag is part of keys."""
    library = _torch.openmp_library()
    version = hashlib.sha256(_KMPC.read_bytes()).hexdigest()[:12]
    return (f"-DTW_KMPC={version}", "-fopenmp", str(_KMPC), "-Wl,--as-needed", str(library)) if library else _ONE_THREAD


def job_key(job: CppJob, compiler: Compiler, options: RuntimeOptions) -> str:
    """The content address of a job's product."""
    flags = [*job.flags, "|", *options.cxx_flags, "|", *BASE_FLAGS, *compiler.openmp[:1]]
    facts = [job.source, *flags, compiler.identity, cpu.identity()]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def build_all(jobs: Sequence[CppJob], options: RuntimeOptions, store: Entries, *, anew: bool = False) -> list[Product]:
    """The shared object of each job, compiling what the store does not have; all of them where `anew`.

    Raises BuildError with the compiler's first complaint, NoCompiler where there is none and the store does not have all.
    """
    if not jobs:
        return []
    compiler = compiler_for(options, store)
    try:
        return _build_with(compiler, jobs, options, store, anew)
    except BuildError as error:
        alone, with_openmp = (True, True) if isinstance(error, NoCompiler) else _works(compiler)
        if not alone:
            advice = "set another C++ compiler (option cxx, TRACEWORK_CXX): this one does not compile an empty program either"
            raise BuildError(error.message, advice=advice) from error  # with its excerpt
        if with_openmp:
            raise
    _WITHOUT_OPENMP.add(compiler)
    warnings.warn(
        f"{compiler.identity} compiles nothing with {' '.join(compiler.openmp)}: kernels for the CPU run on one thread\n"
        f"  try: install its OpenMP library (libgomp for g++, libomp for clang++), or set another compiler (TRACEWORK_CXX)",
        stacklevel=2,
    )
    find_compiler.cache_clear()
    return _build_with(find_compiler(options.cxx), jobs, options, store, anew)


def _build_with(compiler: Compiler, jobs: Sequence[CppJob], options: RuntimeOptions, store: Entries, anew: bool) -> list[Product]:
    keys = [job_key(job, compiler, options) for job in jobs]
    made_by = dataclasses.replace(compiler, command=(*compiler.command, f"-march={cpu.march()}"))
    products = {key: None if anew else _stored(key, compiler, store) for key in keys}
    missing = {key: job for key, job in zip(keys, jobs, strict=True) if products[key] is None}

    def make(mine: list[str]) -> Mapping[str, bytes]:
        if not compiler.command:
            find_compiler(options.cxx)
        with observe.timed("build.cpp"):
            steps = [functools.partial(_compile, missing[key], key, made_by, options, store) for key in mine]
            built = pool.run_threads(steps, options.build_jobs)
            products.update(zip(mine, built, strict=True))
        _remember(compiler, store)
        return {key: product.content for key, product in zip(mine, built, strict=True)}

    def take(key: str, content: bytes | None) -> bool:
        products[key] = _stored(key, compiler, store)  # of a folder that ranks share
        if products[key] is None and content is not None:
            products[key] = Product(_symbol(key), content, store.put("cpp", key, content, ".so"), compiler.identity)
        return products[key] is not None

    if anew:
        make([*missing])
    elif missing:
        shared(options.cache_key, "cpp", [*missing], make, take)
    return [product for key in keys if (product := products[key]) is not None]


def _stored(key: str, compiler: Compiler, store: Entries) -> Product | None:
    content = store.get("cpp", key, ".so")
    return None if content is None else Product(_symbol(key), content, store.file("cpp", key, ".so"), compiler.identity)


def _symbol(key: str) -> str:
    return f"tracework_{key}"


def _compile(job: CppJob, key: str, compiler: Compiler, options: RuntimeOptions, store: Entries) -> Product:
    full = []
    places: list[Callable[[], tempfile.TemporaryDirectory[str]]] = [store.scratch]
    places += [functools.partial(tempfile.TemporaryDirectory, dir=place) for place in (None, "/dev/shm")]
    for scratch in places:
        try:
            with scratch() as folder:
                content = _compiled(Path(folder), job, key, compiler, options)
            break
        except OSError as error:
            full.append(str(error))
    else:
        raise BuildError(f"no place to compile in: {'; '.join(full)}", advice="make room in the cache folder, or set TMPDIR")
    return Product(_symbol(key), content, store.put("cpp", key, content, ".so"), compiler.identity)


def _compiled(folder: Path, job: CppJob, key: str, compiler: Compiler, options: RuntimeOptions) -> bytes:
    """What the compiler makes of a job. Raises OSError where the folder has no room, BuildError where the compiler is at fault."""
    source, product = folder / f"{key[:16]}.cpp", folder / "out.so"
    source.write_text(f'{job.source}\nextern "C" {{ extern const char {_symbol(key)}; const char {_symbol(key)} = 1; }}\n')
    flags = [flag for flag in job.flags if not (_is_zig(compiler.command) and flag.startswith(_GNUS_OWN))]
    before = [*compiler.command, *BASE_FLAGS, *flags, *options.cxx_flags]
    command = [*before, str(source), "-o", str(product), *compiler.openmp]
    run = _run(command, options.cxx_timeout, folder)
    if run.returncode != 0:
        _demand_room(folder)
        raise BuildError(
            f"{' '.join(command)}: exit status {run.returncode}",
            excerpt=_excerpt(run.stderr, job.source),
            advice="report this kernel; the excerpt has its text",
        )
    if not product.exists() or not product.stat().st_size:
        raise BuildError(
            f"{' '.join(command)}: exit status 0, and it wrote nothing",
            excerpt=_excerpt(run.stderr, job.source),
            advice="run this command on a file of your own, or set another C++ compiler (option cxx, TRACEWORK_CXX)",
        )
    return product.read_bytes()


def _run(command: Sequence[str], timeout: float, folder: Path) -> subprocess.CompletedProcess[str]:
    """A compiler's run. Its own temporary files lie in the folder too."""
    place = {**os.environ, "TMPDIR": str(folder)}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=timeout, cwd=folder, env=place
        )
    except subprocess.TimeoutExpired as late:
        raise BuildError(
            f"{command[0]} did not finish in {timeout} s", advice="raise the option cxx_timeout, or set another compiler"
        ) from late
    except (FileNotFoundError, PermissionError) as error:
        raise BuildError(
            f"{command[0]} cannot be run: {error}", advice="set another C++ compiler (option cxx, TRACEWORK_CXX)"
        ) from error


def _demand_room(folder: Path) -> None:
    """Raises OSError where a compiler's files do not fit."""
    (folder / "room").write_bytes(bytes(_ROOM))


def _excerpt(complaint: str, source: str) -> str:
    """The compiler's first error lines, and the source lines around the first place it names."""
    lines = [line for line in complaint.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if ": error" in line), 0)
    shown = lines[first : first + _EXCERPT_LINES]
    for part in (shown[0] if shown else "").split(":")[1:3]:
        if part.isdigit():
            text, number = source.splitlines(), int(part)
            shown.append(f"in the kernel, around line {number}:")
            shown += [f"{i + 1:5} {text[i]}" for i in range(max(0, number - 4), min(len(text), number + 3))]
            break
    return "\n".join(shown)
