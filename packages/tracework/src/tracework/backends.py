"""BACKENDS: what turns a captured graph into a callable, by name, callable or entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import torch
from tracework_capture import SYMBOLIC_SIZES

from .errors import InvalidArgument, UnknownName
from .observe import Observe
from .options import Options

ENTRY_POINT_GROUP = "tracework.backends"

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]
BackendFactory = Callable[[Options, Observe], Backend]


def _assembled(name: str) -> BackendFactory:
    """A factory of assemble.py, which imports every package, when it is first asked for a backend."""

    def factory(options: Options, observe: Observe) -> Backend:
        from . import assemble

        return getattr(assemble, name)(options, observe)

    return factory


BACKENDS: dict[str, BackendFactory] = {
    "inductor": _assembled("inductor_backend"),
    "aot_eager": _assembled("aot_eager_backend"),
    "cudagraphs": _assembled("cudagraphs_backend"),
    "eager": _assembled("eager_backend"),
}
_DEBUG = {"eager", "aot_eager"}
_registered: dict[str, Backend] = {}
_default: list[str | Backend] = ["inductor"]


def register_backend(compiler: Backend | None = None, name: str | None = None, *, dynamic: bool = False) -> Any:
    """Registers `compiler(graph_module, example_inputs) -> callable` under `name` (its own name when left out).

    A decorator with and without arguments.

    Args:
        dynamic: what the backend makes of a graph serves all sizes: where one changes, it gets a graph with a symbol (a SymInt as the
            placeholder's meta["example_value"], the present number as the example). Otherwise each size and int in a graph is a constant, and
            another one is compiled anew; but a backend that gives graphs back as they are gets symbols in any case.

    Raises InvalidArgument for what cannot be called, for a name that is taken or is none, and with `dynamic` for what takes no attribute.
    """
    if compiler is None:
        return lambda fn: register_backend(fn, name=name, dynamic=dynamic)
    if not callable(compiler):
        raise InvalidArgument(f"register_backend() takes a callable (graph_module, example_inputs), not {compiler!r}.")
    key = name or getattr(compiler, "__name__", None)
    if not isinstance(key, str):
        raise InvalidArgument(f"a backend is registered under a name, not under {key!r}. Give name='...'.")
    if key in BACKENDS or (key in _registered and _registered[key] is not compiler):
        raise InvalidArgument(f"backend name {key!r} is taken; register under another name.")
    if dynamic:
        _keep_sizes_open(compiler)
    _registered[key] = compiler
    return compiler


def _keep_sizes_open(backend: Any) -> Any:
    """The backend, marked as one that takes symbolic sizes. Raises InvalidArgument."""
    try:
        setattr(getattr(backend, "__func__", backend), SYMBOLIC_SIZES, True)
    except AttributeError as error:
        raise InvalidArgument(
            f"dynamic=True marks the backend by an attribute, and {backend!r} takes none. Give a function."
        ) from error
    return backend


def _entry_points() -> dict[str, Any]:
    return {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP)}


def list_backends(exclude_tags: tuple[str, ...] | None = ("debug",)) -> list[str]:
    """Names that `compile(backend=...)` takes; those for debugging are left out unless `exclude_tags` is None or empty."""
    hidden = _DEBUG if "debug" in (exclude_tags or ()) else set()
    return sorted({*BACKENDS, *_registered, *_entry_points()} - hidden)


def set_default_backend(backend: str | Backend | None) -> None:
    """The backend for `compile()` calls that name none; None goes back to "inductor"."""
    chosen = "inductor" if backend is None else backend
    if isinstance(chosen, str):
        _check_name(chosen)
    elif not callable(chosen):
        raise InvalidArgument(f"a backend is a name or a callable, not {chosen!r}.")
    _default[0] = chosen


def get_default_backend() -> str | Backend:
    """What `compile()` uses when no backend is named."""
    return _default[0]


def _check_name(name: str) -> None:
    if name not in BACKENDS and name not in _registered and name not in _entry_points():
        raise UnknownName("backend", name, list_backends(None))


def is_ours(backend: str | Backend | None) -> bool:
    """Whether it is a row of BACKENDS, which know sizes that depend on data."""
    chosen = _default[0] if backend is None else backend
    return isinstance(chosen, str) and chosen in BACKENDS


def resolve(backend: str | Backend | None, options: Options, observe: Observe) -> Backend:
    """The callable behind a name; raises UnknownName or InvalidArgument."""
    chosen = _default[0] if backend is None else backend
    if not isinstance(chosen, str):
        if not callable(chosen):
            raise InvalidArgument(f"backend= takes a name or a callable (graph_module, example_inputs), not {chosen!r}.")
        return chosen
    _check_name(chosen)
    if chosen in BACKENDS:
        return _keep_sizes_open(BACKENDS[chosen](options, observe))  # type: ignore[no-any-return]
    if chosen in _registered:
        return _registered[chosen]
    return _entry_points()[chosen].load()
