"""The digest of an operator says what tracing takes from it, and nothing of what it computes."""

import enum
import functools
import math
import sys
from types import FunctionType

import pytest
import torch
from tracework_capture.guards.addresses import Changed, address_of, object_at
from tracework_capture.guards.operators import digest_of_operator
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
    for operator in (torch.ops.aten.add, torch.ops.aten.add.Tensor):
        assert object_at(address_of(operator)) is operator


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
READS = {
    # a rule -> what is set to something else: an object, the name of an attribute, another value
    "an attribute of a class": (lambda gradient: gradient * Config.factor, Base, "factor", 3),
    "a method": (lambda gradient: gradient * Config().shape(), Config, "shape", lambda self: 3),
    "what a method reads": (lambda gradient: gradient * Config().width, sys.modules[__name__], "FACTOR", 3),
    "what a function in a container reads": (lambda gradient: gradient * TABLE["a"][0](), sys.modules[__name__], "FACTOR", 3),
    "what a remembering function reads": (lambda gradient: gradient * remembering(), sys.modules[__name__], "FACTOR", 3),
    "an attribute of a function": (lambda gradient: gradient * factor.held[0], factor, "held", [3]),
    "a member of an enumeration": (lambda gradient: gradient * Kind.ONE.value, Kind.ONE, "_value_", 3),
}


@pytest.mark.parametrize(("rule", "owner", "name", "other"), READS.values(), ids=READS)
def test_what_a_rule_reads_through_others(monkeypatch, rule, owner, name, other):
    operator = made("reads_through", rule)
    digest = digest_of_operator(operator)
    assert digest_of_operator(operator) == digest
    monkeypatch.setattr(owner, name, other)
    assert digest_of_operator(operator) != digest


def importing(gradient):
    from json import decoder

    return gradient * len(decoder.FLAGS)


UNSEEN = {"an import": importing, "by another's name": lambda gradient: gradient * globals()["FACTOR"]}


@pytest.mark.parametrize("name", UNSEEN)
def test_rules_that_read_what_no_name_leads_to(name):
    with pytest.raises(NotPortable, match="by the rule of an operator"):
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
