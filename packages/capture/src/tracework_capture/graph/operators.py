"""Operators that capture makes for what a program calls, with schema, kernel, meta function and gradient.

Of functions that nobody knows: called once with real tensors, to see what they give, then part of the graph as they are. Such an operator is a
barrier: it is neither merged, nor dropped, nor computed again. Each call is held to what the first one gave.

Of traced graphs that run as the data asks for (an arm of a condition, the rounds of a loop): what they give lies in memory of its own. Sizes that
are symbols are arguments. The gradient is an operator, too, made when it is first asked for; it runs the graphs again, with history this time.

Of functions that leaf_function marks: the function itself runs, once for each call, whatever the backend. Where autograd follows an argument, the
call keeps what it recorded under a number, which the operator gives besides its results; the gradient finds it there. It is dropped with the
tensor that holds the number.

Of functions of torch with numbers read from tensors: for those that take a float which changes from call to call, and compute with it in a way that
no function of tensors does bit by bit. They have no gradient, write to nothing and give new tensors, whose sizes do not depend on the number.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import itertools
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tracework_primops import FakeTensor

from .. import _torch
from ..errors import OpaqueCallError
from ..signals import let_through

NAMESPACE = "tracework_opaque"


class GeneratedOperators:
    """The operators of this process in one namespace. Names do not depend on the process, since stored graphs hold them."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._library: Any = None
        self._found: dict[Any, Any] = {}
        self._names: set[str] = set()

    def known(self, key: Any) -> Any:
        """The operator made for this key; None before `make`."""
        return self._found[key][1] if key in self._found else None

    def make(
        self, key: Any, alive: Any, stem: str, facts: Any, schema: str, run: Any, on_meta: Any, tags: tuple[torch.Tag, ...] = ()
    ) -> Any:
        """The operator of the key, made once, named by `stem` and a digest of `facts`; `alive` is kept, so that an id in the key stays taken."""
        if key in self._found:
            return self.known(key)
        name = self._new_name(stem, facts)
        if self._library is None:
            self._library = torch.library.Library(self.namespace, "FRAGMENT")
        self._library.define(f"{name}{schema}", tags=tags)
        self._library.impl(name, run, "CompositeExplicitAutograd")
        self._library.impl(name, on_meta, "Meta")
        operator = getattr(getattr(torch.ops, self.namespace), name).default
        self._found[key] = (alive, operator)
        return operator

    def _new_name(self, stem: str, facts: Any) -> str:
        stem = "".join(c if c.isalnum() else "_" for c in stem)
        stem = name = f"{stem}_{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
        while name in self._names:
            name = f"{stem}_{len(self._names)}"
        self._names.add(name)
        return name


_opaque = GeneratedOperators(NAMESPACE)
_of_numbers = GeneratedOperators("tracework_numbers")


# --- functions that nobody knows -------------------------------------------------------------------------------------------


class Refusal(Exception):
    """Why a function cannot be an operator."""


def is_foreign(function: Any) -> bool:
    """Whether an extension module that is not Python's, torch's or NumPy's made the function."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if module is None or not isinstance(loader, importlib.machinery.ExtensionFileLoader):
        return False
    return module.__name__.partition(".")[0] not in {*sys.stdlib_module_names, "torch", "numpy", "tracework_capture"}


@dataclass(frozen=True)
class ArgumentSize:
    """A size or stride that an operator is given as this one of its arguments."""

    place: int


@dataclass(frozen=True)
class ResultFacts:
    """One tensor that the function gives. Sizes and strides are numbers, expressions while the program is traced, or arguments."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> ResultFacts:
        if isinstance(tensor, FakeTensor):
            return cls(tensor.dtype, tensor.device, tensor.spec.sizes, tensor.spec.strides)
        return cls(tensor.dtype, tensor.device, tuple(tensor.shape), tuple(tensor.stride()))

    @property
    def is_differentiable(self) -> bool:
        """Whether such a tensor may have a gradient."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    def over(self, number_of: Callable[[Any], Any]) -> ResultFacts:
        """The same facts with other sizes and strides."""
        return replace(self, sizes=tuple(map(number_of, self.sizes)), strides=tuple(map(number_of, self.strides)))

    def among(self, arguments: Sequence[Any]) -> ResultFacts:
        """The facts of a call with these arguments."""
        return self.over(lambda size: arguments[size.place] if isinstance(size, ArgumentSize) else size)

    def empty(self, device: torch.device | str) -> torch.Tensor:
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device=device)


def observe(call: Any, tensors: list[torch.Tensor]) -> tuple[type, tuple[ResultFacts, ...]]:
    """(class of the result, facts of its tensors) of one call with copies of these. Raises Refusal."""
    copies = [t.detach().clone() for t in tensors]
    try:
        found = call(*copies)
    except Exception as error:
        let_through(error)
        raise Refusal(f"it raises {type(error).__name__}") from error
    if not all(map(_unchanged, copies, tensors)):
        raise Refusal("it writes to an argument")
    results = _tensors_of(found)
    if results is None:
        raise Refusal(f"it gives a {type(found).__name__}, not new tensors only")
    if _shares_memory(copies, results):
        raise Refusal("what it gives shares memory with an argument")
    return type(found), tuple(map(ResultFacts.of, results))


def _unchanged(copy: torch.Tensor, tensor: torch.Tensor) -> bool:
    if copy.dtype != tensor.dtype or copy.shape != tensor.shape:
        return False
    same = (copy == tensor) | ((copy != copy) & (tensor != tensor))
    return bool(same.all())


def _tensors_of(found: Any) -> tuple[torch.Tensor, ...] | None:
    """The tensors of a result; None when it is anything else than a tensor, or a tuple or list of tensors."""
    parts = tuple(found) if type(found) in (tuple, list) else (found,)
    if not parts or not all(type(p) is torch.Tensor and p.layout is torch.strided and not p.requires_grad for p in parts):
        return None
    return parts


def _shares_memory(arguments: Any, results: Any) -> bool:
    """Whether a result lies in the memory of an argument or of another result."""
    taken = {t.untyped_storage().data_ptr() for t in arguments if t.numel()}
    for place in (t.untyped_storage().data_ptr() for t in results if t.numel()):
        if place in taken:
            return True
        taken.add(place)
    return False


class _Opaque:
    """Calls the function and holds it to what it gave at first."""

    def __init__(self, name: str, call: Any, facts: tuple[Any, ...]) -> None:
        self.name, self.call, self.facts = name, call, facts

    def run(self, *arguments: Any) -> Any:
        results = _tensors_of(self.call(*arguments))
        facts = [f.among(arguments) for f in self.facts]
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        if results is None or [*map(ResultFacts.of, results)] != facts or _shares_memory(tensors, results):
            raise OpaqueCallError(self.name, "it gave something else at its first call, or shares memory with an argument now")
        return results if len(results) > 1 else results[0]

    def on_meta(self, *arguments: Any) -> Any:
        on_fakes = any(isinstance(a, FakeTensor) for a in arguments)
        facts = [f.among(arguments) for f in self.facts]
        made = tuple(f.empty(f.device if on_fakes else "meta") for f in facts)
        return made if len(made) > 1 else made[0]


def operator_of(
    function: Any,
    call: Callable[..., Any],
    constants: Any,
    count: int,
    facts: tuple[Any, ...],
    numbers: frozenset[int] = frozenset(),
    name: str = "",
) -> Any:
    """The operator of the function with these constants; `call` takes its `count` arguments only: tensors, ints at the places `numbers`."""
    key = (id(function), repr(constants), count, facts, numbers)
    module, own = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", type(function).__qualname__)
    name = name or f"{module}.{own}"
    opaque = _Opaque(name, call, facts)
    taken = ", ".join(f"{'SymInt' if i in numbers else 'Tensor'} x{i}" for i in range(count))
    schema = f"({taken}) -> ({', '.join(['Tensor'] * len(facts))})"
    named = (name, constants, count, facts, sorted(numbers))
    return _opaque.make(key, function, name, named, schema, opaque.run, opaque.on_meta, (torch.Tag.nondeterministic_seeded,))


# --- traced graphs ---------------------------------------------------------------------------------------------------------


def traced_operator(function: Any, text: Any, count: int, facts: Sequence[Any], numbers: frozenset[int] = frozenset()) -> Any:
    """The operator of a function of `count` tensors, or ints at the places `numbers`, that gives a tuple of tensors; `text` says what it
    computes, `function.name` names it."""

    def call(*given: Any) -> tuple[torch.Tensor, ...]:
        found = function(
            *[g.detach() if isinstance(g, torch.Tensor) else g for g in given]
        )  # the kernel gets the program's history
        return tuple(own(t, f.among(given)) for t, f in zip(found, facts, strict=True))

    operator = operator_of(function, call, text, count, tuple(facts), numbers, function.name)
    gradients: dict[tuple[int, ...], tuple[_Gradient, Any]] = {}

    def keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        ctx.save_for_backward(*[None if i in numbers else given for i, given in enumerate(inputs)])
        ctx.numbers = {i: inputs[i] for i in numbers}

    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        followed = tuple(i for i in range(count) if ctx.needs_input_grad[i])
        inputs = [ctx.numbers.get(i, kept) for i, kept in enumerate(ctx.saved_tensors)]
        if followed not in gradients:
            made = _Gradient(function, followed, inputs, facts)
            total = count + len(made.results)
            gradients[followed] = made, traced_operator(made, ("gradient", text, followed), total, made.facts, numbers)
        gradient, of_inputs = gradients[followed]
        return in_places(of_inputs(*inputs, *[given[i] for i in gradient.results]), followed, count)

    torch.library.register_autograd(operator._schema.name, backward, setup_context=keep)
    return operator


def own(tensor: torch.Tensor, facts: ResultFacts) -> torch.Tensor:
    """The tensor in memory of its own, as an operator gives it."""
    return torch.empty_strided(facts.sizes, facts.strides, dtype=facts.dtype, device=facts.device).copy_(tensor)


def in_places(found: Any, followed: Sequence[int], count: int) -> tuple[torch.Tensor | None, ...]:
    """What an operator gave for the inputs that are followed, as the gradients of all `count` inputs."""
    left = iter((found,) if isinstance(found, torch.Tensor) else found)
    return tuple(next(left) if i in followed else None for i in range(count))


def gradients_of(
    results: Sequence[torch.Tensor], given: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], **how: bool
) -> list[torch.Tensor]:
    """The gradients of inputs, zeros where there is none, for those `given` of results, some of which may have no history."""
    pairs = [(result, gradient) for result, gradient in zip(results, given, strict=True) if result.requires_grad]
    found: Any = [None] * len(inputs)
    if pairs:
        givers, taken = zip(*pairs)
        found = torch.autograd.grad(givers, inputs, taken, allow_unused=True, **how)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, found)]


@dataclass(frozen=True)
class _Like:
    """A tensor of the sizes of an argument, row by row."""

    place: int
    dtype: torch.dtype
    device: torch.device
    is_differentiable = True

    def among(self, arguments: Sequence[Any]) -> ResultFacts:
        made = torch.empty(arguments[self.place].shape, device="meta")
        return ResultFacts(self.dtype, self.device, tuple(made.shape), tuple(made.stride()))


class _Gradient:
    """The gradients of the followed inputs, from all inputs and the gradients of those results that may have one. They have history where
    the gradient of a gradient calls this: the tensors are leaves then, or depend on nothing but themselves.
    """

    def __init__(self, function: Any, followed: tuple[int, ...], inputs: Sequence[Any], facts: Sequence[Any]) -> None:
        self.name = f"gradient_of_{function.name}"
        self.function, self.followed, self.count = function, followed, len(inputs)
        self.results = [i for i, f in enumerate(facts) if f.is_differentiable]
        self.facts = tuple(_Like(i, inputs[i].dtype, inputs[i].device) for i in followed)

    def __call__(self, *arguments: Any) -> tuple[torch.Tensor, ...]:
        inputs, gradients = arguments[: self.count], arguments[self.count :]
        again = any(t.requires_grad for t in arguments if isinstance(t, torch.Tensor))
        with _torch.autograd.autograd_on():
            given = [self._with_history(i, t) for i, t in enumerate(inputs)]
            results = self.function(*given)
            wanted = [given[i] for i in self.followed]
            return tuple(gradients_of([results[i] for i in self.results], gradients, wanted, create_graph=again))

    def _with_history(self, place: int, given: Any) -> Any:
        if not isinstance(given, torch.Tensor) or given.requires_grad:
            return given
        return given.detach().requires_grad_(place in self.followed)


# --- leaf functions --------------------------------------------------------------------------------------------------------


_numbers = itertools.count()
_NUMBER = ResultFacts(torch.int64, torch.device("cpu"), (), ())


def leaf_operator(
    name: str, function: Callable[..., Any], text: Any, examples: Sequence[Any], facts: tuple[ResultFacts, ...]
) -> Any:
    """(operator, whether it gives a number after its results) for a function of tensors like `examples` that gives tensors."""
    followed = tuple(i for i, e in enumerate(examples) if torch.is_grad_enabled() and e.requires_grad)
    leaf = _Leaf(name, function, followed, facts, tuple(ResultFacts.of(examples[i]) for i in followed))
    kernel = leaf.record if followed else leaf.run
    results = (*facts, _NUMBER) if followed else facts
    operator = operator_of(kernel, kernel, text, len(examples), results, name=name)
    if followed:
        _register_gradient(operator, leaf, text, len(examples))
    return operator, bool(followed)


class _Leaf:
    def __init__(self, name: str, function: Any, followed: Any, facts: Any, gradients: Any) -> None:
        self.name, self.function, self.followed, self.facts, self.gradients = name, function, followed, facts, gradients
        self.differentiable = [i for i, f in enumerate(facts) if f.is_differentiable]
        self.kept: dict[int, tuple[list[torch.Tensor], Sequence[torch.Tensor]]] = {}

    def run(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.checked(self.function(*[t.detach() for t in tensors]))

    def record(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with _torch.autograd.autograd_on():
            given = [t.detach().requires_grad_(i in self.followed) for i, t in enumerate(tensors)]
            found = self.function(*given)
        number = next(_numbers)
        self.kept[number] = given, found
        token = torch.tensor(number)
        weakref.finalize(token, self.kept.pop, number, None).atexit = False
        return (*self.checked(found), token)

    def gradient(self, token: torch.Tensor, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given, found = self.kept[int(token)]
        wanted = [given[i] for i in self.followed]
        with _torch.autograd.autograd_on():
            made = gradients_of([found[i] for i in self.differentiable], gradients, wanted, retain_graph=True)
        return tuple(map(own, made, self.gradients))

    def checked(self, found: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The results in memory of their own, as the fake says that they are."""
        said = [(f.dtype, f.sizes) for f in self.facts]
        if [(getattr(t, "dtype", None), tuple(getattr(t, "shape", ()))) for t in found] != said:
            raise OpaqueCallError(self.name, "it gave other tensors than its fake says")
        return tuple(own(t.detach(), f) for t, f in zip(found, self.facts))


def _register_gradient(operator: Any, leaf: _Leaf, text: Any, count: int) -> None:
    kernel, name = leaf.gradient, f"gradient_of_{leaf.name}"
    backward = operator_of(kernel, kernel, ("gradient", text), 1 + len(leaf.differentiable), leaf.gradients, name=name)

    def of_inputs(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return in_places(backward(*ctx.saved_tensors, *[gradients[i] for i in leaf.differentiable]), leaf.followed, count)

    def again(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise OpaqueCallError(leaf.name, "the gradient of a leaf function has no gradient")

    torch.library.register_autograd(
        operator._schema.name, of_inputs, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[-1])
    )
    torch.library.register_autograd(backward._schema.name, again)


# --- functions of torch over numbers that tensors hold ---------------------------------------------------------------------


def number_operator(
    function: Callable[..., Any], known: list[Any], names: tuple[str, ...], numbers: dict[int, float], tensors: list[int]
) -> Any:
    """The operator of function(*known[:-len(names)], **names) with the tensors in their places first, then the numbers, as tensors."""
    facts = (repr(known), names, tuple(numbers), tuple(tensors))

    def run(*values: torch.Tensor, on_meta: bool = False) -> Any:
        args, read = list(known), iter(values)
        for place in tensors:
            args[place] = next(read)
        for place, example in numbers.items():
            args[place] = example if on_meta else next(read).item()
        count = len(args) - len(names)
        named = dict(zip(names, args[count:], strict=True))
        if on_meta and not tensors:
            named["device"] = "meta"
        return function(*args[:count], **named)

    schema = f"({', '.join(f'Tensor x{i}' for i in range(len(tensors) + len(numbers)))}) -> Tensor"
    key, name = (id(function), *facts), function.__name__
    return _of_numbers.make(key, function, name, (name, *facts), schema, run, functools.partial(run, on_meta=True))
