"""torch.Generator: tensors drawn from a generator of the program when the compiled code runs, before its graph, in the program's order.

Each is an input of the graph, as the numbers of Python's generators are (values/arrays/random_numbers.py). A generator that the program makes is
made then, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tracework_primops import FakeTensor

from ...errors import NotPlain
from ...graph.changed_inputs import Draw, drawn_into
from ...guards.generators import OwnGenerator, Place, is_default
from ...signals import let_through
from ...sources import Const, Source
from ..objects.instance import ObjectValue
from ..protocol.binding import BoundBuiltin
from ..protocol.calls import call, method
from ..protocol.constant import plain
from ..protocol.kinds import AbstractTensor
from ..protocol.value import NEW, Emitter, Frame, Value

DRAWS = frozenset((torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal))
SEED = torch.Generator.manual_seed


def is_drawn_from(frame: Frame, generator: Any) -> bool:
    """Whether tensors may be drawn from the generator before the graph runs; guards what that depends on."""
    if frame.modes.transforms or frame.modes.function_modes or frame.modes.inference or frame.recording.selecting:
        return False
    if isinstance(generator, NewGenerator):
        return True
    known = isinstance(generator, ObjectValue) and generator.cls is torch.Generator and generator.source is not None
    if not known or is_default(generator.obj):
        return False
    frame.guard("PREDICATE", generator.source, OwnGenerator(generator.obj.device))
    return True


def drawn(frame: Frame, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A tensor of random numbers that are drawn from a generator of the program; None for other calls, and those of numbers that are not
    known."""
    if kwargs.get("generator") is None or fn not in DRAWS:
        return None
    found = sample(frame, fn, args, kwargs)
    if found is None or found[0].requires_grad or found[0].layout is not torch.strided:
        return None
    real, draw = found
    draw = replace(draw, named=(*dict(draw.named, dtype=real.dtype, device=real.device).items(),))
    made = tensor_of(frame, kwargs["generator"], real, draw)
    return frame.graph.call_method(frame, "clone", (made,))  # which the program may write to


def sample(
    frame: Frame, fn: Callable[..., torch.Tensor], args: list[Value], kwargs: dict[str, Value], *before: Any
) -> tuple[torch.Tensor, Draw] | None:
    """A tensor like that of a call with a generator of the program, and what draws it; None where its arguments are not known, or it is left
    to torch. before: what the function is given first."""
    try:
        given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items() if k != "generator"}
    except NotPlain:
        return None
    generator = kwargs["generator"]
    if not is_drawn_from(frame, generator):
        return None
    draw = Draw("tensor", fn, (*before, *given), (*named.items(),))
    try:
        return draw(torch.Generator(device=generator.obj.device)), draw
    except Exception as error:  # the program meets it where it calls the function
        let_through(error)
        return None


def tensor_of(frame: Frame, generator: Value, real: torch.Tensor, draw: Draw) -> Value:
    """The input for a tensor like `real` that is drawn for each run."""
    node = frame.graph.drawn_tensor(place_of(generator), real, at_place(generator, draw))
    frame.mutations.changes += 1
    return frame.graph.wrap_result(frame, node, node.meta["example_value"])


DRAW_METHODS = "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_".split()


@method(torch.Tensor, *DRAW_METHODS)
def draw_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor:
    """normal_(), uniform_(), ...: with a generator of the program the numbers are drawn into memory of the same form, and copied."""
    made = drawn_memory(frame, self, name, args, kwargs) if "generator" in kwargs else None
    if made is None:
        frame.graph.call_method(frame, name, (self, *args), kwargs)
    else:
        frame.graph.call_method(frame, "copy_", (self, made))
    return self


def drawn_memory(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What the method would write; None where it is not known, or is left to torch."""
    form = form_of(self.example)
    if form is None:
        return None

    found = sample(frame, drawn_into, args, kwargs, *form, name)
    return None if found is None else tensor_of(frame, kwargs["generator"], *found)


def form_of(example: FakeTensor) -> tuple[Any, ...] | None:
    """Sizes, strides, dtype and device of memory of the form of this tensor, each item in a place of its own and none between them; None for other forms."""
    sizes, strides = tuple(example.shape), tuple(example.stride())
    if any(type(n) is not int for n in (*sizes, *strides)) or example.layout is not torch.strided:
        return None
    last = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)) + 1
    if 0 in sizes or last != example.numel() or any(step == 0 and n > 1 for n, step in zip(sizes, strides, strict=True)):
        return None
    return sizes, strides, example.dtype, example.device


class NewGenerator(Value):
    """torch.Generator(device), made in the traced program."""

    description = "a torch.Generator made here"
    cls = torch.Generator
    is_unique = True
    mutability = NEW

    def __init__(self, frame: Frame, device: torch.device) -> None:
        self.obj = torch.Generator(device=device)
        self.place = Place(device)
        super().__init__(None)
        self.drawn_at = Const(self.place, "generator")
        frame.graph.drawn_input(self.drawn_at, float, Draw("done", Place.make))
        frame.mutations.changes += 1

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "device":
            return frame.wrap(self.obj.device, Const(self.obj.device))
        return BoundBuiltin(self, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "manual_seed":
            return manual_seed(frame, [self, *args], kwargs)
        return frame.break_graph("random_state", f"torch.Generator.{name}")

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(self.place.take)}()"


@call(torch.Generator)
def make_generator(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.Generator(device="cpu")"""
    try:
        given = [plain(a) for a in args] + [plain(kwargs[name]) for name in kwargs if name == "device"]
        device = torch.device(*(given or ["cpu"]))
    except (NotPlain, RuntimeError, TypeError):
        return frame.break_graph("random_state", "torch.Generator with these arguments")
    if set(kwargs) - {"device"} or frame.modes.transforms or frame.modes.function_modes or frame.recording.selecting:
        return frame.break_graph("random_state", "torch.Generator in a function that is transformed, under a mode, or in an arm")
    return NewGenerator(frame, device)


@call(SEED)
def manual_seed(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """generator.manual_seed(number), in the order of draws, as one of them."""
    generator, seed = args[0], args[1] if len(args) == 2 and not kwargs else None
    if seed is None or not seed.is_constant() or type(seed.constant()) is not int or not is_drawn_from(frame, generator):
        return frame.break_graph("random_state", "the seed of a torch.Generator")
    number = seed.constant()
    try:
        SEED(torch.Generator(), number)
    except RuntimeError as error:  # the program's own
        return frame.break_graph("random_state", f"a seed, which raises {type(error).__name__}")
    frame.graph.drawn_input(place_of(generator), float, at_place(generator, Draw("done", SEED, (number,))))
    frame.mutations.changes += 1
    return generator


def place_of(generator: Value) -> Source:
    """Where the generator, or the place that it is in, is found for each run."""
    return generator.drawn_at if isinstance(generator, NewGenerator) else generator.source


def at_place(generator: Value, draw: Draw) -> Draw:
    """The draw from what is found there."""
    return replace(draw, is_of_place=isinstance(generator, NewGenerator))
