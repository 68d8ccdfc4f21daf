"""A signature is the same where all that says it is; in data it is told by digests."""

import functools

import pytest
from tracework_capture.guards.paths import Changed
from tracework_capture.guards.signatures import SameSignature, signature_facts
from tracework_capture.guards.store import NotPortable


def taking(x: int, *rest: "list[int] | None", by=1, **more: dict[str, type]) -> None: ...


@functools.wraps(taking)
def around(*args): ...


def other(x: int, *rest: "list[int] | None", by=2, **more: dict[str, type]) -> None: ...


@pytest.mark.parametrize("function", [taking, around])
def test_a_digest_is_of_the_signature(function):
    same = SameSignature(signature_facts(function))
    assert same(function) and not same(other)
    again = SameSignature.of(function, same.digest())
    assert again(function) and again.digest() == same.digest()
    with pytest.raises(Changed):
        SameSignature.of(other, same.digest())


def test_what_has_no_digest(monkeypatch):
    digest = SameSignature(signature_facts(taking)).digest()
    monkeypatch.setattr(taking, "__signature__", None, raising=False)
    monkeypatch.setattr(taking, "__defaults__", (object(),))
    with pytest.raises(NotPortable):
        SameSignature(signature_facts(taking)).digest()
    with pytest.raises(Changed):
        SameSignature.of(taking, digest)
