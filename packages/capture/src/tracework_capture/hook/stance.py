"""Stances: what calling a compiled function does, for the whole process, until it is set back.

STANCES says what each means. The evaluator asks `_Asked` at each call of an optimized function, and only while the stance is not the
default one; FrameCallback asks `current()` when a frame has no fitting entry.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _C
from ..errors import ControlMisuse, StanceMisuse
from . import cache

STANCES: dict[str, str] = {
    "default": "compile where no entry fits",
    "force_eager": "compiled functions run as plain Python",
    "eager_on_recompile": "entries that fit are used; where none does, plain Python runs",
    "fail_on_recompile": "entries that fit are used; where none does, it is an error",
    "eager_then_compile": "a function's first call runs as plain Python and shows its sizes, the second compiles",
    "aot_eager_then_compile": "a function's first call runs with the aot_eager backend, the second compiles",
}


@dataclass(frozen=True)
class Stance:
    """One stance; ControlMisuse for an unknown name. backend: used instead of each function's own. first_backend: of aot_eager_then_compile's first calls."""

    name: str = "default"
    skip_guard_eval_unsafe: bool = False
    backend: Any = None
    first_backend: Any = None

    def __post_init__(self) -> None:
        if self.name not in STANCES:
            raise ControlMisuse(f"unknown stance {self.name!r}. Known: {', '.join(STANCES)}.")


_current = Stance()
_DEFAULT = _current


@dataclass
class _Followed:
    """The stance of another compiler: where it is kept, and the last one that was seen there, translated."""

    module: str = ""
    name: str = ""
    translate: Callable[[Any], Stance] = lambda taken: _DEFAULT
    taken: Any = None
    stance: Stance = _DEFAULT


_followed = _Followed()


def follow_stance(module: str, name: str, translate: Callable[[Any], Stance]) -> None:
    """While no stance is set here, that of another compiler holds: what `translate` makes of the attribute `name` of its `module`, once
    that has been imported."""
    global _followed
    _followed = _Followed(module, name, translate)
    _C.follow_stance(sys.modules, module, name, _resolve)


def current() -> Stance:
    """The stance that holds now."""
    if _current != _DEFAULT:
        return _current
    taken = getattr(sys.modules.get(_followed.module), _followed.name, None) if _followed.module else None
    if taken is None:
        return _current
    if taken is not _followed.taken:
        _followed.stance = _followed.translate(taken)
        _followed.taken = taken
        if _followed.stance == _DEFAULT:
            _C.followed_stance_is_plain(taken)
    return _followed.stance


def _resolve(callback: Any) -> tuple[Any, bool]:
    """(callback to use, whether entries are only used) for a call of a function with this callback."""
    stance = current()
    if stance.name == "force_eager":
        return None, False
    if stance.backend is not None and hasattr(callback, "with_backend"):
        return callback.with_backend(stance.backend), False
    return callback, stance.name == "eager_on_recompile"


_CONSULTING = ("force_eager", "eager_on_recompile", "fail_on_recompile")


def _set(stance: Stance) -> Stance:
    global _current
    if _C.get_callback() is not None:
        raise StanceMisuse(
            "set_stance() was called inside of a compiled function. Set the stance before the call, around it, or in a function that is "
            "marked with disable."
        )
    before, _current = _current, stance
    if stance.skip_guard_eval_unsafe:
        cache.build_lean_programs()
    asks = stance.name in _CONSULTING or stance.backend is not None
    _C.set_stance(_resolve if asks else None, stance.skip_guard_eval_unsafe)
    return before


class set_stance:  # a class with a function's name: calling it takes effect at once
    """Sets the stance of the compiler: called alone for good, in a `with` for the block, as a decorator for the function's calls.

    Args:
        stance: a key of STANCES.
        skip_guard_eval_unsafe: check only guards that tell the entries of a function apart. Wrong results when anything else changes.
        force_backend: with the default stance, the backend for all compiled functions.
        first_backend: what aot_eager_then_compile uses first; the front end fills it in.

    Raises ControlMisuse for an unknown stance or a contradiction, StanceMisuse inside of a compiled function.
    """

    _dynamo_forbidden = True

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Callable[..., Any] | None = None,
        first_backend: Callable[..., Any] | None = None,
    ) -> None:
        self.stance = Stance(stance, skip_guard_eval_unsafe, force_backend, first_backend)
        if force_backend is not None and stance != "default":
            raise StanceMisuse(f"force_backend= goes with the default stance, not with {stance!r}. Leave one of the two out.")
        if force_backend is not None and not callable(force_backend):
            raise ControlMisuse(
                f"force_backend= takes a backend, not {force_backend!r}. Give it a callable (gm, example_inputs)."
            )
        if stance == "aot_eager_then_compile" and first_backend is None:
            raise ControlMisuse("aot_eager_then_compile needs first_backend=. Use tracework.compiler.set_stance, which gives it.")
        self.before = _set(self.stance)

    def __enter__(self) -> None:
        _set(self.stance)

    def __exit__(self, *exc: object) -> None:
        _set(self.before)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        _set(self.before)
        wanted = self.stance

        @functools.wraps(function)
        def in_stance(*args: Any, **kwargs: Any) -> Any:
            before = _set(wanted)
            try:
                return function(*args, **kwargs)
            finally:
                _set(before)

        in_stance._dynamo_forbidden = True  # type: ignore[attr-defined]
        return in_stance
