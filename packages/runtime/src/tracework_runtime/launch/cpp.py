"""C++ kernels as Python callables, through ctypes.

A kernel takes pointers as plain integers (`tensor.data_ptr()`) and numbers; the types come from its signature.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracework_runtime.artifact import KernelSource
from tracework_runtime.errors import LoadError

__all__ = ["ARGUMENT_TYPES", "bind", "open_library"]

ARGUMENT_TYPES: dict[str, Any] = {
    "ptr": ctypes.c_void_p,
    "i1": ctypes.c_bool,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
    "fp64": ctypes.c_double,
    "void": None,
}
_OPEN: dict[Path, ctypes.CDLL] = {}


def open_library(path: Path) -> ctypes.CDLL:
    """The loaded shared object, once per process."""
    found = _OPEN.get(path)
    if found is None:
        try:
            found = _OPEN[path] = ctypes.CDLL(str(path))
        except OSError as error:
            raise LoadError(f"cannot load {path}: {error}", advice="remove the file; it will be built again") from error
    return found


def bind(kernel: KernelSource, library: ctypes.CDLL) -> Callable[..., Any]:
    """The kernel as a callable that takes addresses and numbers. Raises LoadError where the symbol is not there."""
    symbol = kernel.launch.get("entry", kernel.name)
    try:
        # By index, not attribute: each kernel gets its own function object, with its own types.
        function = library[symbol]
    except AttributeError as error:
        raise LoadError(f"kernel {kernel.name}: no symbol {symbol!r} in its library") from error
    function.argtypes = [_argument(kernel, text) for text in kernel.signature]
    function.restype = ARGUMENT_TYPES[kernel.launch.get("result", "void")]
    return function


def _argument(kernel: KernelSource, text: str) -> Any:
    if text.startswith("*"):
        return ctypes.c_void_p
    if text not in ARGUMENT_TYPES:
        raise LoadError(f"kernel {kernel.name}: argument type {text!r} is not one of {sorted(ARGUMENT_TYPES)}")
    return ARGUMENT_TYPES[text]
