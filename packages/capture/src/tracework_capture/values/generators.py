"""torch.Generator: tensors drawn from a generator of the program when the compiled code runs, before its graph, in the program's order.

Each is an input of the graph, as the numbers of Python's generators are (values/random_numbers.py).
"""

from __future__ import annotations

import torch

from ..signals import let_through
from .constant import NotPlain, plain
from .user_object import ObjectValue

DRAWS = frozenset((torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal))
SEED = torch.Generator.manual_seed


def is_default(generator):
    """Whether it is one that functions without a generator draw from, too, which the graph does in an order of its own."""
    return any(generator is each for each in (torch.default_generator, *torch.cuda.default_generators))


def is_drawn_from(frame, generator):
    """Whether tensors may be drawn from the generator before the graph runs; guards what that depends on."""
    root = frame.root
    known = isinstance(generator, ObjectValue) and generator.cls is torch.Generator and generator.source is not None
    if not known or root.transforms or root.function_modes or root.inference or root.selecting or is_default(generator.obj):
        return False
    device = generator.obj.device

    def is_alike(now):
        """it is a generator of its own on the same device"""
        return now.device == device and not is_default(now)

    frame.guard("PREDICATE", generator.source, is_alike)
    return True


def drawn(frame, fn, args, kwargs):
    """A tensor of random numbers that are drawn from a generator of the program; None for other calls, and those of numbers that are not
    known."""
    generator = kwargs.get("generator")
    if generator is None or fn not in DRAWS:
        return None
    try:
        given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items() if k != "generator"}
    except NotPlain:
        return None
    if not is_drawn_from(frame, generator):
        return None
    try:
        real = fn(*given, **named, generator=torch.Generator(device=generator.obj.device))
    except Exception as error:  # the program meets it where it calls the function
        let_through(error)
        return None
    if real.requires_grad or real.layout is not torch.strided:
        return None
    named |= {"dtype": real.dtype, "device": real.device}
    node = frame.graph.drawn_tensor(generator.source, real, lambda at: fn(*given, **named, generator=at))
    frame.mutations.changes += 1
    made = frame.graph.wrap_result(frame, node, node.meta["example_value"])
    return frame.graph.call_method(frame, "clone", (made,))  # which the program may write to


def manual_seed(frame, args, kwargs):
    """generator.manual_seed(number), in the order of draws, as one of them."""
    generator, seed = args[0], args[1] if len(args) == 2 and not kwargs else None
    if seed is None or not seed.is_constant() or type(seed.constant()) is not int or not is_drawn_from(frame, generator):
        return frame.break_graph("random_state", "the seed of a torch.Generator")
    number = seed.constant()
    try:
        SEED(torch.Generator(), number)
    except RuntimeError as error:  # the program's own
        return frame.break_graph("random_state", f"a seed, which raises {type(error).__name__}")
    frame.graph.drawn_input(generator.source, float, lambda at: SEED(at, number) and 0.0)
    frame.mutations.changes += 1
    return generator


ROWS = {SEED: manual_seed}
