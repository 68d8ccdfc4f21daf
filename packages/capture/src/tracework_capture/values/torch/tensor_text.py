"""Texts of tensors, written when the graph has run, of what these hold where the program asks for them.

What needs the text while tracing captures the frame again, and the graph then breaks where the program asked (values/number/deferred.py).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..number.deferred import DeferredValue, copy_for_deferred, place_here
from ..protocol.kinds import AbstractTensor, is_plain_tensor
from ..protocol.value import Emitter, Frame


def may_be_written_after(frame: Frame) -> bool:
    """Whether a text that is asked for here can be written when the graph has run: no mode or subclass sees that, and nothing needed it while
    tracing."""
    switched = (
        frame.modes.transforms
        or frame.recording.selecting
        or frame.modes.function_modes
        or frame.modes.subclass_functions_off
        or frame.modes.states_written
    )
    return not switched and place_here(frame) not in frame.plan.learnt.read_while_tracing


def deferred_text(
    frame: Frame, load: Callable[[Emitter], str], fn: Callable[..., str], rest: tuple[object, ...]
) -> DeferredValue:
    """fn(object, *rest) of what `load` writes the expression of, for str, repr or format, which must not raise."""
    more = "".join(f", {part!r}" for part in rest)
    write = frame.services.call_disabled(fn)  # torch's code that makes a text is no part of the program
    return DeferredValue(
        str, lambda emit: f"{emit.const(write, fn.__name__)}({load(emit)}{more})", frozenset((place_here(frame),))
    )


def text_of_tensor(frame: Frame, value: AbstractTensor, fn: Callable[..., str], *rest: object) -> DeferredValue | None:
    """fn(value, *rest); None where the text is not known, or may show something else then: the name of the function whose result a tensor is,
    what a mode or a subclass makes of it."""
    if not may_be_written_after(frame) or not shows_its_data(value):
        return None
    return deferred_text(frame, copy_for_deferred(frame, value), fn, rest)


def shows_its_data(value: AbstractTensor) -> bool:
    """Whether it is a tensor whose text shows what is in it, and nothing of a gradient."""
    if not is_plain_tensor(value) or value.python_type() is not torch.Tensor or value.example.requires_grad:
        return False
    return value.example.layout is torch.strided and value.example.device.type != "meta"
