"""Builds, loads, launches and caches compiled graphs."""

from tracework_runtime._C import addresses
from tracework_runtime._version import __version__
from tracework_runtime.agreement import all_hold
from tracework_runtime.artifact import FORMAT, Artifact, KernelSource, OutputRecipe, SymbolBinding, TensorCheck
from tracework_runtime.build.binaries import Binaries
from tracework_runtime.build.cpp import Compiler, find_compiler
from tracework_runtime.cache.carried import carry, put_carried
from tracework_runtime.cache.memory import Cache, open_cache
from tracework_runtime.cache.secret import secret
from tracework_runtime.cache.store import Store
from tracework_runtime.cudagraph import (
    CUDAGRAPH_REFUSALS,
    GraphedFn,
    Part,
    PartitionedFn,
    cudagraph,
    mark_step_begin,
    recorded_where_it_pays,
)
from tracework_runtime.device import DEVICES
from tracework_runtime.errors import (
    ArtifactError,
    BrokenPromise,
    BuildError,
    CacheCorrupt,
    CacheForeign,
    CacheUnsafe,
    CacheWarning,
    InputError,
    LaunchError,
    LoadError,
    NoCompiler,
    NotRecorded,
    ProgramFileError,
    RankLost,
    RanksApart,
    ResultMismatch,
    RuntimeFailure,
)
from tracework_runtime.key import KEY_PARTS, KeyFacts, cache_key, explain_key, package_digest
from tracework_runtime.load import CompiledFn, load, warm_up, watched
from tracework_runtime.observe import counters, reset_counters
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions, Settings
from tracework_runtime.packed import packed_bytes
from tracework_runtime.program import Program, load_program
from tracework_runtime.promises import looked_at
from tracework_runtime.watch import Ranges, StepTimes

__all__ = [
    "CUDAGRAPH_REFUSALS",
    "DEFAULT_OPTIONS",
    "DEVICES",
    "FORMAT",
    "GraphedFn",
    "KEY_PARTS",
    "Artifact",
    "ArtifactError",
    "Binaries",
    "BrokenPromise",
    "BuildError",
    "Cache",
    "CacheCorrupt",
    "CacheForeign",
    "CacheUnsafe",
    "CacheWarning",
    "CompiledFn",
    "Compiler",
    "InputError",
    "KernelSource",
    "KeyFacts",
    "LaunchError",
    "LoadError",
    "NoCompiler",
    "NotRecorded",
    "OutputRecipe",
    "Part",
    "PartitionedFn",
    "Program",
    "ProgramFileError",
    "RankLost",
    "Ranges",
    "RanksApart",
    "ResultMismatch",
    "RuntimeFailure",
    "RuntimeOptions",
    "Settings",
    "StepTimes",
    "Store",
    "SymbolBinding",
    "TensorCheck",
    "__version__",
    "addresses",
    "all_hold",
    "cache_key",
    "carry",
    "counters",
    "cudagraph",
    "explain_key",
    "find_compiler",
    "load",
    "load_program",
    "looked_at",
    "mark_step_begin",
    "open_cache",
    "package_digest",
    "packed_bytes",
    "put_carried",
    "recorded_where_it_pays",
    "reset_counters",
    "secret",
    "warm_up",
    "watched",
]
