"""Captured entries in the disk cache, and graphs loaded from it: all that a process needs which compiles what another one has compiled.

Nothing of capture's interpreter, of aotautograd's tracer or of inductor is imported here.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch
import tracework_runtime as runtime
from tracework_aotautograd.recipes import RECIPE, Parts, from_recipe
from tracework_capture import paused_collection, report_uncompiled

from . import _torch, activity
from .errors import MissingCompiler
from .options import PASS_STAGES, Options, identity

KIND, SUFFIX = "entry", ".twe"
BACKWARD = "backward"
"""The kind of what is kept of a backward, under the key that the entry with its forward has for it."""
FREE = frozenset(
    {"cache_dir", "cache_key", "cache_layers", "cache_shared", "jobs", "progress", "suppress_errors", "check_operators"}
)
"""Options that change nothing of what is captured and compiled."""
OF_PROGRAM = ("cudagraph_policy", "guard_filter_fn")
"""Options that are functions of the program, whose code no key has."""
WITH_IDENTITY = ("partitioner", *itertools.chain(*PASS_STAGES.values()))
"""Options whose functions a key has where they have a uuid()."""


def runtime_options(options: Options) -> runtime.RuntimeOptions:
    """What of the options the runtime takes."""
    return runtime.RuntimeOptions(
        cxx=options.cxx or None,
        build_jobs=options.jobs,
        triton_workers=options.jobs,
        cache_dir=options.cache_dir or None,
        cache_key=options.cache_key or None,
        cache_layers=tuple(folder for folder in options.cache_layers.split(os.pathsep) if folder),
        cache_shared=options.cache_shared or None,
        disk_cache=options.cache,
        cudagraph_capture_sizes=options.cudagraph_capture_sizes,
        graph_partition=options.graph_partition,
        cudagraph_or_error=options.cudagraph_or_error,
        cudagraph_policy=options.cudagraph_policy,
        check_operators=options.check_operators,
    )


def recorded(loaded: Any, options: Options, visible: int | None) -> Any:
    """A loaded graph, as CUDA graphs where the options, or what it is, say so. visible: how many outputs a program gets to see."""
    if options.cudagraphs:
        return runtime.cudagraph(loaded, runtime_options(options))
    if options.cudagraphs is None:
        return runtime.recorded_where_it_pays(loaded, runtime_options(options), visible=visible)
    return loaded


def with_recipe(call: Any, artifact: runtime.Artifact, visible: int | None) -> Any:
    """What was made of an artifact, with its recipe."""
    setattr(
        call,
        RECIPE,
        {
            "artifact": artifact.key,
            "places": {name: {text: list(numbers) for text, numbers in known.items()} for name, known in artifact.places.items()},
            "devices": _identities(artifact),
            "visible": visible,
        },
    )
    return call


def _identities(artifact: runtime.Artifact) -> dict[str, str]:
    kinds = {name.partition(":")[0] for name in artifact.devices} - {"cpu"}
    return {kind: runtime.DEVICES[kind].identity() for kind in sorted(kinds & set(runtime.DEVICES))}


def _report_of(recipe: Any) -> Callable[[str, str], None]:
    """What warns that a call runs uncompiled."""

    def report(reason: str, place: str) -> None:
        report_uncompiled(reason, place or recipe["captured"]["place"])

    return report


RestOf = Callable[[Any, Options, Callable[[str, str], None]], Any]


class EntryStore:
    """capture.EntryStore over the disk cache."""

    def __init__(self, options: Options, prepare: Callable[[], object], rest_of: RestOf) -> None:
        self._options, self._prepare, self._rest_of = options, prepare, rest_of

    @functools.cached_property
    def _facts(self) -> str:
        """All that changes what is captured and compiled, beside the program and what guards compare."""
        options = {f.name: getattr(self._options, f.name) for f in dataclasses.fields(self._options) if f.name not in FREE}
        options |= {name: None for name in WITH_IDENTITY if not isinstance(options[name], str)}
        given = runtime_options(self._options)
        extra = [runtime.package_digest(name, given) for name in ("tracework", "tracework_capture")]
        extra += [
            str(identity(self._options)),
            sys.version,
            numpy.__version__,
            str(torch.cuda.is_available()),
            str(torch.cuda.device_count()),
        ]
        return runtime.cache_key(runtime.KeyFacts("entry", repr(options), given, frozenset(), tuple(extra)))

    def _key(self, key: str) -> str:
        # a backward in stages for DistributedDataParallel is another one
        return hashlib.sha256(f"{self._facts} {_torch.gradient_buckets()} {key}".encode()).hexdigest()

    @property
    def _cache(self) -> runtime.Cache:
        return runtime.open_cache(runtime_options(self._options))

    def get(self, key: str) -> bytes | None:
        """What was put under a key by a process of the same packages, devices and options."""
        return self._cache.store.get(KIND, self._key(key), SUFFIX)

    def put(self, key: str, content: bytes) -> None:
        """Keeps it."""
        self._cache.store.put(KIND, self._key(key), content, SUFFIX)

    def missed(self) -> None:
        """Imports what compiling takes."""
        self._prepare()

    def restore(self, recipe: Any) -> Callable[..., Any] | None:
        """What a recipe was the recipe of; None where a part of it is gone, or was for other devices."""
        with activity.stage("runtime", progress=self._options.progress):
            return from_recipe(recipe, Parts(self._graph, self._backward, self._rest, _report_of(recipe), runtime.addresses))

    def _rest(self, recipe: Any) -> Any:
        return self._rest_of(recipe, self._options, _report_of(recipe))

    def _backward(self, key: str) -> Callable[[], Any]:
        found: dict[runtime.Settings, Any] = {}

        def stored() -> Any:
            settings = runtime.Settings.now()
            if settings not in found:
                with paused_collection(), activity.stage("runtime", "backward", self._options.progress):
                    found[settings] = self._read_backward(key, settings)
            return found[settings]

        return stored

    def _read_backward(self, key: str, settings: runtime.Settings) -> Any:
        content = self._cache.store.get(BACKWARD, key)
        recipe = None if content is None else json.loads(content)
        return None if recipe is None or tuple(recipe["settings"]) != settings else self._graph(recipe)

    def _graph(self, recipe: Any) -> Any:
        artifact = self._cache.get(recipe["artifact"])
        if artifact is None or _identities(artifact) != recipe["devices"]:
            return None
        places = {name: {text: tuple(numbers) for text, numbers in known.items()} for name, known in recipe["places"].items()}
        artifact = artifact.replace(places=places)
        # capture's guards have compared the inputs
        loaded = runtime.load(artifact, runtime_options(self._options), check_inputs=False)
        return with_recipe(recorded(loaded, self._options, recipe["visible"]), artifact, recipe["visible"])


def check_compiler(options: Options) -> None:
    """Raises MissingCompiler where there is none, before anything is captured or compiled."""
    try:
        runtime.find_compiler(options.cxx or None)
    except runtime.BuildError as error:
        raise MissingCompiler(error) from error


def check_named_compiler(options: Options) -> None:
    """The same for a compiler that was asked for; without any, graphs run by their operators."""
    if options.cxx:
        check_compiler(options)


def store_of(options: Options, prepare: Callable[[], object], rest_of: RestOf) -> EntryStore | None:
    """None where nothing is kept: without a disk cache, with functions of the program among the options that have no identity, and where
    products are looked at.

    prepare: imports what compiling takes. rest_of: makes of a recipe, with options and a report, what only some calls need.
    """
    looked_at = options.dump_dir or options.debug or options.diagram or options.kernel_ranges
    if not options.cache or looked_at or any(getattr(options, name) is not None for name in OF_PROGRAM):
        return None
    if identity(options) is None:
        return None
    return EntryStore(options, prepare, rest_of)
