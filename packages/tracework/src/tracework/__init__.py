"""A compiler for unmodified PyTorch programs, compatible with torch.compile at its entry point."""

from tracework_capture import UncompiledWarning

from . import compiler
from ._version import __version__
from .api import compile, compile_in_place
from .backends import get_default_backend, list_backends, register_backend, set_default_backend
from .compiler import disable, graph_break, is_compiling, reset, skip_frame
from .drop_in import replace_torch_compile
from .errors import CompileError, InvalidArgument, MissingCompiler, MixedDevices, NotCallable, TraceworkError, UnknownName
from .explain import explain
from .options import list_mode_options, list_options

__all__ = [
    "CompileError",
    "InvalidArgument",
    "MissingCompiler",
    "MixedDevices",
    "NotCallable",
    "TraceworkError",
    "UncompiledWarning",
    "UnknownName",
    "__version__",
    "compile",
    "compile_in_place",
    "compiler",
    "disable",
    "explain",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "list_backends",
    "list_mode_options",
    "list_options",
    "register_backend",
    "replace_torch_compile",
    "reset",
    "set_default_backend",
    "skip_frame",
]
