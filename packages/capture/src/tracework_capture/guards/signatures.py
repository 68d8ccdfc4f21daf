"""A guard on what says which arguments a function takes."""

from __future__ import annotations

import operator
import types
import typing
from typing import Any

from .addresses import address_of, digest_of_attribute
from .functions import digest_of_code
from .paths import Changed
from .portable import Predicate
from .store import NotPortable

_LONGEST_CHAIN = 500


def signature_facts(function: Any) -> list[Any]:
    """Objects that the signature of a function is made of, and that of the function it wraps; at the end what wraps nothing more."""
    facts: list[Any] = []
    while isinstance(function, types.FunctionType) and len(facts) < _LONGEST_CHAIN:
        own = function.__dict__
        facts += [function.__code__, function.__defaults__, function.__kwdefaults__, function.__annotations__]
        facts.append(own.get("__signature__"))
        function = own.get("__wrapped__")
    return [*facts, function]


class SameSignature(Predicate):
    """its signature is the same"""

    def __init__(self, facts: list[Any]) -> None:
        """facts: signature_facts of the function."""
        self._facts = facts

    def __call__(self, function: types.FunctionType) -> bool:
        now = signature_facts(function)
        return len(now) == len(self._facts) and all(map(operator.is_, now, self._facts))

    def digest(self) -> list[str]:
        *facts, last = self._facts
        if last is not None or any(given is not None for given in facts[4::5]):
            raise NotPortable("a function says itself what it takes")
        digests = []
        for code, defaults, named, annotated in zip(facts[0::5], facts[1::5], facts[2::5], facts[3::5], strict=True):
            digests += [digest_of_code(code), digest_of_attribute(defaults), digest_of_attribute(named)]
            digests.append(repr([(name, _annotation(said)) for name, said in annotated.items()]))
        return digests

    @classmethod
    def of(cls, function: Any, digest: list[str]) -> SameSignature:
        made = cls(signature_facts(function))
        try:
            if made.digest() == digest:
                return made
        except NotPortable as why:
            raise Changed(str(why)) from why
        raise Changed("its signature is another one")


def _annotation(said: Any) -> Any:
    if isinstance(said, type) and not isinstance(said, types.GenericAlias):
        return address_of(said)
    parts = typing.get_args(said)
    return [type(said).__name__, _annotation(typing.get_origin(said)), *map(_annotation, parts)] if parts else repr(said)
