"""A guard on a torch.Generator that a graph's inputs are drawn from."""

from __future__ import annotations

import torch

from .portable import Predicate


def is_default(generator: torch.Generator) -> bool:
    """Whether it is one that functions without a generator draw from, too, which the graph does in an order of its own."""
    return any(generator is each for each in (torch.default_generator, *torch.cuda.default_generators))


class OwnGenerator(Predicate):
    """it is a generator of its own on the same device"""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self, value: torch.Generator) -> bool:
        return value.device == self._device and not is_default(value)

    def digest(self) -> torch.device:
        return self._device

    @classmethod
    def of(cls, found: torch.Generator, digest: torch.device) -> OwnGenerator:
        return cls(digest)
