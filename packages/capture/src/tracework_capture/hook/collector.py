"""Cyclic garbage collection rests while a graph is compiled.

Compiling allocates hundreds of thousands of objects that live until it ends. Each full collection in between walks the whole heap of the
program and finds nothing: with the heap of a transformers program this is half of the time that compiling takes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collection() -> Iterator[None]:
    """No automatic collection inside; reference counting goes on. What the program had set comes back after."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
