"""InductorError and its kinds; each message names the op and the user's source line."""

from tracework_primops import Pickled


class InductorError(Pickled, Exception):
    """Root of what this package raises."""


class TableError(InductorError):
    """A table has a second row for a key, lacks a key, or was asked for an unknown one."""


class LoweringError(InductorError):
    """A lowering rule failed: names the op, the user's line and what to try."""

    def __init__(self, op: str, origin: str | None, problem: str) -> None:
        where = f" (from {origin})" if origin else ""
        super().__init__(
            f"cannot lower {op}{where}: {problem}. "
            f"Pass InductorOptions(fallback_ops=frozenset({{{op!r}}})) to call the eager kernel instead."
        )
        self.op = op
        self.origin = origin


class RenderError(InductorError):
    """A kernel that the renderer cannot write; always our mistake."""
