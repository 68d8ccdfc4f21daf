"""A compiler for unmodified PyTorch programs, compatible with torch.compile at its entry point.

The names are loaded at the first use of one, so that `tracework run`, and each Python below it, starts without torch.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .collector import without_collection

if TYPE_CHECKING:
    from tracework_capture import UncompiledWarning

    from . import compiler
    from .api import compile, compile_in_place
    from .backends import get_default_backend, list_backends, register_backend, set_default_backend
    from .cases import Case, CaseError
    from .compiler import disable, graph_break, is_compiling, reset, skip_frame
    from .drop_in import replace_torch_compile
    from .errors import (
        CannotCarry,
        CompileError,
        InvalidArgument,
        MissingCompiler,
        MixedDevices,
        NotCallable,
        TraceworkError,
        UnknownName,
    )
    from .examine import case, diff
    from .explanation import explain
    from .loading import load
    from .options import list_mode_options, list_options
    from .programs import aot_compile, save
    from .reporting import report

__all__ = [
    "CannotCarry",
    "Case",
    "CaseError",
    "CompileError",
    "InvalidArgument",
    "MissingCompiler",
    "MixedDevices",
    "NotCallable",
    "TraceworkError",
    "UncompiledWarning",
    "UnknownName",
    "__version__",
    "aot_compile",
    "case",
    "compile",
    "compile_in_place",
    "compiler",
    "diff",
    "disable",
    "explain",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load",
    "register_backend",
    "replace_torch_compile",
    "report",
    "reset",
    "save",
    "set_default_backend",
    "skip_frame",
]

HOMES: Mapping[str, str] = {
    "UncompiledWarning": "tracework_capture",
    "explain": ".explanation",
    "report": ".reporting",
    "replace_torch_compile": ".drop_in",
    **dict.fromkeys(("compile", "compile_in_place"), ".api"),
    **dict.fromkeys(("list_mode_options", "list_options"), ".options"),
    **dict.fromkeys(("get_default_backend", "list_backends", "register_backend", "set_default_backend"), ".backends"),
    **dict.fromkeys(("disable", "graph_break", "is_compiling", "reset", "skip_frame"), ".compiler"),
    **dict.fromkeys(("CompileError", "InvalidArgument", "MissingCompiler", "MixedDevices", "NotCallable"), ".errors"),
    **dict.fromkeys(("CannotCarry", "TraceworkError", "UnknownName"), ".errors"),
}
"""Name -> the module that it comes from."""
ALONE: Mapping[str, str] = {
    "load": ".loading",
    **dict.fromkeys(("aot_compile", "save"), ".programs"),
    **dict.fromkeys(("Case", "CaseError"), ".cases"),
    **dict.fromkeys(("case", "diff"), ".examine"),
}
"""The same for names that are loaded one by one: a program that only loads what was compiled has no use for the compiler, and cases bring every
package."""


def __getattr__(name: str) -> Any:
    own = globals()
    if name in ALONE:
        own[name] = getattr(importlib.import_module(ALONE[name], __name__), name)
        return own[name]
    if name not in HOMES and name != "compiler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with without_collection():
        own["compiler"] = importlib.import_module(".compiler", __name__)
        own.update({n: getattr(importlib.import_module(home, __name__), n) for n, home in HOMES.items()})
    return own[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
