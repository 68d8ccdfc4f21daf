"""OPTION_NAMES: every option that `compile(options=...)` takes, with its type, default and meaning."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from . import torch_settings
from .config import Config
from .errors import InvalidArgument, UnknownName
from .modes import MODES, options_of_mode
from .torch_names import torch_names
from .torch_options import HONOURED_OPTIONS, is_torchs, say_ignored, translated

GraphPass = Callable[..., Any] | Sequence[Callable[..., Any]] | None
"""A function of a graph, or several, one after the other."""


@dataclass(frozen=True)
class Options:
    """What one `compile()` call asked for, complete and frozen.

    Attributes:
        cudagraphs: replay recorded CUDA graphs where that is safe; None: where that is measured to save a tenth of a call.
        graph_partition: where a graph cannot be recorded as one CUDA graph, record its parts, and run between them what stands against it.
        cudagraph_or_error: raise an error where a graph is not recorded as a CUDA graph, instead of running it kernel by kernel.
        cudagraph_policy: function of a loaded graph (runtime.CompiledFn): True records it, False does not, a callable is called in its place.
        cudagraph_capture_sizes: sizes that are recorded, an int or tuple of ints for each combination; None records each at its second use.
        max_autotune: choose block sizes of kernels for a GPU by measuring them, at the first compilation; results keep their bits.
        partitioner: "min_cut" or "default" (save what the backward reads), or a function as tracework_aotautograd.PARTITIONERS has them.
        memory_budget: how much of what the backward would read the forward keeps, from 0 (recompute everything) to 1.
        profile: decomposition profile of primops.
        numerics: what has eager's bits: "strict_pointwise" (elements), "strict_reduction" (sums), "strict" (both; docs/guides/numerics.md says where not).
        index_checks: kernels check indices; without, one that is out of range reads or writes memory that is another's, silently.
        fallback_random: random ops call the eager generator, so that values equal eager's.
        cache: read and write the disk cache.
        cache_dir: folder of the disk cache.
        cache_key: file of the key that seals the disk cache's entries; empty: the user's own.
        cache_layers: cache folders that are only read, between colons, asked in this order for what cache_dir does not have.
        cache_shared: folder, or address (s3://bucket/cache, redis://host:6379/0), that machines share; it takes a cache_key that they have in common.
        cxx: C++ compiler; empty finds one.
        check_operators: whether the first call of an operator of the program is compared with its schema: "off", "warn" or "raise".
        suppress_errors: run a graph uncompiled, with a warning, when its compilation fails, whatever the backend.
        guard_filter_fn: drops guards; unsafe, as in torch.compile.
        dynamic_sources: comma-separated names (x, x:0, self.table) whose sizes and numbers are symbols from the first capture on.
        dynamic_values: comma-separated sizes and numbers that are symbols from the first capture on.
        static_sources: comma-separated names whose sizes are never symbols.
        unbacked_sources: comma-separated names on whose sizes nothing may be decided, as with mark_unbacked.
        unbacked: keep item(), nonzero, masks and the like in the graph; None keeps both with fullgraph=True, else sizes where nothing decides on them.
        fallback_by_default: every operator calls its eager kernel; forward and backward are still functional graphs of their own.
        jobs: compilers, and processes for Triton, that work at one time; None: as many as there are cores.
        progress: show on a terminal what a long compilation is doing; None: where standard error is a terminal.
        kernel_ranges: kernels and library calls are ranges in torch's profiler, and in NVTX under its emit_nvtx, a microsecond each; no CUDA graphs.
        dump_dir: folder that receives each stage's text.
        debug: write each stage's text; where dump_dir names no folder, to a new one, tracework_debug/run_...
        diagram: draw the graph after fusion, as SVG and as text for Graphviz, in the folder of dump_dir or debug.
        pre_grad_custom_pass: called with the torch.fx.Graph of each captured graph, which it changes; or a list of such functions.
        joint_custom_pre_pass: called with the functional torch.fx.Graph of forward and backward, before it is cut in two, and that of an inference.
        joint_custom_post_pass: called as joint_custom_pre_pass, after it.
        post_grad_custom_pre_pass: called with each functional torch.fx.Graph, forward and backward apart, before operators are decomposed.
        post_grad_custom_post_pass: called as post_grad_custom_pre_pass, after it.
        prims_custom_pass: called with each graph of prims, a tracework_primops.PrimGraph; it gives another one, or None where it stays.
        loops_custom_pass: called with each lowered graph, a tracework_inductor.Program, before loops are fused; gives another one, or None.
    """

    cudagraphs: bool | None = field(default=None, metadata={"code": True})
    graph_partition: bool = field(default=True, metadata={"code": False})
    cudagraph_or_error: bool = field(default=False, metadata={"code": False})
    cudagraph_policy: Callable[..., Any] | None = field(default=None, metadata={"code": False})
    cudagraph_capture_sizes: tuple[int | tuple[int, ...], ...] | None = field(default=None, metadata={"code": False})
    max_autotune: bool = field(default=False, metadata={"code": True})
    partitioner: str | Callable[..., Any] = field(default="min_cut", metadata={"code": True})
    memory_budget: float = field(default=1.0, metadata={"code": True})
    profile: str = field(default="prims", metadata={"code": True})
    numerics: str = field(default="default", metadata={"code": True})
    index_checks: bool = field(default=True, metadata={"code": True})
    fallback_random: bool = field(default=True, metadata={"code": True})
    cache: bool = field(default=True, metadata={"code": False})
    cache_dir: str = field(default="", metadata={"code": False})
    cache_key: str = field(default="", metadata={"code": False})
    cache_layers: str = field(default="", metadata={"code": False})
    cache_shared: str = field(default="", metadata={"code": False})
    cxx: str = field(default="", metadata={"code": True})
    check_operators: str = field(default="warn", metadata={"code": False})
    suppress_errors: bool = field(default=False, metadata={"code": False})
    guard_filter_fn: Callable[..., Any] | None = field(default=None, metadata={"code": False})
    dynamic_sources: str = field(default="", metadata={"code": False})
    dynamic_values: str = field(default="", metadata={"code": False})
    static_sources: str = field(default="", metadata={"code": False})
    unbacked_sources: str = field(default="", metadata={"code": False})
    unbacked: bool | None = field(default=None, metadata={"code": False})
    fallback_by_default: bool = field(default=False, metadata={"code": True})
    jobs: int | None = field(default=None, metadata={"code": False})
    progress: bool | None = field(default=None, metadata={"code": False})
    kernel_ranges: bool = field(default=False, metadata={"code": False})
    dump_dir: str = field(default="", metadata={"code": False})
    debug: bool = field(default=False, metadata={"code": False})
    diagram: bool = field(default=False, metadata={"code": False})
    pre_grad_custom_pass: GraphPass = field(default=None, metadata={"code": True})
    joint_custom_pre_pass: GraphPass = field(default=None, metadata={"code": True})
    joint_custom_post_pass: GraphPass = field(default=None, metadata={"code": True})
    post_grad_custom_pre_pass: GraphPass = field(default=None, metadata={"code": True})
    post_grad_custom_post_pass: GraphPass = field(default=None, metadata={"code": True})
    prims_custom_pass: GraphPass = field(default=None, metadata={"code": True})
    loops_custom_pass: GraphPass = field(default=None, metadata={"code": True})


PASS_STAGES = {
    "captured": ("pre_grad_custom_pass",),
    "joint": ("joint_custom_pre_pass", "joint_custom_post_pass"),
    "functional": ("post_grad_custom_pre_pass", "post_grad_custom_post_pass"),
    "prims": ("prims_custom_pass",),
    "loops": ("loops_custom_pass",),
}
"""Where passes run -> the options that give them, in order."""
_log = logging.getLogger("tracework.capture.stored")


def passes_of(options: Options, stage: str) -> list[tuple[str, Callable[..., Any]]]:
    """The passes of a stage, each with its option."""
    return [(name, given) for name in PASS_STAGES[stage] for given in _listed(getattr(options, name))]


def _listed(given: GraphPass) -> Sequence[Callable[..., Any]]:
    if given is None:
        return ()
    return given if isinstance(given, (list, tuple)) else (given,)


def identity(options: Options, stages: Iterable[str] = (*PASS_STAGES, "partitioner")) -> str | None:
    """What passes of these stages, and a partitioner, are called in keys; None where one of them cannot be told from others, which is logged."""
    own = [("partitioner", options.partitioner)] if "partitioner" in stages and callable(options.partitioner) else []
    given = [row for stage in PASS_STAGES if stage in stages for row in passes_of(options, stage)] + own
    names = [(name, getattr(each, "uuid", lambda: None)()) for name, each in given]
    for name, found in names:
        if found is None:
            _log.info("nothing is kept: option %s has no uuid(), which tells its passes from others", name)
            return None
    return repr(names)


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


def option_name(row: Field[Any], docs: Mapping[str, str]) -> OptionName:
    """Raises TypeError, which says what a field lacks."""
    parts = {"metadata={'code': ...}": "code" in row.metadata, "a line under Attributes": row.name in docs}
    lacking = [part for part, there in parts.items() if not there]
    if lacking:
        raise TypeError(f"option {row.name!r} lacks {' and '.join(lacking)}")
    return OptionName(row.name, str(row.type), row.default, bool(row.metadata["code"]), docs[row.name])


OPTION_NAMES: Mapping[str, OptionName] = {f.name: option_name(f, _docs()) for f in fields(Options)}

OTHER_NAMES: Mapping[str, str] = {"activation_memory_budget": "memory_budget"}
"""Names that torch has for settings of its other stages."""

_CHECKS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "bool": (bool, "True or False"),
    "bool | None": ((bool, type(None)), "True, False or None"),
    "str": (str, "a string"),
    "float": ((int, float), "a number"),
    "tuple[int | tuple[int, ...], ...] | None": (
        (tuple, list, type(None)),
        "a tuple of sizes, each an int or a tuple of ints, or None",
    ),
    "int | None": ((int, type(None)), "a positive int or None"),
    "Callable[..., Any] | None": (object, "a callable or None"),
    "str | Callable[..., Any]": (object, "a name or a function"),
    "GraphPass": (object, "a function of a graph, a list of them, or None"),
}


def _checked(name: str, value: Any) -> Any:
    row = OPTION_NAMES[name]
    kind, text = _CHECKS[row.type]
    fits = isinstance(value, kind) and (not row.type.startswith("Callable") or value is None or callable(value))
    if row.type == "str | Callable[..., Any]":
        fits = isinstance(value, str) or callable(value)
    if row.type == "GraphPass":
        fits = value is None or callable(value) or (isinstance(value, (list, tuple)) and all(map(callable, value)))
    if row.type == "int | None" and value is not None:
        fits = type(value) is int and value > 0
    if not fits:
        raise InvalidArgument(f"option {name!r} takes {text}, not {value!r}: {row.doc}.")
    if name in _CHOICES and isinstance(value, str) and value not in (words := _CHOICES[name]()):
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
    "check_operators": lambda: ("off", "warn", "raise"),
    "numerics": _words("tracework_primops", "NUMERICS"),
    "partitioner": _words("tracework_aotautograd", "PARTITIONERS"),
    "profile": _words("tracework_primops", "PROFILES"),
}


def build(mode: str | None, options: Mapping[str, Any] | None, config: Config) -> Options:
    """Mode or options, over what the environment and torch's config modules say.

    Options of torch's that have no effect here are told in one warning. Raises InvalidArgument when both are given, when a value has the
    wrong type and for an option of torch's that is refused, UnknownName for an unknown mode or option.
    """
    if mode is not None and options is not None:
        raise InvalidArgument(
            f"mode={mode!r} and options= were both given; a mode is a set of options, so give one of them. "
            f"options={dict(options_of_mode(mode))!r} is what this mode stands for."
        )
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgument(f"options= takes a dict of options by name, not {options!r}; see list_options().")
    if config.refused:
        raise InvalidArgument(config.refused[0])
    given = dict(options_of_mode(mode)) if mode is not None else dict(options or {})
    settings = torch_settings.now(config.torchs)
    values: dict[str, Any] = {
        "cache": config.cache and not settings.force_disable_caches,
        "cache_dir": config.cache_dir,
        "cache_key": config.cache_key,
        "cache_layers": config.cache_layers,
        "cache_shared": config.cache_shared,
        "cxx": config.cxx,
        "suppress_errors": config.suppress_errors or settings.suppress_errors,
        "check_operators": settings.check_operators,
        "dynamic_sources": settings.dynamic_sources or config.dynamic_sources,
        "dynamic_values": settings.dynamic_values or config.dynamic_values,
        "static_sources": settings.static_sources or config.static_sources,
        "unbacked_sources": settings.unbacked_sources or config.unbacked_sources,
        "dump_dir": config.dump_dir,
    }
    say_ignored(_put(values, settings.options))
    say_ignored(_put(values, given))
    if (values.get("debug") or values.get("diagram")) and not values["dump_dir"]:
        values["dump_dir"] = _debug_folder(config.debug_dir)
    if values.get("partitioner") == "default" and values.get("memory_budget", 1.0) < 1.0:
        raise InvalidArgument("option 'memory_budget' is for partitioner 'min_cut': 'default' keeps all that a backward reads.")
    return Options(**values)


def _put(values: dict[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Puts what is given into `values`, by our names; gives torch's names that have no effect."""
    ignored = []
    for spelled, value in given.items():
        name = OTHER_NAMES.get(spelled, str(spelled).replace("-", "_"))
        if name in OPTION_NAMES:
            values[name] = _checked(name, value)
        elif not is_torchs(name):
            raise UnknownName("option", spelled, OPTION_NAMES, also=[*torch_names("option"), *OTHER_NAMES])
        elif (found := translated(name, value)) is None:
            ignored.append(name)
        else:
            for own, chosen in found.items():
                values[own] = _both_numerics(values.get(own), chosen) if own == "numerics" else _checked(own, chosen)
    return ignored


def _both_numerics(before: str | None, chosen: str) -> str:
    """Options of torch's that ask for elements and for sums ask for both."""
    return chosen if before in (None, "default", chosen) else "strict"


@functools.cache
def _debug_folder(above: str) -> str:
    """One new folder for a process."""
    return str(Path(above or ".", "tracework_debug", time.strftime(f"run_%Y_%m_%d_%H_%M_%S-pid_{os.getpid()}")))


def list_options() -> list[str]:
    """Names of all options: ours, then those of torch.compile that have an effect here. Others of torch.compile's are taken, too: those that
    could only change speed, with a warning."""
    return [*OPTION_NAMES, *(name for name in HONOURED_OPTIONS if name not in OPTION_NAMES)]


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """What each mode sets, or what one mode sets; `dynamic` changes nothing of it."""
    return {m: dict(o) for m, o in MODES.items()} if mode is None else dict(options_of_mode(mode))
