"""What the runtime asks of a kind of device."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Device"]


class Device(Protocol):
    """One kind of device; rows of DEVICES."""

    type: str

    def available(self) -> bool:
        """Whether kernels can run here."""

    def identity(self) -> str:
        """What generated code depends on."""

    def properties(self) -> dict[str, Any]:
        """Facts for reports and choices."""

    def synchronize(self) -> None:
        """Wait until everything that was launched has run."""
