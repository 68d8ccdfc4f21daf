"""What somebody notices of an object's death: the kind DIES_UNSEEN of guards, and the same question while tracing."""

from __future__ import annotations

import types
from typing import Any

from .. import _C
from ..exception_table import cleans_up
from ..own_packages import is_own_module


def acts(obj: Any, callback: Any) -> bool:
    """Whether the program sees that a finalizer of the object runs (callback None), or this callback of a weak reference to it."""
    if callback is not None:
        return not is_own_module(getattr(callback, "__module__", None))
    if type(obj) is types.GeneratorType:
        return obj.gi_frame is not None and cleans_up(obj.gi_code)
    return True


def dies_unseen(obj: Any, where: Any = None) -> bool:
    """Whether nobody would notice that the object dies, with what it alone holds (`where` None); that all dies that it holds (True); what
    it has in a slot or, a dict or a class, under a name."""
    return _C.dies_unseen(obj, where, acts)
