"""C++ source to shared object: finds a compiler, chooses flags, stores the product by content.

One `CppJob` is one translation unit. `build_all` starts the compilers of all missing units as child processes,
`build_jobs` at a time, and waits. Two processes that build the same unit do double work and no harm.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tracework_runtime import _torch, observe
from tracework_runtime.build import pool
from tracework_runtime.cache.store import Store
from tracework_runtime.device import cpu
from tracework_runtime.errors import BuildError
from tracework_runtime.options import RuntimeOptions

__all__ = ["BASE_FLAGS", "Compiler", "CppJob", "build_all", "find_compiler"]

BASE_FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-w")
_EXCERPT_LINES = 12


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


def _on_path(name: str) -> Callable[[], tuple[str, ...] | None]:
    def find() -> tuple[str, ...] | None:
        path = shutil.which(name)
        return (path,) if path else None

    return find


def _zig() -> tuple[str, ...] | None:
    return (sys.executable, "-m", "ziglang", "c++") if importlib.util.find_spec("ziglang") else None


# Tried in this order. zig brings no OpenMP runtime: its kernels run on one thread.
COMPILERS: tuple[tuple[str, Callable[[], tuple[str, ...] | None], bool], ...] = (
    ("g++", _on_path("g++"), True),
    ("c++", _on_path("c++"), True),
    ("clang++", _on_path("clang++"), True),
    ("ziglang", _zig, False),
)


@functools.cache
def find_compiler(wanted: str | None = None) -> Compiler:
    """The compiler to use: `wanted` if given, else the first of COMPILERS that is there.

    Raises BuildError naming the `ziglang` extra where there is none.
    """
    if wanted:
        words = tuple(wanted.split())
        if shutil.which(words[0]) is None:
            raise BuildError(f"C++ compiler {wanted!r} not found", advice="unset the option cxx, or install it")
        return Compiler(words, _identity(words), _openmp_flags())
    for _, find, has_openmp in COMPILERS:
        words_found = find()
        if words_found:
            return Compiler(words_found, _identity(words_found), _openmp_flags() if has_openmp else ())
    names = ", ".join(name for name, _, _ in COMPILERS)
    raise BuildError(
        f"no C++ compiler: looked for {names}",
        advice="pip install 'tracework-runtime[ziglang]', or install g++",
    )


def _identity(words: tuple[str, ...]) -> str:
    path = Path(shutil.which(words[0]) or words[0]).resolve()
    run = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False)
    return f"{path}: {run.stdout.splitlines()[0] if run.stdout else 'unknown version'}"


def _openmp_flags() -> tuple[str, ...]:
    """OpenMP linked against torch's own runtime first: two runtimes would mean two pools of spinning threads."""
    library = _torch.openmp_library()
    return ("-fopenmp", "-Wl,--as-needed", str(library)) if library else ("-fopenmp",)


def job_key(job: CppJob, compiler: Compiler, options: RuntimeOptions) -> str:
    """The content address of a job's product."""
    facts = [job.source, *job.flags, "|", *options.cxx_flags, "|", *BASE_FLAGS, compiler.identity, cpu.identity()]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def build_all(jobs: Sequence[CppJob], options: RuntimeOptions, store: Store) -> list[Path]:
    """The shared object of each job, compiling what the store does not have.

    Raises BuildError with the compiler's first complaint.
    """
    if not jobs:
        return []
    compiler = find_compiler(options.cxx)
    keys = [job_key(job, compiler, options) for job in jobs]
    products = {key: store.path("cpp", key, ".so") for key in keys}
    missing = {key: job for key, job in zip(keys, jobs, strict=True) if products[key] is None}
    if missing:
        with observe.timed("build.cpp"):
            steps = [functools.partial(_compile, job, key, compiler, options, store) for key, job in missing.items()]
            built = pool.run_threads(steps, options.build_jobs)
            products.update(zip(missing, built, strict=True))
    return [product for key in keys if (product := products[key]) is not None]


def _compile(job: CppJob, key: str, compiler: Compiler, options: RuntimeOptions, store: Store) -> Path:
    with tempfile.TemporaryDirectory(dir=store.tmp) as folder:
        source, product = Path(folder) / f"{key[:16]}.cpp", Path(folder) / "out.so"
        source.write_text(job.source)
        before = [*compiler.command, *BASE_FLAGS, *job.flags, *options.cxx_flags]
        command = [*before, str(source), "-o", str(product), *compiler.openmp]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.cxx_timeout, cwd=folder)
        except subprocess.TimeoutExpired as late:
            raise BuildError(f"{command[0]} did not finish in {options.cxx_timeout} s") from late
        if run.returncode != 0:
            raise BuildError(
                f"{' '.join(command)}: exit status {run.returncode}",
                excerpt=_excerpt(run.stderr, job.source),
                advice="report this kernel; the excerpt has its text",
            )
        return store.put("cpp", key, product.read_bytes(), ".so")


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
