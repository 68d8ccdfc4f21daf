"""OPTION_NAMES: every option that `compile(options=...)` takes, with its type, default and meaning."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .config import Config
from .errors import InvalidArgument, UnknownName
from .modes import MODES, options_of_mode


@dataclass(frozen=True)
class Options:
    """What one `compile()` call asked for, complete and frozen.

    Attributes:
        cudagraphs: replay recorded CUDA graphs where that is safe.
        graph_partition: where a graph cannot be recorded as one CUDA graph, record its parts, and run between them what stands against it.
        cudagraph_or_error: raise an error where a graph is not recorded as a CUDA graph, instead of running it kernel by kernel.
        cudagraph_policy: function of a loaded graph (runtime.CompiledFn): True records it, False does not, a callable is called in its place.
        cudagraph_capture_sizes: sizes that are recorded, an int or tuple of ints for each combination; None records each at its second use.
        max_autotune: measure more candidates before choosing.
        partitioner: "min_cut" or "default" (save what the backward reads).
        memory_budget: how much of what the backward would read the forward keeps, from 0 (recompute everything) to 1.
        profile: decomposition profile of primops.
        numerics: what has eager's bits: "strict_pointwise" (elements), "strict_reduction" (sums), "strict" (both; README.md says where not).
        index_checks: kernels check indices; without, one that is out of range reads or writes memory that is another's, silently.
        fallback_random: random ops call the eager generator, so that values equal eager's.
        cache: read and write the disk cache.
        cache_dir: folder of the disk cache.
        cache_key: file of the key that seals the disk cache's entries; empty: the user's own.
        cxx: C++ compiler; empty finds one.
        suppress_errors: run a graph uncompiled, with a warning, when its compilation fails, whatever the backend.
        guard_filter_fn: drops guards; unsafe, as in torch.compile.
        dynamic_sources: comma-separated names (x, x:0, self.table) whose sizes and numbers are symbols from the first capture on.
        dynamic_values: comma-separated sizes and numbers that are symbols from the first capture on.
        static_sources: comma-separated names whose sizes are never symbols.
        unbacked_sources: comma-separated names on whose sizes nothing may be decided, as with mark_unbacked.
        unbacked: keep item(), nonzero, masks and the like in the graph; None keeps both with fullgraph=True, else sizes where nothing decides on them.
        dump_dir: folder that receives each stage's text.
        progress: show on a terminal what a long compilation is doing; None: where standard error is a terminal.
    """

    cudagraphs: bool = field(default=False, metadata={"code": False})
    graph_partition: bool = field(default=True, metadata={"code": False})
    cudagraph_or_error: bool = field(default=False, metadata={"code": False})
    cudagraph_policy: Callable[..., Any] | None = field(default=None, metadata={"code": False})
    cudagraph_capture_sizes: tuple[int | tuple[int, ...], ...] | None = field(default=None, metadata={"code": False})
    max_autotune: bool = field(default=False, metadata={"code": True})
    partitioner: str = field(default="min_cut", metadata={"code": True})
    memory_budget: float = field(default=1.0, metadata={"code": True})
    profile: str = field(default="prims", metadata={"code": True})
    numerics: str = field(default="default", metadata={"code": True})
    index_checks: bool = field(default=True, metadata={"code": True})
    fallback_random: bool = field(default=True, metadata={"code": True})
    cache: bool = field(default=True, metadata={"code": False})
    cache_dir: str = field(default="", metadata={"code": False})
    cache_key: str = field(default="", metadata={"code": False})
    cxx: str = field(default="", metadata={"code": True})
    suppress_errors: bool = field(default=False, metadata={"code": False})
    guard_filter_fn: Callable[..., Any] | None = field(default=None, metadata={"code": False})
    dynamic_sources: str = field(default="", metadata={"code": False})
    dynamic_values: str = field(default="", metadata={"code": False})
    static_sources: str = field(default="", metadata={"code": False})
    unbacked_sources: str = field(default="", metadata={"code": False})
    unbacked: bool | None = field(default=None, metadata={"code": False})
    dump_dir: str = field(default="", metadata={"code": False})
    progress: bool | None = field(default=None, metadata={"code": False})


@dataclass(frozen=True)
class OptionName:
    """One row of OPTION_NAMES."""

    name: str
    type: str
    default: Any
    changes_code: bool
    doc: str


def _docs() -> dict[str, str]:
    lines = (Options.__doc__ or "").split("Attributes:")[1].strip().splitlines()
    return {n.strip(): text.strip().rstrip(".") for n, _, text in (line.partition(":") for line in lines)}


OPTION_NAMES: Mapping[str, OptionName] = {
    f.name: OptionName(f.name, str(f.type), f.default, bool(f.metadata["code"]), _docs()[f.name]) for f in fields(Options)
}

# torch.compile's spelling of options that exist here under another name.
TORCH_NAMES: Mapping[str, str] = {
    "triton.cudagraphs": "cudagraphs",
    "triton.cudagraph_or_error": "cudagraph_or_error",
    "triton.cudagraph_capture_sizes": "cudagraph_capture_sizes",
    "activation_memory_budget": "memory_budget",
}

_CHECKS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "bool": (bool, "True or False"),
    "bool | None": ((bool, type(None)), "True, False or None"),
    "str": (str, "a string"),
    "float": ((int, float), "a number"),
    "tuple[int | tuple[int, ...], ...] | None": (
        (tuple, list, type(None)),
        "a tuple of sizes, each an int or a tuple of ints, or None",
    ),
    "Callable[..., Any] | None": (object, "a callable or None"),
}


def _checked(name: str, value: Any) -> Any:
    row = OPTION_NAMES[name]
    kind, text = _CHECKS[row.type]
    fits = isinstance(value, kind) and (not row.type.startswith("Callable") or value is None or callable(value))
    if not fits:
        raise InvalidArgument(f"option {name!r} takes {text}, not {value!r}: {row.doc}.")
    if name in _CHOICES and value not in (words := _CHOICES[name]()):
        raise InvalidArgument(f"option {name!r} takes one of {', '.join(words)}, not {value!r}: {row.doc}.")
    if name == "memory_budget" and (isinstance(value, bool) or not 0 <= value <= 1):
        raise InvalidArgument(f"option {name!r} takes a number from 0 to 1, not {value!r}: {row.doc}.")
    return _sizes(name, value) if name == "cudagraph_capture_sizes" and value is not None else value


def _sizes(name: str, value: Any) -> tuple[Any, ...]:
    sizes = tuple(tuple(size) if isinstance(size, (tuple, list)) else size for size in value)
    if any(type(n) is not int for size in sizes for n in (size if isinstance(size, tuple) else (size,))):
        raise InvalidArgument(f"option {name!r} takes sizes, each an int or a tuple of ints, not {value!r}.")
    return sizes


def _words(package: str, table: str) -> Callable[[], Collection[str]]:
    """The keys of a package's table, which is imported when an option that names one is given."""
    return lambda: getattr(importlib.import_module(package), table)


_CHOICES: Mapping[str, Callable[[], Collection[str]]] = {
    "numerics": _words("tracework_primops", "NUMERICS"),
    "partitioner": _words("tracework_aotautograd", "PARTITIONERS"),
    "profile": _words("tracework_primops", "PROFILES"),
}


def build(mode: str | None, options: Mapping[str, Any] | None, config: Config) -> Options:
    """Mode or options, over the environment's defaults.

    Raises InvalidArgument when both are given or a value has the wrong type, UnknownName for an unknown mode or option.
    """
    if mode is not None and options is not None:
        raise InvalidArgument(
            f"mode={mode!r} and options= were both given; a mode is a set of options, so give one of them. "
            f"options={dict(options_of_mode(mode))!r} is what this mode stands for."
        )
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgument(f"options= takes a dict of options by name, not {options!r}; see list_options().")
    given = dict(options_of_mode(mode)) if mode is not None else dict(options or {})
    values: dict[str, Any] = {
        "cache": config.cache,
        "cache_dir": config.cache_dir,
        "cache_key": config.cache_key,
        "cxx": config.cxx,
        "suppress_errors": config.suppress_errors,
        "dynamic_sources": config.dynamic_sources,
        "dynamic_values": config.dynamic_values,
        "static_sources": config.static_sources,
        "unbacked_sources": config.unbacked_sources,
        "dump_dir": config.dump_dir,
    }
    for name, value in given.items():
        own = TORCH_NAMES.get(name, name)
        if own not in OPTION_NAMES:
            raise UnknownName("option", name, OPTION_NAMES)
        values[own] = _checked(own, value)
    return Options(**values)


def list_options() -> list[str]:
    """Names of all options."""
    return list(OPTION_NAMES)


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """What each mode sets, or what one mode sets."""
    return {m: dict(o) for m, o in MODES.items()} if mode is None else dict(options_of_mode(mode))
