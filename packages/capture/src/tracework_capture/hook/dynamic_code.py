"""Code that a program makes anew for each call, by exec or eval: what was compiled for it dies with it."""

from __future__ import annotations

from types import CodeType

from ..errors import RecompileLimitError
from ..options import CaptureOptions
from .cache import say_limit


class DynamicCode:
    """How often code of one kind, equal and of the same file, has died after frames of it were captured."""

    _REMEMBERED = 1000  # of the class: code dies at Python's end, too, when the names of modules are gone

    def __init__(self) -> None:
        self._deaths: dict[tuple[str, int], int] = {}
        self._announced: set[tuple[str, int]] = set()

    @staticmethod
    def kind(code: CodeType) -> tuple[str, int]:
        """What equal code of the same file has in common."""
        return code.co_filename, hash(code)

    def died(self, kind: tuple[str, int]) -> None:
        """One more died."""
        if len(self._deaths) >= self._REMEMBERED:  # all different: none is the same one made anew
            self._deaths.clear()
        self._deaths[kind] = self._deaths.get(kind, 0) + 1

    def at_limit(self, code: CodeType, options: CaptureOptions) -> bool:
        """Whether frames of the code run plainly, as equal code has been compiled recompile_limit times and was gone each time. The first
        time this is said aloud. Raises RecompileLimitError when options.fail_on_limit or options.fullgraph is set."""
        kind = self.kind(code)
        if self._deaths.get(kind, 0) < options.recompile_limit:
            return False
        fails = options.fail_on_limit or options.fullgraph
        text = (
            f"tracework compiled {options.shown(code)} {options.recompile_limit} times, its "
            f"recompile_limit; {'another call' if fails else 'more of it'} {'fails' if fails else 'runs as plain Python from now on'}.\n"
            "what differed: the program makes the code anew, by exec or eval, and what was compiled died with the code before\n"
            "cure: make the function once, and call that one each time"
        )
        if fails:
            raise RecompileLimitError(text)
        if kind not in self._announced:
            self._announced.add(kind)
            say_limit(text, code, options, ("the program makes its code anew",))
        return True
