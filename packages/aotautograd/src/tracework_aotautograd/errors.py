"""Errors of aotautograd: what went wrong, at which op of the user's program, and what to try next."""

from tracework_primops import Pickled


class AotError(Pickled, Exception):
    """Root of everything this package raises by itself."""


class Refusal(AotError):
    """The graph cannot be compiled faithfully; the caller runs it eagerly and logs `reason`.

    Attributes: reason (one sentence), origin (the user's "file:line op", or "").
    """

    def __init__(self, reason: str, origin: str = "") -> None:
        self.reason = reason
        self.origin = origin
        super().__init__(f"{reason} (at {origin})" if origin else reason)


class FunctionalizationError(Refusal):
    """An op writes to memory in a way for which no mutation-free form is known."""


class BehindAHook(Refusal):
    """Results that are computed from others have history in common, at a value with a hook: as pieces between hooks it can be compiled."""


class PartitionError(AotError):
    """The joint graph cannot be split: a forward output depends on a tangent, or an unsaveable value crosses."""


class UsageError(AotError):
    """aot_compile was called wrongly: an unknown partitioner, inputs that do not match the graph, ..."""
