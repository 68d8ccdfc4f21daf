"""Process defaults and every environment variable: this is the only file that reads the environment.

`ENVIRONMENT` is the whole list. Values are read when `current()` is called, which `compile()` does once per call and never later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InvalidArgument

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("expected 0 or 1")


def _default_cache_dir() -> str:
    try:
        return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracework")
    except RuntimeError:  # a user without a home: the runtime says what that means
        return ""


@dataclass(frozen=True)
class Variable:
    """One environment variable: what it sets, how it is read, and whether it can change generated code."""

    field: str
    parse: Callable[[str], Any]
    in_cache_key: bool
    doc: str
    torchs: str = ""
    """torch.compile's name of it, which counts where ours is not set."""


ENVIRONMENT: Mapping[str, Variable] = {
    "TRACEWORK_DISABLE": Variable("disable", _flag, False, "1: compile() gives back what it was given", "TORCH_COMPILE_DISABLE"),
    "TRACEWORK_SUPPRESS_ERRORS": Variable(
        "suppress_errors", _flag, False, "1: a graph whose compilation fails runs uncompiled, with a warning"
    ),
    "TRACEWORK_LOGS": Variable("logs", str, False, "comma-separated artifact names, see logs.py"),
    "TRACEWORK_CACHE_DIR": Variable("cache_dir", str, False, "folder of the disk cache"),
    "TRACEWORK_CACHE_KEY": Variable(
        "cache_key", str, False, "file of the key that seals the disk cache's entries; left out: ~/.config/tracework/cache.key"
    ),
    "TRACEWORK_CACHE": Variable("cache", _flag, False, "0: neither read nor write the disk cache"),
    "TRACEWORK_CXX": Variable("cxx", str, True, "the C++ compiler to use for CPU kernels"),
    "TRACEWORK_DYNAMIC_SOURCES": Variable(
        "dynamic_sources",
        str,
        False,
        'comma-separated names whose sizes and numbers are symbols at once; "x:0" means one dim',
        "TORCH_COMPILE_DYNAMIC_SOURCES",
    ),
    "TRACEWORK_DYNAMIC_VALUES": Variable(
        "dynamic_values",
        str,
        False,
        "comma-separated sizes and numbers that are symbols at once",
        "TORCH_COMPILE_DYNAMIC_VALUES",
    ),
    "TRACEWORK_STATIC_SOURCES": Variable(
        "static_sources", str, False, "comma-separated names whose sizes are never symbols", "TORCH_COMPILE_STATIC_SOURCES"
    ),
    "TRACEWORK_UNBACKED_SOURCES": Variable(
        "unbacked_sources",
        str,
        False,
        "comma-separated names on whose sizes nothing may be decided",
        "TORCH_COMPILE_UNBACKED_SOURCES",
    ),
    "TRACEWORK_DYNAMISM": Variable(
        "dynamism", str, False, "file that keeps, from run to run, which sizes and numbers were seen to change"
    ),
    "TRACEWORK_JOB_ID": Variable(
        "job_id",
        str,
        False,
        "name under which the cache folder keeps, from run to run, which sizes and numbers were seen to change",
        "TORCH_COMPILE_JOB_ID",
    ),
    "TRACEWORK_DUMP": Variable("dump_dir", str, False, "folder that receives each stage's text"),
}


@dataclass(frozen=True)
class Config:
    """Process-wide defaults, as the environment gives them."""

    disable: bool = False
    suppress_errors: bool = False
    logs: str = ""
    cache_dir: str = ""
    cache_key: str = ""
    cache: bool = True
    cxx: str = ""
    dynamic_sources: str = ""
    dynamic_values: str = ""
    static_sources: str = ""
    unbacked_sources: str = ""
    dynamism: str = ""
    job_id: str = ""
    dump_dir: str = ""


def current(environ: Mapping[str, str] | None = None) -> Config:
    """Reads `ENVIRONMENT` now. Raises InvalidArgument for a value that does not parse, naming the variable."""
    source = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for own, variable in ENVIRONMENT.items():
        name = own if own in source else variable.torchs
        if name not in source:
            continue
        try:
            values[variable.field] = variable.parse(source[name])
        except ValueError as error:
            raise InvalidArgument(f"environment variable {name}={source[name]!r}: {error} ({variable.doc})") from error
    if not values.get("cache_dir"):
        values["cache_dir"] = _default_cache_dir()
    return Config(**values)
