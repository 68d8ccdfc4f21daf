"""autograd.Function.apply: forward and backward are traced as other code is, and become the halves of one node."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, NoReturn

import torch
from torch import fx

from ...._torch.autograd import SingleLevelFunction
from ....graph.regions import AutogradCall, BatchedHalf, Halves, Outlined, Placed, WithoutGradient
from ....guards.classes import lookup_class
from ...objects.class_value import ClassValue
from ...objects.function import FunctionValue, bind_arguments
from ...plain.iterators import PartialBuiltin
from ...plain.sequence import NONE, TupleValue
from ...protocol.arguments import accepted
from ...protocol.binding import class_value
from ...protocol.calls import Handler, call, method_handler, methods
from ...protocol.constant import ConstantValue, force_plain
from ...protocol.kinds import AbstractTensor
from ...protocol.properties import function_value
from ...protocol.region import Region
from ...protocol.value import Frame, SymbolicRaise, Value, is_none
from ..hooks import gradient_of, stand_in_like
from ..tensor import TensorValue
from .transforms import Level

_ONCE = torch.autograd.function.once_differentiable(lambda ctx: None).__code__


class FunctionContext(Value):
    """The ctx of an autograd.Function, from its forward to its backward."""

    description = "ctx of an autograd.Function"

    def __init__(self, cls: type, needs_input_grad: list[bool]) -> None:
        super().__init__(None)
        self.cls = cls
        self.fields: dict[str, Value] = {"needs_input_grad": TupleValue([ConstantValue(n) for n in needs_input_grad])}
        self.saved: list[Any] = []
        self.saved_for_forward: list[Any] = []  # what its jvp finds instead
        self.unpacked = False  # whether all that is saved was read, and with that found to be as it was
        self.without_gradient: list[Any] = []
        self.dirty: list[Any] = []
        self.materialize = True

    def python_type(self) -> type:
        return torch.autograd.function.FunctionCtx

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if hasattr(torch.autograd.function.BackwardCFunction, name):
            frame.break_graph("autograd_function", f"assignment to ctx.{name}")
        self.fields[name] = value

    def delattr(self, frame: Frame, name: str) -> None:
        if hasattr(torch.autograd.function.BackwardCFunction, name):
            frame.break_graph("autograd_function", f"deletion of ctx.{name}")
        if name not in self.fields:
            self.missing(frame, name)
        del self.fields[name]

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in self.fields:
            return self.fields[name]
        if name == "saved_tensors":
            self.unpacked = True
            return TupleValue(list(self.saved))
        method = method_handler(torch.autograd.function.FunctionCtx, name)
        if method is not None:
            return PartialBuiltin(types.BuiltinMethodType, checked_method(self, name, method))
        if not hasattr(torch.autograd.function.BackwardCFunction, name):
            return self.missing(frame, name)
        return frame.break_graph("autograd_function", f"ctx.{name}")

    def missing(self, frame: Frame, name: str) -> NoReturn:
        """What an attribute that is not there raises; torch derives a class from each Function."""
        frame.raise_new(AttributeError, f"'{self.cls.__name__}Backward' object has no attribute '{name}'")


def checked_method(ctx: Value, name: str, method: Any) -> Handler:
    """A method of ctx; arguments that torch's own would refuse are left to it."""

    def call(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs or not accepted(getattr(torch.autograd.function.FunctionCtx, name), [ctx, *args], kwargs):
            return frame.break_graph("autograd_function", f"ctx.{name} with these arguments")
        found: Value = method(frame, ctx, args)
        return found

    return call


def noted(field: str, text: str, takes_none: bool = False) -> Handler:
    """A method of ctx that keeps the tensors that it is given in a field."""

    def method(frame: Frame, ctx: Any, args: list[Value]) -> Value:
        if not all(isinstance(a, TensorValue) or takes_none and is_none(a) for a in args):
            return frame.break_graph("autograd_function", f"{text} something that is no tensor")
        setattr(ctx, field, list(args))
        return NONE

    return method


def _materialize(frame: Frame, ctx: Any, args: list[Value]) -> Value:
    if args[0].python_type() is not bool:
        return frame.break_graph("autograd_function", "set_materialize_grads of something that is no bool")
    ctx.materialize = args[0].truth(frame)
    return NONE


methods(
    torch.autograd.function.FunctionCtx,
    {
        "save_for_backward": noted("saved", "save_for_backward of", takes_none=True),
        "save_for_forward": noted("saved_for_forward", "save_for_forward of", takes_none=True),
        "mark_non_differentiable": noted("without_gradient", "a mark on"),
        "mark_dirty": noted("dirty", "a mark on"),
        "set_materialize_grads": _materialize,
    },
)


def static_function(frame: Frame, cls: Any, name: str) -> tuple[Any, list[Value]]:
    """The Value of a static method of the class, and the values that it is called with first: the class of a class method."""
    found, _ = lookup_class(cls, name)
    if not isinstance(found, (staticmethod, classmethod)):
        return frame.break_graph("autograd_function", f"{cls.__name__}.{name} is no static method")
    return function_value(frame, found.__func__), [class_value(frame, cls)] if isinstance(found, classmethod) else []


APPLY = torch.autograd.Function.__dict__["apply"]


@call(getattr(APPLY, "__func__", APPLY))  # from torch 2.15 on C defines it
def apply(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls.apply(*args): what Function.apply does, with the class in front."""
    if not args or not isinstance(args[0], ClassValue) or not issubclass(args[0].cls, torch.autograd.Function):
        return frame.break_graph("autograd_function", "apply of no class of functions")
    cls, args = args[0].cls, args[1:]
    setup, owner = lookup_class(cls, "setup_context")
    has_setup = owner is not SingleLevelFunction
    if has_setup:
        args = with_defaults(frame, *static_function(frame, cls, "forward"), args, kwargs)
    elif kwargs:
        return frame.break_graph("autograd_function", f"{cls.__name__}.apply with keyword arguments")
    why = not_transformed(cls, frame.modes.transforms, has_setup)
    if why:
        return frame.break_graph("autograd_function", f"{cls.__name__} under a transform of torch.func{why}")
    return _Application(frame, cls, list(args), has_setup).run()


def not_transformed(cls: type, transforms: tuple[Level, ...], has_setup: bool) -> str:
    """Why a Function is none for these transforms of torch.func, as the end of a text; empty where it is."""
    kinds = {level.kind for level in transforms}
    generated, own = lookup_class(cls, "generate_vmap_rule")[0] is True, is_own(cls, "vmap")
    if transforms and not has_setup:
        return " without a setup_context"
    if not kinds.isdisjoint(BATCHING) and generated == own:
        return " that has no rule for it, or two"
    if not kinds.isdisjoint(FORWARD_MODE) and not is_own(cls, "jvp"):
        return " that asks for its jvp"
    return ""


BATCHING, FORWARD_MODE = ("vmap", "jacfwd"), ("jvp", "jacfwd")
"""Transforms that ask for a Function's rule for vmap, and for its jvp."""


def is_own(cls: type, name: str) -> bool:
    """Whether a class defines a method that autograd.Function has, too."""
    return lookup_class(cls, name)[0] is not lookup_class(torch.autograd.Function, name)[0]


def with_defaults(
    frame: Frame, forward: FunctionValue, leading: list[Value], args: list[Value], kwargs: dict[str, Value]
) -> list[Value]:
    """The arguments as apply binds them when there is a setup_context."""
    bound = bind_arguments(frame, forward, [*leading, *args], kwargs)
    code = forward.code
    positional = [bound[n] for n in code.co_varnames[len(leading) : code.co_argcount]]
    if code.co_flags & 4:
        more: Any = bound[code.co_varnames[code.co_argcount + code.co_kwonlyargcount]]
        return [*positional, *more.items]
    return positional


JVP = -1
"""In the place of a set of results: what was traced is the jvp."""
MOST_RESULTS = 3
"""Of a Function that gets None for a result without a gradient: its backward is traced for each choice of them."""


class VmapInfo(NamedTuple):
    """What torch tells a vmap rule."""

    batch_size: int
    randomness: str


@dataclass(frozen=True)
class TracedBackward:
    """The graph of a backward, and the nodes, which are erased, of the gradients that it was given, None where there was none."""

    made: Outlined
    tangents: list[fx.Node | None]


class _Application:
    """One call of apply."""

    def __init__(self, frame: Frame, cls: Any, args: list[Value], has_setup: bool) -> None:
        self.frame, self.cls, self.args, self.has_setup = frame, cls, args, has_setup
        self.builder = frame.graph
        self.transforms = frame.modes.transforms
        self.transformed = bool(self.transforms)  # stand-ins say nothing of what is asked for a gradient
        self.needs = [self.needs_gradient(a) for a in args]
        self.ctx = FunctionContext(cls, self.needs)
        self.outputs: list[Any] = []

    def needs_gradient(self, value: Any) -> Any:
        if not isinstance(value, TensorValue):
            return False
        dtype = value.example.dtype
        return self.transformed and (dtype.is_floating_point or dtype.is_complex) or value.example.requires_grad

    def run(self) -> Value:
        """The result, and the node that stands for the call."""
        region = Region(self.frame)
        found = self.in_forward()
        outputs = self.outputs = items_of(found)
        if not isinstance(found, (TupleValue, TensorValue)) and not found.is_constant():
            self.stop(f"forward returns a {found.describe()}")
        if any(all(d is not v for v in values) for d in self.ctx.dirty for values in (self.args, outputs)):
            self.stop("ctx.mark_dirty of something else than an argument that is a result")
        if self.ctx.dirty and self.transformed:
            self.stop("ctx.mark_dirty under a transform of torch.func")
        tensors = [o for o in outputs if isinstance(o, TensorValue)]
        if torch.is_grad_enabled() and any(self.needs) and tensors:
            made = self.differentiable(region, tensors)
        else:
            if self.ctx.dirty and any(self.needs):
                self.stop("ctx.mark_dirty where gradients are off: the result has no history, what was written to keeps its own")
            if self.vmap_level() is not None:
                self.stop("its own rule for vmap where no gradient is asked for")
            made = self.plain(region, tensors)
        results = iter(made)
        values = [next(results) if isinstance(o, TensorValue) else o for o in outputs]
        values = [o if any(o is d for d in self.ctx.dirty) else v for o, v in zip(outputs, values)]  # written in place
        return TupleValue(values) if isinstance(found, TupleValue) else values[0]

    def stop(self, detail: str) -> NoReturn:
        self.frame.break_graph("autograd_function", f"{self.cls.__name__}: {detail}")

    def in_forward(self) -> Value:
        """forward and setup_context, without gradients."""
        frame, cls = self.frame, self.cls
        with torch.no_grad():
            forward: Value
            forward, leading = static_function(frame, cls, "forward")
            if not self.has_setup:
                return forward.call(frame, [*leading, self.ctx, *self.args], {})
            found = forward.call(frame, [*leading, *self.args], {})
            setup, leading = static_function(frame, cls, "setup_context")
            setup.call(frame, [*leading, self.ctx, TupleValue(list(self.args)), found], {})
        return found

    # --- no gradient is asked of it -----------------------------------------------------------------------------
    def plain(self, region: Region, tensors: Sequence[AbstractTensor]) -> list[Any]:
        """The forward alone: in the graph as it is, but without gradients to what it read beside its arguments."""
        if not torch.is_grad_enabled() or not any(
            getattr(a.meta["example_value"], "requires_grad", False) for n in region.nodes() for a in n.all_input_nodes
        ):
            return list(tensors)
        made = region.outline([t.node for t in tensors], self.cls.__name__)
        found: Any = self.builder.call(self.frame, WithoutGradient(self.cls.__name__, made.module), made.inputs)
        given_back: list[Any] = found.items
        return given_back

    # --- all halves ---------------------------------------------------------------------------------------------
    def differentiable(self, region: Region, tensors: Sequence[AbstractTensor]) -> list[Any]:
        """The node with the forward and the backward, or the backwards."""
        name = self.cls.__name__
        has_backward = any(is_own(self.cls, way) for way in ("backward", "vjp"))
        traced = {mask: self.in_backward(tensors, mask) for mask in self.masks(tensors)} if has_backward else {}
        if not {level.kind for level in self.transforms}.isdisjoint(FORWARD_MODE):
            traced[JVP] = self.in_jvp()
        read = dict.fromkeys(n for backward in traced.values() for n in backward.made.inputs if n not in backward.tangents)
        inside = set(region.nodes())
        held = dict.fromkeys(s.node for s in (*self.ctx.saved, *self.ctx.saved_for_forward) if isinstance(s, TensorValue))
        kept = [n for n in read if n in inside and n not in held]
        checked = self.ctx.unpacked and not self.transformed  # where an argument may be given back to be saved
        saved = [n for n in held if n in read and n in inside or checked and n not in read]
        results = [t.node for t in tensors]
        forward = region.outline([*results, *saved, *kept], f"{name}Forward")
        tensor_arguments = [a for a in self.args if isinstance(a, TensorValue)]
        arguments = [a.node for a in tensor_arguments]
        others = dict.fromkeys([*forward.inputs, *(n for n in read if n not in inside)])
        call_args = [*arguments, *(n for n in others if n not in arguments)]
        after = [*call_args, *saved, *kept]
        backwards = {mask: backward.made.among([*backward.tangents, *after]) for mask, backward in traced.items()}
        halves = Halves(
            forward.among(call_args),
            len(results),
            len(saved),
            tuple(i for i, t in enumerate(tensors) if self.is_marked(t)),
            backwards,
            self.ctx.materialize,
            len(arguments),
            tuple(call_args.index(n) for n in read if n in call_args),
            self.is_once_differentiable(),
            tuple(i for i, a in enumerate(tensor_arguments) if any(a is d for d in self.ctx.dirty)),
            backwards.pop(JVP, None),
            self.in_vmap({*saved, *kept} - {*results}, call_args),
        )
        found: Any = self.builder.call(self.frame, AutogradCall(name, halves, self.transformed), call_args)
        given_back: list[Any] = found.items
        return given_back

    def is_marked(self, tensor: AbstractTensor) -> bool:
        return any(tensor is m for m in self.ctx.without_gradient)

    def masks(self, tensors: Sequence[AbstractTensor]) -> list[int]:
        """For which results there is a gradient, in each way in which the backward is called, as the bits of a number."""
        if self.ctx.materialize:
            return [(1 << len(tensors)) - 1]
        places = [i for i, t in enumerate(tensors) if not self.is_marked(t)]
        if len(places) > MOST_RESULTS:
            self.stop("set_materialize_grads(False) with many outputs")
        return [sum(1 << i for i in chosen) for count in range(1, len(places) + 1) for chosen in combinations(places, count)]

    def is_once_differentiable(self) -> bool:
        return getattr(self.backward_function(), "__code__", None) is _ONCE

    def backward_name(self) -> str:
        """A class defines backward, or vjp, which is the same."""
        return "vjp" if self.cls.vjp is not torch.autograd.Function.vjp else "backward"

    def backward_function(self) -> Any:
        return getattr(self.cls, self.backward_name())

    def traced(self, method: str, given: Sequence[Value], name: str) -> tuple[Value, Region]:
        """What a method gives that eager calls later, if at all: where it raises is then, too, and what it traced is no part of the graph."""
        frame = self.frame
        function, leading = static_function(frame, self.cls, method)
        if name == "backward" and self.is_once_differentiable():
            function = frame.wrap(self.backward_function().__wrapped__, function.source)
        region = Region(frame, function, *self.ctx.fields.values())
        try:
            with torch.set_grad_enabled(method == "vmap"):
                found = function.call(frame, [*leading, *given], {})
        except SymbolicRaise as error:
            self.stop(f"its {name} raises: {error}")
        if changed := region.what_changed():
            self.stop(f"its {name} {changed}")
        return found, region

    def in_backward(self, tensors: Sequence[AbstractTensor], mask: int) -> TracedBackward:
        """The backward where these results have a gradient."""
        tangents = [gradient_of(self.frame, t) if mask >> place & 1 else None for place, t in enumerate(tensors)]
        found, region = self.traced(self.backward_name(), [self.ctx, *self.gradients_for(tangents)], "backward")
        return self.outlined(region, self.per_argument(found), [None if t is None else t.node for t in tangents])

    def in_jvp(self) -> TracedBackward:
        """The jvp, for all tensors among the arguments: torch gives it zeros where one has no tangent."""
        ctx = self.ctx
        if not all(self.needs_gradient(a) for a in self.args if isinstance(a, TensorValue)):
            self.stop("a jvp with arguments that have no tangents")
        tangents = [gradient_of(self.frame, a) if isinstance(a, TensorValue) else None for a in self.args]
        kept, ctx.saved = ctx.saved, ctx.saved_for_forward
        found, region = self.traced("jvp", [ctx, *[NONE if t is None else t for t in tangents]], "jvp")
        ctx.saved = kept
        items = self.tensor_for_each(found, "jvp")
        return self.outlined(region, [i.node for i in items], [t.node for t in tangents if t is not None])

    def outlined(self, region: Region, gradients: Sequence[fx.Node | None], tangents: Sequence[fx.Node | None]) -> TracedBackward:
        made = region.outline(gradients, f"{self.cls.__name__}Backward", [n for n in tangents if n is not None])
        return TracedBackward(made, [*tangents])

    def tensor_for_each(self, found: Value, name: str) -> list[AbstractTensor]:
        """What a method gave for the results, which are all tensors."""
        items = items_of(found)
        if len(items) != len(self.outputs) or not all(isinstance(i, TensorValue) for i in (*items, *self.outputs)):
            self.stop(f"its {name} gives something else than a tensor for each result")
        return items

    # --- under vmap, by a rule of its own -----------------------------------------------------------------------
    def vmap_level(self) -> int | None:
        """The place of the innermost vmap among the transforms around, if the class has a rule for it."""
        places = [place for place, level in enumerate(self.transforms) if level.kind == "vmap"]
        return places[-1] if places and is_own(self.cls, "vmap") else None

    def in_vmap(self, others: set[fx.Node], call_args: list[fx.Node]) -> Any:
        """What the class's vmap rule makes of the arguments, traced under the transforms around that vmap: a BatchedHalf, or None. `others`: what
        the backward reads of the forward beside its results."""
        place = self.vmap_level()
        if place is None:
            return None
        frame, level = self.frame, self.transforms[place]
        if level.batch is None or others:
            self.stop("a vmap in chunks, or a backward that reads more than arguments and results, and a vmap rule of its own")
        in_front = [isinstance(a, TensorValue) and self.is_batched(a.node, level) for a in self.args]
        given = [self.argument_in_vmap(*pair, level) for pair in zip(self.args, in_front)]
        in_dims = TupleValue([ConstantValue(0) if batched else NONE for batched in in_front])
        info = class_value(frame, VmapInfo).call(frame, [level.batch.size, ConstantValue(level.batch.randomness)], {})
        frame.modes.transforms = self.transforms[:place]
        try:
            found, region = self.traced("vmap", [info, in_dims, *given], "vmap rule")
        finally:
            frame.modes.transforms = self.transforms
        return self.batched_half(region, found, given, in_front, call_args)

    def argument_in_vmap(self, value: Value, is_batched: bool, level: Level) -> Value:
        """A stand-in for an argument as the vmap rule is given it, with the batch in front. What may be asked for a gradient is."""
        if not isinstance(value, TensorValue):
            return value
        example, frame = value.example, self.frame
        sizes = [level.batch.length] if level.batch is not None and is_batched else []
        with torch.no_grad():
            example = frame.graph.run_on_fakes(
                frame, torch.Tensor.new_empty, (example, [*sizes, *example.shape]), {}, "call_function"
            )
        if self.needs_gradient(value):
            example = frame.graph.run_on_fakes(frame, torch.clone, (example.requires_grad_(),), {}, "call_function")
        made = stand_in_like(frame, example)
        made.node.meta["stands_for"] = value.node
        return made

    def is_batched(self, node: fx.Node, level: Level) -> bool:
        """Whether a value depends on what this vmap maps over."""
        seen, waiting = set(), [node]
        while waiting:
            found = waiting.pop()
            if found in level.stand_ins:
                return True
            if found not in seen:
                seen.add(found)
                waiting += [*found.all_input_nodes, *([found.meta["stands_for"]] if "stands_for" in found.meta else [])]
        return False

    def batched_half(
        self, region: Region, found: Value, given: list[Value], in_front: list[bool], call_args: list[fx.Node]
    ) -> Any:
        """Of what the rule gave: (results, where they have the batch)."""
        if not isinstance(found, TupleValue) or len(found.items) != 2:
            self.stop("its vmap rule gives no pair")
        items, dims = self.tensor_for_each(found.items[0], "vmap rule"), items_of(found.items[1])
        dims = dims * len(items) if len(dims) == 1 else dims
        if len(dims) != len(items):
            self.stop("its vmap rule gives something else than a tensor for each result")
        pairs: list[tuple[Any, Any]] = [(g, a) for g, a in zip(given, self.args) if isinstance(a, TensorValue)]
        stand_ins = {g.node: a.node for g, a in pairs}
        made = region.outline([i.node for i in items], f"{self.cls.__name__}Vmap", list(stand_ins))
        asked = [stand_ins.get(n, n) for n in made.inputs]
        if not set(call_args).issuperset(asked):
            self.stop("its vmap rule reads tensors that are no arguments")
        batched = dict(zip((a.node for _, a in pairs), (b for b, a in zip(in_front, self.args) if isinstance(a, TensorValue))))
        return BatchedHalf(
            Placed(made.module, tuple(map(call_args.index, asked))),
            tuple(batched.get(n, False) for n in call_args),
            tuple(None if is_none(d) else force_plain(self.frame, d) for d in dims),
        )

    def gradients_for(self, tangents: list[AbstractTensor | None]) -> list[Value]:
        """What backward is handed: None for outputs that are no tensors."""
        waiting = iter([NONE if t is None else t for t in tangents])
        return [next(waiting) if isinstance(o, TensorValue) else NONE for o in self.outputs]

    def per_argument(self, found: Value) -> list[fx.Node | None]:
        """Nodes of the gradients of the tensor arguments."""
        items = items_of(found)
        if len(items) < len(self.args) or not all(is_none(i) for i in items[len(self.args) :]):
            self.stop(f"backward gives {len(items)} gradients for {len(self.args)} arguments")
        chosen = []
        for argument, item in zip(self.args, items):
            if not isinstance(argument, TensorValue):
                if not is_none(item):
                    self.stop("backward gives a gradient for an argument that is no tensor")
                continue
            if not isinstance(item, TensorValue) and not is_none(item):
                self.stop(f"backward gives a {item.describe()}")
            chosen.append(item.node if isinstance(item, TensorValue) else None)
        return chosen


def items_of(found: Value) -> list[Any]:
    """What a method gave, which may be one value or a tuple."""
    return list(found.items) if isinstance(found, TupleValue) else [found]
