"""The digest of an operator says what tracing takes from it, and nothing of what it computes."""

import enum
import functools
import math
import operator
import os
import sys
from os import getenv
from types import FunctionType, ModuleType

import pytest
import torch
from tracework_capture.guards.addresses import address_of, object_at
from tracework_capture.guards.operators import digest_of_operator
from tracework_capture.guards.paths import Changed
from tracework_capture.guards.store import NotPortable

FACTOR = 2
HELD: list[object] = [object()]


def scaled(gradient):
    return gradient * FACTOR * math.pi


def another(gradient):
    return gradient * len(HELD)


def made(name, backward=scaled, kernel=torch.sin):
    operator = torch.library.custom_op(f"stored_operators::{name}", kernel, mutates_args=(), schema="(Tensor x) -> Tensor")
    operator.register_fake(lambda x: torch.empty_like(x))
    operator.register_autograd(lambda ctx, gradient: backward(gradient))
    return operator


def test_what_changes_the_digest(monkeypatch):
    operator = made("one")
    digest = digest_of_operator(operator)
    assert digest == digest_of_operator(operator._opoverload)
    address = address_of(operator)
    assert object_at(address) is operator
    monkeypatch.setattr(operator, "_init_fn", torch.cos)
    assert digest_of_operator(operator) == digest
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert digest_of_operator(operator) != digest
    with pytest.raises(Changed):
        object_at(address)
    monkeypatch.setitem(globals(), "FACTOR", 2)
    monkeypatch.setattr(scaled, "__code__", (lambda gradient: gradient * 5).__code__)
    assert digest_of_operator(operator) != digest


def test_operators_of_torch_have_addresses():
    for known in (torch.ops.aten.add, torch.ops.aten.add.Tensor):
        assert object_at(address_of(known)) is known


def test_functions_that_read_what_has_no_digest():
    with pytest.raises(NotPortable):
        digest_of_operator(made("reads", another))


class Base:
    factor = 2


class Config(Base):
    def shape(self):
        return 2

    @property
    def width(self):
        return FACTOR

    own = staticmethod(lambda: FACTOR)


class Kind(enum.Enum):
    ONE = 1


@functools.cache
def remembering():
    return FACTOR


TABLE = {"a": [lambda: FACTOR]}


def factor():
    return FACTOR


factor.held = [2]
by_partial = functools.partial(lambda by, gradient: gradient * by, 2)
by_method = Config().shape
CONFIG = Config()
CONFIG.width_of_one = 2
DTYPE = torch.float32
torch.ops.stored_operators  # noqa: B018  # as a program does that calls one
MODULE = ModuleType("stored_operators_read")
MODULE.FACTOR, MODULE.inner = 2, ModuleType("stored_operators_read.inner")
MODULE.inner.FACTOR = 2
sys.modules[MODULE.__name__] = MODULE
library_of_reads = torch.library.Library("stored_operators_read", "DEF")
library_of_reads.define("called(Tensor x) -> Tensor")
library_of_reads._register_fake("called", lambda x: x * FACTOR)


def over_a_cell():
    space = torch
    return lambda gradient: gradient * space.factor_of_program


def given(gradient, space=torch):
    return gradient * space.factor_of_program


def by_argument(space):
    return space.factor_of_program


def by_import(gradient):
    import torch as space
    import torch.nn.functional as deep
    from stored_operators_read import inner

    return gradient * space.factor_of_program * deep.factor_of_program * inner.FACTOR


HERE = sys.modules[__name__]
TORCHS = (torch, "factor_of_program", 3)
READS = {
    "an attribute of torch": (lambda gradient: gradient * torch.factor_of_program, *TORCHS),
    "a function of torch": (lambda gradient: torch.empty_like(gradient), torch, "empty_like", lambda x: x),
    "a function of torch's modules": (
        lambda gradient: torch.nn.functional.relu(gradient),
        torch.nn.functional,
        "relu",
        lambda x: x,
    ),
    "a module in a cell": (over_a_cell(), *TORCHS),
    "a module that is a default": (given, *TORCHS),
    "a module that is an argument": (lambda gradient: gradient * by_argument(torch), *TORCHS),
    "an import": (by_import, *TORCHS),
    "an import of a part": (by_import, torch.nn.functional, "factor_of_program", 3),
    "an import from a module": (by_import, MODULE.inner, "FACTOR", 3),
    "getattr": (lambda gradient: gradient * getattr(torch, "factor_of_program"), *TORCHS),  # noqa: B009
    "getattr of a part": (
        lambda gradient: gradient * getattr(torch.nn.functional, "factor_of_program", 1),
        torch.nn.functional,
        *TORCHS[1:],
    ),
    "an attribute of a module": (lambda gradient: gradient * MODULE.FACTOR, MODULE, "FACTOR", 3),
    "an attribute of a module's module": (lambda gradient: gradient * MODULE.inner.FACTOR, MODULE.inner, "FACTOR", 3),
    "what was no attribute": (lambda gradient: gradient * getattr(math, "factor", 2), math, "factor", 3),
    "an attribute of tensors": (lambda gradient: gradient * gradient.factor_of_program, torch.Tensor, "factor_of_program", 3),
    "a method of tensors": (lambda gradient: gradient.relu(), torch.Tensor, "relu", lambda self: self),
    "a class of torch's": (
        lambda gradient: gradient * torch.nn.Module.factor_of_program,
        torch.nn.Module,
        "factor_of_program",
        3,
    ),
    "another operator": (lambda gradient: torch.ops.stored_operators_read.called(gradient), HERE, "FACTOR", 3),
    "a partial": (by_partial, HERE, "by_partial", functools.partial(by_partial.func, 3)),
    "a bound method": (lambda gradient: by_method() * gradient, Config, "shape", lambda self: 3),
    "an object": (lambda gradient: gradient * CONFIG.width_of_one, CONFIG, "width_of_one", 3),
    "a dtype": (lambda gradient: gradient.to(DTYPE), HERE, "DTYPE", torch.float64),
    # a rule -> what is set to something else: an object, the name of an attribute, another value
    "an attribute of a class": (lambda gradient: gradient * Config.factor, Base, "factor", 3),
    "a method": (lambda gradient: gradient * Config().shape(), Config, "shape", lambda self: 3),
    "what a method reads": (lambda gradient: gradient * Config().width, sys.modules[__name__], "FACTOR", 3),
    "what a function in a container reads": (lambda gradient: gradient * TABLE["a"][0](), sys.modules[__name__], "FACTOR", 3),
    "what a remembering function reads": (lambda gradient: gradient * remembering(), sys.modules[__name__], "FACTOR", 3),
    "an attribute of a function": (lambda gradient: gradient * factor.held[0], factor, "held", [3]),
    "a member of an enumeration": (lambda gradient: gradient * Kind.ONE.value, Kind.ONE, "_value_", 3),
}


@pytest.mark.parametrize("case", READS)
def test_what_a_rule_reads_through_others(monkeypatch, case):
    rule, owner, name, other = READS[case]
    operator = made("reads_through", lambda gradient: by_partial(gradient) if case == "a partial" else rule(gradient))
    digest = digest_of_operator(operator)
    assert digest_of_operator(operator) == digest
    monkeypatch.setattr(owner, name, other, raising=False)
    assert digest_of_operator(operator) != digest


def importing(gradient):
    from json import decoder

    return gradient * len(decoder.FLAGS)


class Lazy(ModuleType):
    pass


lazy, computed = Lazy("stored_operators_lazy"), ModuleType("stored_operators_computed")
computed.__getattr__ = lambda name: 2
UNSEEN = {
    "an import": importing,
    "by another's name": lambda gradient: gradient * globals()["FACTOR"],
    "by a computed name": lambda gradient: gradient * getattr(torch, "".join(["p", "i"])),
    "getattr by another name": lambda gradient: [gradient * get(torch, "pi") for get in [getattr]],
    "what gets attributes": lambda gradient: gradient * operator.attrgetter("pi")(math),
    "the names of a module": lambda gradient: gradient * torch.__dict__["pi"],
    "the names of a function": lambda gradient: gradient * factor.__globals__["FACTOR"],
    "the environment": lambda gradient: gradient * len(os.environ),
    "the environment, by a function": lambda gradient: gradient * len(getenv("PATH") or ""),
    "the environment, through torch": lambda gradient: gradient * len(torch.os.environ),
    "a module of another class": lambda gradient: gradient * lazy.factor,
    "a module that computes attributes": lambda gradient: gradient * computed.factor,
}


@pytest.mark.parametrize("name", UNSEEN)
def test_rules_that_read_what_no_name_leads_to(name):
    with pytest.raises(NotPortable, match="by the rule of an operator|has no address"):
        digest_of_operator(made("unseen", UNSEEN[name]))


RULES = {
    # registered with another operator that is like it -> changes the digest
    "vmap": lambda operator: operator.register_vmap(lambda info, in_dims, x: (x, in_dims[0])),
    "casts": lambda operator: operator.register_autocast("cpu", torch.bfloat16),
    "modes": lambda operator: operator.register_torch_dispatch(Own, lambda mode, function, types, args, kwargs: function(*args)),
}


class Own(torch.Tensor):
    pass


@pytest.mark.parametrize("name", RULES)
def test_rules_of_other_kinds(name):
    operator = made(name)
    digest = digest_of_operator(operator)
    RULES[name](operator)
    assert digest_of_operator(operator) != digest


@pytest.fixture
def library():
    library = torch.library.Library("defined_operators", "DEF")
    yield library
    library._destroy()


def fake(x):
    return torch.empty_like(x) * FACTOR


DEFINED = {
    # what is registered of an operator -> whether its digest can be told
    "a fake and a kernel": (lambda library: library.impl("one", torch.sin, "CPU"), True),
    "a kernel for all": (lambda library: library.impl("one", torch.sin, "CompositeExplicitAutograd"), True),
    "a gradient": (lambda library: library.impl("one", torch.sin, "Autograd"), False),
    "casts": (lambda library: library.impl("one", torch.sin, "AutocastCPU"), False),
}


@pytest.mark.parametrize(("register", "told"), DEFINED.values(), ids=DEFINED)
def test_operators_of_a_library(library, monkeypatch, register, told):
    library.define("one(Tensor x) -> Tensor")
    with pytest.raises(NotPortable, match="says what"):
        address_of(torch.ops.defined_operators.one)
    torch.library.register_fake("defined_operators::one", fake, lib=library)
    register(library)
    if not told:
        with pytest.raises(NotPortable, match="cannot be seen"):
            address_of(torch.ops.defined_operators.one)
        return
    for found in (torch.ops.defined_operators, vars(torch.ops.defined_operators)):
        assert object_at(address_of(found)) is found
    addresses = [address_of(found) for found in (torch.ops.defined_operators.one, torch.ops.defined_operators.one.default)]
    monkeypatch.setitem(globals(), "FACTOR", 3)
    for address in addresses:
        with pytest.raises(Changed):
            object_at(address)


def graded(ctx, gradient):
    return gradient * SCALE


GRADIENTS = {
    # what is registered for the gradient of an operator -> whether its digest can be told
    "a backward": ({}, graded, True),
    "what is kept for it": ({"setup_context": lambda ctx, inputs, output: SCALE}, lambda ctx, gradient: gradient, True),
    "another rule since": ({}, graded, False),
}
SCALE = 2


@pytest.mark.parametrize("kind", ["Tensor", "Tensor[]"])
@pytest.mark.parametrize("case", GRADIENTS)
def test_registered_gradients_of_operators_of_a_library(library, monkeypatch, case, kind):
    name = f"graded_{list(GRADIENTS).index(case)}_{len(kind)}"
    library.define(f"{name}({kind} x) -> Tensor")
    torch.library.register_fake(f"defined_operators::{name}", lambda x: torch.empty_like(x), lib=library)
    given, backward, is_told = GRADIENTS[case]
    torch.library.register_autograd(f"defined_operators::{name}", backward, **given, lib=library)
    operator = getattr(torch.ops.defined_operators, name)
    if not is_told:
        library.impl(name, torch.sin, "Autograd", allow_override=True)
        with pytest.raises(NotPortable, match="cannot be seen"):
            digest_of_operator(operator)
        return
    digest = digest_of_operator(operator)
    assert digest_of_operator(operator) == digest
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert digest_of_operator(operator) != digest


def test_operators_of_a_library_that_are_composed(library):
    library.define("one(Tensor x) -> Tensor")
    library.impl("one", torch.sin, "CompositeImplicitAutograd")
    with pytest.raises(NotPortable, match="cannot be seen"):
        address_of(torch.ops.defined_operators.one)


def test_functions_that_call_each_other():
    def back(gradient):
        return gradient if isinstance(back, FunctionType) else gradient

    assert digest_of_operator(made("recursive", back))


def test_gradients_that_operators_compute(monkeypatch):
    """One by itself, two by each other."""
    held = {}
    held["self"] = itself = made("by_itself", lambda gradient: held["self"](gradient))
    first = made("first", lambda gradient: second(gradient))
    second = made("second", lambda gradient: first(gradient) * FACTOR)
    digests = [digest_of_operator(operator) for operator in (itself, first, second)]
    assert len({*digests}) == 3
    monkeypatch.setitem(globals(), "FACTOR", 3)
    changed = [digest_of_operator(operator) for operator in (itself, first, second)]
    assert [one == other for one, other in zip(digests, changed, strict=True)] == [True, False, False]
