"""torch.Generators that a graph's inputs are drawn from: a guard on the program's, and places for those that the compiled code makes."""

from __future__ import annotations

import threading
from typing import Any

import torch

from .portable import MadeAnew, Predicate


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


class Place(threading.local, MadeAnew):
    """Where a generator is that the compiled code makes for a run."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.now: torch.Generator | None = None

    def made_of(self) -> tuple[torch.device]:
        return (self.device,)

    def make(self) -> float:
        self.now = torch.Generator(device=self.device)
        return 0.0

    def take(self) -> torch.Generator | None:
        return self.now

    def get_state(self) -> Any:
        """The generator itself: a run that begins again makes another."""
        return self.now

    def set_state(self, now: Any) -> None:
        self.now = now
