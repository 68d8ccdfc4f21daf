"""Calls whose inputs begin elsewhere in their memory run uncompiled, where the graph depends on that.

`x.as_strided(sizes, strides, 1)` shows what is at place 1 of the memory, wherever x begins, and a graph is compiled for one such distance.
`view_as_complex` takes pairs of elements that begin at even places, and raises for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..contracts import Report
from ..signature import Signature

Run = Callable[..., Any]


def guard_places(call: Run, uncompiled: Run, signature: Signature, report: Report) -> Run:
    """`call`, or `uncompiled` where such an input has another storage offset; `call` itself for graphs without one."""
    places = signature.places
    if not places:
        return call

    def run(*args: Any) -> Any:
        for slot, offset, period in places:
            distance = args[slot].storage_offset() - offset
            if distance and (not period or distance % period):
                break
        else:
            return call(*args)
        report(
            f"input {signature.inputs[slot].name} begins elsewhere in its memory, which the graph depends on (as_strided with an offset, "
            "view_as_complex, a write through overlapping windows)",
            "",
        )
        return uncompiled(*args)

    return run
