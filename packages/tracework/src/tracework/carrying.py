"""Entries of the cache as bytes, and what torch.compiler has for whole compiled functions.

What compiles is imported by the functions that reach the cache: this module is loaded with the names of torch.compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import config, dynamism
from .errors import InvalidArgument, TraceworkError
from .options import build


@dataclass(frozen=True)
class CacheInfo:
    """What save_cache_artifacts() and load_cache_artifacts() have carried: keys by kind ("artifact", "entry", "backward", "cpp", "triton", "choice",
    "cut", "dynamism")."""

    artifacts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def inductor_artifacts(self) -> list[str]:
        """Compiled graphs."""
        return self.artifacts.get("artifact", [])

    @property
    def autotune_artifacts(self) -> list[str]:
        """Measured choices of kernels' configurations."""
        return self.artifacts.get("choice", [])

    def empty(self) -> bool:
        """Whether nothing was carried."""
        return not self.artifacts


def _info(names: Any) -> CacheInfo:
    by_kind: dict[str, list[str]] = {}
    for kind, key, _ in names:
        by_kind.setdefault(kind, []).append(key)
    return CacheInfo(by_kind)


def _store() -> Any:
    """The store that the environment names; None where nothing is kept on a disk."""
    import tracework_runtime as runtime

    from .entry_store import runtime_options

    store = runtime.open_cache(runtime_options(build(None, None, config.current()))).store
    return store if store.lasting else None


def save_cache_artifacts(*, key: bytes | str | None = None) -> tuple[bytes, CacheInfo] | None:
    """The entries of the disk cache that this process has made or used, as bytes for load_cache_artifacts(), and their keys; None where there
    are none. key: signs them, so that load_cache_artifacts(..., key=) takes them for yours.

    They are text, numbers and machine code, never pickles. Functions that were compiled with a `cache_dir` of their own are left out.
    """
    from tracework_runtime import CacheUnsafe, carry
    from tracework_runtime.cache.store import OF_THIS_MACHINE

    store = _store()
    if store is None:
        return None
    dynamism.put_jobs()
    names = sorted(name for name in store.used if name[0] not in OF_THIS_MACHINE)
    try:
        return (carry(store, names, key), _info(names)) if names else None
    except CacheUnsafe as error:
        raise InvalidArgument(f"save_cache_artifacts(): {error}") from error


def load_cache_artifacts(serialized_artifacts: bytes, *, key: bytes | str | None = None) -> CacheInfo | None:
    """Puts what save_cache_artifacts() gave into the disk cache, so that what is compiled next is found there; None where there is no disk
    cache.

    The entries are programs that will run: load only what you trust. key: only what was signed with it is loaded. Raises InvalidArgument for
    bytes that are damaged, not signed so, of another version or something else.
    """
    from tracework_runtime import ArtifactError, CacheCorrupt, CacheUnsafe, put_carried

    if not isinstance(serialized_artifacts, (bytes, bytearray, memoryview)):
        raise InvalidArgument(
            f"load_cache_artifacts() takes the bytes that save_cache_artifacts() gave first, not {type(serialized_artifacts).__name__}."
        )
    store = _store()
    if store is None:
        return None
    try:
        return _info(put_carried(store, bytes(serialized_artifacts), key))
    except CacheUnsafe as error:
        raise InvalidArgument(f"load_cache_artifacts(): {error}") from error
    except (ArtifactError, CacheCorrupt) as error:
        raise InvalidArgument(f"load_cache_artifacts(): {error}. Give the bytes that save_cache_artifacts() gave.") from error


class PrecompileError(TraceworkError):
    """A function cannot be compiled ahead of its calls, or what was cannot be loaded."""


def load_compiled_function(
    file: Any, *, f_globals: dict[str, object] | None = None, external_data: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """The compiled function in a file that `compile(f).aot_compile(((x,), {})).save_compiled_function(name)` or tracework.save() wrote; `file` is
    open for reading bytes, or a name. It needs none of `f_globals` and `external_data`.

    Raises PrecompileError for a file that is none, or that was made for another machine.
    """
    from tracework_runtime import RuntimeFailure, load_program

    try:
        return load_program(file)
    except (RuntimeFailure, OSError) as error:
        raise PrecompileError(f"load_compiled_function(): {error}") from error


class Capture:
    """What precompile.capture() gives: call it with arguments like those to come, inside of a `with`, at whose end the file is written."""

    def __init__(self, function: Callable[..., Any], artifact_path: Any) -> None:
        self._function, self._path = function, artifact_path
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._written = 0

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.save()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives; a graph is compiled for such arguments when the file is written."""
        self._examples.append((args, kwargs))
        return self._function(*args, **kwargs)

    def save(self) -> None:
        """Writes the file now. Raises PrecompileError where nothing was called, or what was cannot be compiled as a whole."""
        from .programs import aot_compile_as  # which imports every package

        if not self._examples:
            raise PrecompileError("precompile.capture(): nothing was called. Call what it gave inside of the `with`.")
        if self._written == len(self._examples):
            return
        try:
            aot_compile_as(self._function, {}, self._examples).save(self._path)
        except (TraceworkError, ValueError, RuntimeError, OSError) as error:
            raise PrecompileError(f"precompile.capture(): {error}") from error
        self._written = len(self._examples)


class Precompile:
    """A function compiled ahead of its calls, into a file of tracework's: `precompile.capture(f, artifact_path=name)`, `precompile.load(name)`."""

    PrecompileError = PrecompileError

    @staticmethod
    def capture(function: Callable[..., Any], /, *, artifact_path: Any, cache_path: Any = None, **others: Any) -> Capture:
        """A function compiled for the calls that are made of what this gives, into one file, `artifact_path`; `cache_path` is not written.

        Raises PrecompileError for what torch.compile has beside, a tracer or another backend.
        """
        if others.pop("backend", "inductor") != "inductor" or others:
            raise PrecompileError(
                "precompile.capture(): there is one tracer and one backend here, 'inductor'. Leave the arguments out."
            )
        return Capture(function, artifact_path)

    @staticmethod
    def load(artifact_path: Any, cache_path: Any = None) -> Callable[..., Any]:
        """The compiled function in the file that capture() wrote. Raises PrecompileError."""
        return load_compiled_function(artifact_path)


precompile = Precompile()
"""The names of torch.compiler.precompile."""
