"""Cyclic garbage collection rests while the packages of this stack are imported.

What imports make lives as long as the process. Each full collection in between walks all that torch and the program have made: a third of
the time that the imports take. Capture pauses its compilations likewise; that cannot be asked here, since to import capture is what this is for.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """No automatic collection inside. What the program had set comes back after."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
