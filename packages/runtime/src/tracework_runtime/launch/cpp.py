"""C++ kernels as Python callables, through ctypes.

A kernel takes pointers as plain integers (`tensor.data_ptr()`) and numbers; the types come from its signature.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import itertools
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any

from tracework_runtime.artifact import KernelSource
from tracework_runtime.build.cpp import Product
from tracework_runtime.elf import is_whole
from tracework_runtime.errors import LoadError

__all__ = ["ARGUMENT_TYPES", "bind", "in_table", "open_library"]

log = logging.getLogger("tracework.runtime.cache")
ARGUMENT_TYPES: dict[str, Any] = {
    "ptr": ctypes.c_void_p,
    "i1": ctypes.c_bool,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
    "fp64": ctypes.c_double,
    "void": None,
}
_OPEN: weakref.WeakValueDictionary[str, ctypes.CDLL] = weakref.WeakValueDictionary()
_THREADS = ("libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so")
"""Libraries of OpenMP, whose threads live on when the kernels that began them are gone."""
_KEPT: set[str] = set()
_IN_MEMORY = itertools.count()


def open_library(product: Product) -> ctypes.CDLL:
    """The loaded shared object, once as long as a kernel of it lives: its file, or the bytes themselves where the file is gone, is another, or
    lies where nothing may be executed.

    Raises LoadError where the bytes cannot be loaded either, or are those of another translation unit.
    """
    found = _OPEN.get(product.symbol)
    if found is None:
        if not is_whole(product.content):
            raise _no_library(product)
        found = _opened(str(product.file), product.symbol) if product.file is not None else None
        found = _OPEN[product.symbol] = found or _from_memory(product)
        weakref.finalize(found, _ctypes.dlclose, found._handle).atexit = False
        _keep_threads()
    return found


def _keep_threads() -> None:
    for name in [name for name in _THREADS if name not in _KEPT]:
        with contextlib.suppress(OSError):
            _ctypes.dlopen(name, os.RTLD_NOLOAD | os.RTLD_NODELETE)
            _KEPT.add(name)


def _no_library(product: Product) -> LoadError:
    return LoadError(
        f"what the compiler made is no library that can be loaded here ({product.compiler})",
        advice="set another C++ compiler (option cxx, TRACEWORK_CXX)",
    )


def _opened(name: str, symbol: str) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(name)
        library[symbol]
    except (OSError, AttributeError) as error:
        log.info("%s cannot be used: %s", name, error)
        return None
    return library


def _from_memory(product: Product) -> ctypes.CDLL:
    library = None
    try:
        handle = os.memfd_create(product.symbol)
        with os.fdopen(handle, "wb") as file:
            file.write(product.content)
            file.flush()
            # The linker takes equal names for equal libraries, and a closed handle's number is soon another's: each has its own spelling.
            number = next(_IN_MEMORY)
            spelling = "".join("/." if number >> bit & 1 else "//" for bit in range(32))
            library = _opened(f"/proc/self/fd{spelling}/{handle}", product.symbol)
    except OSError as error:
        log.info("no file in memory: %s", error)
    if library is None:
        raise _no_library(product)
    return library


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


def in_table(*values: int) -> ctypes.Array[ctypes.c_int64]:
    """Addresses and numbers as a kernel reads them that takes a table."""
    return (ctypes.c_int64 * len(values))(*values)


def _argument(kernel: KernelSource, text: str) -> Any:
    if text.startswith("*"):
        return ctypes.c_void_p
    if text not in ARGUMENT_TYPES:
        raise LoadError(f"kernel {kernel.name}: argument type {text!r} is not one of {sorted(ARGUMENT_TYPES)}")
    return ARGUMENT_TYPES[text]
