"""The digest of an operator says what tracing takes from it, and nothing of what it computes."""

import math
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


@pytest.mark.parametrize("spoil", ["reads", "vmap", "low level"])
def test_what_has_no_digest(spoil):
    operator = made(spoil.replace(" ", "_"), another if spoil == "reads" else scaled)
    if spoil == "vmap":
        operator.register_vmap(lambda info, in_dims, x: (x, in_dims[0]))
    with pytest.raises(NotPortable):
        digest_of_operator(torch.ops.aten.add if spoil == "low level" else operator)


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
