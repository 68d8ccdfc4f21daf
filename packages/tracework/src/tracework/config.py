"""Process defaults and every environment variable: this is the only file that reads the environment.

`ENVIRONMENT` is the whole list. Values are read when `current()` is called, which `compile()` does once per call and never later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import InvalidArgument
from .torch_names import HONOURED, REFUSED, torch_names
from .torch_settings import row_of_variable

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
    """One environment variable: what it sets and how it is read."""

    field: str
    parse: Callable[[str], Any]
    doc: str
    torchs: tuple[str, ...] = ()
    """torch.compile's names of it, of which the first that is set counts where ours is not."""


ENVIRONMENT: Mapping[str, Variable] = {
    "TRACEWORK_DISABLE": Variable(
        "disable", _flag, "1: compile() gives back what it was given", ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
    ),
    "TRACEWORK_SUPPRESS_ERRORS": Variable(
        "suppress_errors",
        _flag,
        "1: a graph whose compilation fails runs uncompiled, with a warning",
        ("TORCHDYNAMO_SUPPRESS_ERRORS",),
    ),
    "TRACEWORK_LOGS": Variable("logs", str, "comma-separated artifact names, see logs.py"),
    "TRACEWORK_CACHE_DIR": Variable("cache_dir", str, "folder of the disk cache"),
    "TRACEWORK_CACHE_KEY": Variable(
        "cache_key", str, "file of the key that seals the disk cache's entries; left out: ~/.config/tracework/cache.key"
    ),
    "TRACEWORK_CACHE_LAYERS": Variable(
        "cache_layers",
        str,
        "cache folders that are only read, such as an image's, between colons; asked for what the own one does not have",
    ),
    "TRACEWORK_CACHE_SHARED": Variable(
        "cache_shared",
        str,
        "folder, or address such as s3://bucket/cache or redis://host:6379/0, that machines share; it takes TRACEWORK_CACHE_KEY",
    ),
    "TRACEWORK_CACHE": Variable("cache", _flag, "0: neither read nor write the disk cache"),
    "TRACEWORK_CXX": Variable("cxx", str, "the C++ compiler to use for CPU kernels"),
    "TRACEWORK_DYNAMIC_SOURCES": Variable(
        "dynamic_sources",
        str,
        'comma-separated names whose sizes and numbers are symbols at once; "x:0" means one dim',
        ("TORCH_COMPILE_DYNAMIC_SOURCES",),
    ),
    "TRACEWORK_DYNAMIC_VALUES": Variable(
        "dynamic_values",
        str,
        "comma-separated sizes and numbers that are symbols at once",
        ("TORCH_COMPILE_DYNAMIC_VALUES",),
    ),
    "TRACEWORK_STATIC_SOURCES": Variable(
        "static_sources", str, "comma-separated names whose sizes are never symbols", ("TORCH_COMPILE_STATIC_SOURCES",)
    ),
    "TRACEWORK_UNBACKED_SOURCES": Variable(
        "unbacked_sources",
        str,
        "comma-separated names on whose sizes nothing may be decided",
        ("TORCH_COMPILE_UNBACKED_SOURCES",),
    ),
    "TRACEWORK_DYNAMISM": Variable(
        "dynamism", str, "file that keeps, from run to run, which sizes and numbers were seen to change"
    ),
    "TRACEWORK_JOB_ID": Variable(
        "job_id",
        str,
        "name under which the cache keeps, from run to run, which sizes and numbers were seen to change; programs may share one",
        ("TORCH_COMPILE_JOB_ID", "TORCH_COMPILE_STICKY_PGO_KEY"),
    ),
    "TRACEWORK_DUMP": Variable("dump_dir", str, "folder that receives each stage's text"),
    "TRACEWORK_TRACE": Variable(
        "trace_dir", str, "folder that receives a file of events, a line of JSON each, from every process", ("TORCH_TRACE",)
    ),
    "TRACEWORK_DEBUG_DIR": Variable(
        "debug_dir",
        str,
        "folder above those that options={'debug': True} makes; left out: the working folder",
        ("TORCH_COMPILE_DEBUG_DIR",),
    ),
}


@dataclass(frozen=True)
class Config:
    """Process-wide defaults, as the environment gives them."""

    disable: bool = False
    suppress_errors: bool = False
    logs: str = ""
    cache_dir: str = ""
    cache_key: str = ""
    cache_layers: str = ""
    cache_shared: str = ""
    cache: bool = True
    cxx: str = ""
    dynamic_sources: str = ""
    dynamic_values: str = ""
    static_sources: str = ""
    unbacked_sources: str = ""
    dynamism: str = ""
    job_id: str = ""
    dump_dir: str = ""
    trace_dir: str = ""
    debug_dir: str = ""
    torch_logs: str = ""
    torchs: Mapping[str, Any] = field(default_factory=dict)
    """What torch's variables set of torch's options and fields, as "option:max_autotune"; ENVIRONMENT's are not among them."""
    refused: tuple[str, ...] = ()
    """Why variables of torch's that are set cannot be honoured."""


def current(environ: Mapping[str, str] | None = None) -> Config:
    """Reads `ENVIRONMENT`, and torch's variables, now. Raises InvalidArgument for a value that does not parse, naming the variable."""
    source = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for own, variable in ENVIRONMENT.items():
        name = next((name for name in (own, *variable.torchs) if name in source), None)
        if name is not None:
            values[variable.field] = _parsed(variable.parse, name, source[name], variable.doc)
    if not values.get("cache_dir"):
        values["cache_dir"] = _default_cache_dir()
    values["torch_logs"] = source.get("TORCH_LOGS", "")
    return Config(**values, **_of_torchs_variables(source))


def _parsed(parse: Callable[[str], Any], name: str, text: str, doc: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidArgument(f"environment variable {name}={text!r}: {error} ({doc})") from error


_READ_ELSEWHERE = {"TORCH_LOGS", *(name for variable in ENVIRONMENT.values() for name in variable.torchs)}
_SETS = {"TORCHINDUCTOR_LITE_MODE": "option:fallback_by_default", "TORCHINDUCTOR_COMPILE_THREADS": "option:compile_threads"}
"""Variables whose source in torch does not say what they set."""
_NO_FLAGS: Mapping[str, Callable[[str], Any]] = {"option:compile_threads": int, "option:numerics": str}


def _of_torchs_variables(source: Mapping[str, str]) -> dict[str, Any]:
    """The fields `torchs` and `refused`."""
    found: dict[str, Any] = {}
    refused = []
    for name in source:
        if not name.startswith("TORCH") or name in _READ_ELSEWHERE or name not in torch_names("variable"):
            continue
        row = row_of_variable(name)
        setting = _SETS.get(name) or torch_names("variable")[name].what
        if row is not None and row.answer == HONOURED:
            found[setting] = _parsed(_NO_FLAGS.get(setting, _flag), name, source[name], f"as torch's {setting.partition(':')[2]}")
        elif row is not None and row.answer == REFUSED and source[name].strip().lower() not in _FALSE:
            refused.append(f"environment variable {name}={source[name]!r} is not honoured here: {row.reason}.")
    return {"torchs": found, "refused": tuple(refused)}
