"""A guard on a tensor of a subclass, past what its class overrides."""

from __future__ import annotations

from typing import Any

from .._torch.modes import torch_functions_are_on, torch_functions_off
from .guard import TensorFacts
from .kinds import tensor_sizes
from .portable import Predicate


class IsSubclassTensor(Predicate):
    """the tensor is as it was"""

    def __init__(self, facts: TensorFacts) -> None:
        self._facts = facts

    def __call__(self, value: Any) -> bool:
        if type(value) is not self._facts.type or not torch_functions_are_on():
            return False
        with torch_functions_off():
            return tensor_sizes(value, self._facts) is not None

    def digest(self) -> TensorFacts:
        return self._facts

    @classmethod
    def of(cls, found: Any, digest: TensorFacts) -> IsSubclassTensor:
        return cls(digest)
