"""Entries of the cache as bytes, and what torch.compiler has for whole compiled functions.

What compiles is imported by the functions that reach the cache: this module is loaded with the names of torch.compiler.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from . import config
from .errors import InvalidArgument, TraceworkError
from .options import build

OF_THIS_MACHINE = frozenset({"package"})
"""Kinds of entries that say something of this machine's files only."""
INSTEAD = (
    "Use save_cache_artifacts() and load_cache_artifacts(), which carry what was compiled to another process or machine; the function is"
    " captured there again"
)


@dataclass(frozen=True)
class CacheInfo:
    """What save_cache_artifacts() and load_cache_artifacts() have carried: keys by kind ("artifact", "entry", "cpp", "triton", "choice", "cut")."""

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
    return store if isinstance(store, runtime.Store) else None


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """The entries of the disk cache that this process has made or used, as bytes for load_cache_artifacts(), and their keys; None where there
    are none.

    They are text, numbers and machine code, never pickles. Functions that were compiled with a `cache_dir` of their own are left out.
    """
    from tracework_runtime import carry

    store = _store()
    if store is None or not store.used:
        return None
    names = sorted(name for name in store.used if name[0] not in OF_THIS_MACHINE)
    return carry(store, names), _info(names)


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Puts what save_cache_artifacts() gave into the disk cache, so that what is compiled next is found there; None where there is no disk
    cache.

    The entries are programs that will run: load only what you trust. Raises InvalidArgument for bytes that are damaged, of another version or
    something else.
    """
    from tracework_runtime import ArtifactError, CacheCorrupt, put_carried

    if not isinstance(serialized_artifacts, (bytes, bytearray, memoryview)):
        raise InvalidArgument(
            f"load_cache_artifacts() takes the bytes that save_cache_artifacts() gave first, not {type(serialized_artifacts).__name__}."
        )
    store = _store()
    if store is None:
        return None
    try:
        return _info(put_carried(store, bytes(serialized_artifacts)))
    except (ArtifactError, CacheCorrupt) as error:
        raise InvalidArgument(f"load_cache_artifacts(): {error}. Give the bytes that save_cache_artifacts() gave.") from error


class PrecompileError(TraceworkError):
    """A function cannot be compiled ahead of its calls."""


def load_compiled_function(
    file: Any, *, f_globals: dict[str, object] | None = None, external_data: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Raises PrecompileError: no file holds a whole compiled function here."""
    raise PrecompileError(f"load_compiled_function(): a compiled function is not stored as a whole. {INSTEAD}.")


def _no_precompile(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises PrecompileError: nothing is compiled ahead of its calls here."""
    raise PrecompileError(f"precompile: a function is compiled at its calls, and not stored as a whole. {INSTEAD}.")


precompile = types.SimpleNamespace(capture=_no_precompile, load=_no_precompile, PrecompileError=PrecompileError)
"""The names of torch.compiler.precompile; each raises PrecompileError."""
