"""Builds, loads, launches and caches compiled graphs."""

from tracework_runtime._version import __version__
from tracework_runtime.artifact import FORMAT, Artifact, KernelSource, OutputRecipe, SymbolBinding, TensorCheck
from tracework_runtime.cache.store import Store
from tracework_runtime.errors import (
    ArtifactError,
    BuildError,
    CacheCorrupt,
    CacheUnsafe,
    LaunchError,
    LoadError,
    RuntimeFailure,
)
from tracework_runtime.load import CompiledFn, load
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = [
    "DEFAULT_OPTIONS",
    "FORMAT",
    "Artifact",
    "ArtifactError",
    "BuildError",
    "CacheCorrupt",
    "CacheUnsafe",
    "CompiledFn",
    "KernelSource",
    "LaunchError",
    "LoadError",
    "OutputRecipe",
    "RuntimeFailure",
    "RuntimeOptions",
    "Store",
    "SymbolBinding",
    "TensorCheck",
    "__version__",
    "load",
]
