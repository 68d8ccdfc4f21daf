"""BACKENDS: what turns a captured graph into a callable, by name, callable or entry point."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

import torch
from tracework_capture import ENTRIES, REPEATS_WRITES, SYMBOLIC_SIZES

from . import _torch
from .errors import InvalidArgument, UnknownName
from .modes import MODES
from .observe import Observe, nothing
from .onnx_engines import ENGINES, missing_package
from .options import OPTION_NAMES, OTHER_NAMES, Options
from .torch_names import torch_names
from .torch_options import HONOURED_OPTIONS

ENTRY_POINT_GROUPS = ("tracework.backends", "torch_dynamo_backends")
"""Where packages offer backends: those written for this compiler, then those written for torch.compile."""

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]
BackendFactory = Callable[[Options, Observe], Backend]


@dataclass(frozen=True)
class Given:
    """What a compile() call gives to the backend itself."""

    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Retired:
    """A backend of torch.compile whose package has had its last release.

    Attributes:
        package: what is imported; where it is installed, what it registers with torch is used.
        last: its last release. why: what ended it. instead: what to use.
    """

    package: str
    last: str
    why: str
    instead: str

    def __str__(self) -> str:
        return f"{self.package} {self.last} is its last release: {self.why}. Use {self.instead}."


RETIRED: Mapping[str, Retired] = {
    "ipex": Retired(
        "intel_extension_for_pytorch",
        "2.8.0",
        "it was archived in March 2026 and loads with torch 2.8 only",
        "backend='inductor', or 'openvino' on Intel's hardware",
    ),
    "openxla": Retired(
        "torch_xla", "2.9.0", "it is not developed further (pytorch/xla#9752)", "backend='inductor', or JAX on TPUs"
    ),
}


def _assembled(name: str) -> BackendFactory:
    """A factory of assemble.py, which imports every package, when it is first asked for a backend."""

    def factory(options: Options, observe: Observe) -> Backend:
        from . import assemble

        return getattr(assemble, name)(options, observe)

    return factory


class _Stored:
    """A backend of assemble.py of which captured entries are kept: every package is imported when the first graph comes that is not stored."""

    __name__ = "backend"

    def __init__(self, factory: BackendFactory, options: Options) -> None:
        self._factory, self._options = factory, options
        self._made: Backend | None = None

    def prepare(self) -> Backend:
        """The backend itself."""
        if self._made is None:
            self._made = self._factory(self._options, nothing)
        return self._made

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return self.prepare()(gm, example_inputs)


def _with_store(factory: BackendFactory, options: Options) -> Backend:
    """The backend, with captured entries where they are kept. Raises MissingCompiler."""
    from .entry_store import check_named_compiler, store_of  # with the runtime

    backend = _Stored(factory, options)
    store = store_of(options, backend.prepare, _rest_of)
    if store is None:
        return backend.prepare()
    if not options.fallback_by_default:
        check_named_compiler(options)
    setattr(backend, ENTRIES, store)
    return backend


def _rest_of(recipe: Any, options: Options, report: Callable[[str, str], None]) -> Any:
    from .assemble import rest_of  # with all that compiling takes

    return rest_of(recipe, options, report)


def stores(backend: str | Backend | None, options: Options) -> bool:
    """Whether captured entries of this backend are kept."""
    from .entry_store import store_of  # as above

    chosen = _default[0] if backend is None else backend
    return chosen in STORED and store_of(options, lambda: None, _rest_of) is not None


def _on_engine(name: str) -> Callable[..., Backend]:
    """The factory of an engine's backend, which takes options of its own."""

    def factory(options: Options, observe: Observe, given: Mapping[str, Any] | None = None) -> Backend:
        from . import assemble  # as in _assembled()
        from .onnx.compiler import check

        check(name, given or {}, options.numerics)
        return assemble.engine_backend(name, options, observe, given or {})

    return factory


BACKENDS: dict[str, BackendFactory] = {
    "inductor": _assembled("inductor_backend"),
    "tracework": _assembled("inductor_backend"),
    "aot_eager": _assembled("aot_eager_backend"),
    "aot_eager_decomp_partition": _assembled("prims_backend"),
    "cudagraphs": _assembled("cudagraphs_backend"),
    "eager": _assembled("eager_backend"),
    **{name: _on_engine(name) for name in ENGINES},
}
STORED = ("inductor", "tracework")
"""Backends of which captured entries are kept on the disk."""
_DEBUG = {"eager", "aot_eager", "aot_eager_decomp_partition"}
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


def _own(backend: Backend) -> Backend:
    """A backend of assemble.py, marked with what those know."""
    setattr(backend, REPEATS_WRITES, True)
    return _keep_sizes_open(backend)


_last: dict[str, tuple[BackendFactory, Options, Backend]] = {}
"""By name: the backend that was made last without an observer, which equal calls share, so that they share what is compiled."""


def _backend_of(name: str, options: Options, observe: Observe) -> Backend:
    """The backend of this name, which is no engine of others. One that records CUDA graphs is a compile call's own: what is recorded goes with it."""
    known = _last.get(name)
    factory = BACKENDS[name]
    if known is not None and known[0] is factory and known[1] == options and observe is nothing:
        return known[2]
    stored = name in STORED and observe is nothing
    made = _own(_with_store(factory, options) if stored else factory(options, observe))
    if observe is nothing and not options.cudagraphs and name != "cudagraphs":
        _last[name] = factory, options, made
    return made


def _entry_points() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for group in ENTRY_POINT_GROUPS:
        for point in entry_points(group=group):
            found.setdefault(point.name, point)
    return found


def list_backends(exclude_tags: tuple[str, ...] | None = ("debug", "not installed")) -> list[str]:
    """Names that `compile(backend=...)` takes.

    Args:
        exclude_tags: leaves out those for debugging ("debug"), and those whose package is "not installed". None or empty: all.
    """
    tags = set(exclude_tags or ())
    hidden = _DEBUG if "debug" in tags else set()
    if "not installed" in tags:
        hidden = hidden | {name for name, state in states().items() if not state.installed}
    others = {name for name, made in _torch.torchs_backends().items() if not made.__module__.startswith("torch.")}
    return sorted({*BACKENDS, *RETIRED, *_registered, *_entry_points(), *others} - hidden)


@dataclass(frozen=True)
class State:
    """Whether a backend of another package can be used; the text says which release, or what to do."""

    installed: bool
    text: str


def states() -> dict[str, State]:
    """Backend -> its state, for those that need another package."""
    found = {}
    for name, row in ENGINES.items():
        package = missing_package(name)
        text = f"{row.package} {_version(row.distribution)}" if package is None else f"pip install 'tracework[{row.extra}]'"
        found[name] = State(package is None, text)
    for name, retired in RETIRED.items():
        found[name] = State(importlib.util.find_spec(retired.package) is not None, str(retired))
    return found


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(of an unknown release)"


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
    if not (name in BACKENDS or name in _registered or name in RETIRED or name in _entry_points() or _torch.torchs_backend(name)):
        raise UnknownName("backend", name, list_backends(None))


def is_ours(backend: str | Backend | None) -> bool:
    """Whether it is a row of BACKENDS, which know sizes that depend on data."""
    chosen = _default[0] if backend is None else backend
    return isinstance(chosen, str) and chosen in BACKENDS


def apart(backend: str | Backend | None, mode: str | None, options: Any) -> tuple[str | None, Any, Given]:
    """The mode and the options of compile() that are for this compiler, and what is for the backend.

    An engine gets the names that it knows. A backend that is not ours gets all of it if it takes `mode=` or `options=`, as from torch.compile;
    names of ours act here, too.
    """
    chosen = _default[0] if backend is None else backend
    if (mode is not None and options is not None) or (options is not None and not isinstance(options, Mapping)):
        return mode, options, Given()  # an error, which build() raises
    given = dict(options or {})
    known = {*OPTION_NAMES, *OTHER_NAMES, *torch_names("option")}
    if isinstance(chosen, str) and chosen in ENGINES:
        theirs = {n: v for n, v in given.items() if n in ENGINES[chosen].options or n not in known}
        ours = {n: v for n, v in given.items() if n not in theirs}
        return mode, ours if mode is None else None, Given(options=theirs)
    if (isinstance(chosen, str) and chosen in BACKENDS) or not (mode or given):
        return mode, options, Given()
    foreign = _foreign(chosen)
    passed_mode = mode if mode and mode != "default" and _takes(foreign, "mode") else None
    if passed_mode is not None:
        return mode if mode in MODES else None, None, Given(mode=passed_mode)
    if given and _takes(foreign, "options"):
        acting = {*OPTION_NAMES, *OTHER_NAMES, *HONOURED_OPTIONS}
        return mode, {n: v for n, v in given.items() if n in acting}, Given(options=given)
    return mode, options, Given()


def _takes(backend: Backend, name: str) -> bool:
    """Whether a backend has a parameter of this name."""
    try:
        parameters = inspect.signature(backend).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _foreign(chosen: str | Backend) -> Backend:
    """A backend that is no row of ours."""
    if not isinstance(chosen, str):
        if not callable(chosen):
            raise InvalidArgument(f"backend= takes a name or a callable (graph_module, example_inputs), not {chosen!r}.")
        return chosen
    if chosen in _registered:
        return _registered[chosen]
    points = _entry_points()
    if chosen in points:
        return points[chosen].load()
    if chosen in RETIRED:
        return _retired(chosen)
    found = _torch.torchs_backend(chosen)
    if found is None:
        raise UnknownName("backend", chosen, list_backends(None))
    return found


def _retired(name: str) -> Backend:
    """What the package registers with torch when it is imported."""
    row = RETIRED[name]
    if importlib.util.find_spec(row.package) is None:
        raise InvalidArgument(f"backend {name!r} is retired: {row}")
    importlib.import_module(row.package)
    found = _torch.torchs_backend(name)
    if found is None:
        raise InvalidArgument(f"{row.package} has not registered {name!r} with torch. {row}")
    return found


def resolve(backend: str | Backend | None, options: Options, observe: Observe, given: Given | None = None) -> Backend:
    """The callable behind a name, looked up in BACKENDS, among registered ones, in ENTRY_POINT_GROUPS, in RETIRED and, where torch's
    compiler is imported already, in torch's registry. Raises UnknownName or InvalidArgument."""
    chosen = _default[0] if backend is None else backend
    given = given or Given()
    if isinstance(chosen, str) and chosen in BACKENDS:
        if chosen not in ENGINES:
            return _backend_of(chosen, options, observe)
        factory: Callable[..., Backend] = BACKENDS[chosen]
        return _own(factory(options, observe, given.options))
    foreign = _foreign(chosen)
    passed: dict[str, Any] = {k: v for k, v in (("mode", given.mode), ("options", dict(given.options))) if v}
    if not passed:
        return foreign
    with_them = functools.partial(foreign, **passed)
    return _keep_sizes_open(with_them) if getattr(foreign, SYMBOLIC_SIZES, False) else with_them
