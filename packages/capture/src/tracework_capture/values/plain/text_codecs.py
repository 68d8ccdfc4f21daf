"""Which of a text's encodings are Python's own: those that the program registers are functions of its, and run when their turn comes."""

from __future__ import annotations

import codecs
import encodings
import encodings.aliases
import functools
import importlib
import types
from collections.abc import Callable

from ..protocol.constant import TEXT_RULES, force_plain
from ..protocol.value import Frame, Value


def break_for_own_codec(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Breaks the graph where a text is encoded, or bytes are decoded, by a codec or an error handler that may be the program's.

    args, kwargs: the encoding and the errors, as the method takes them.
    """
    given = {**dict(zip(_TESTS, args, strict=False)), **kwargs}
    for kind, is_pythons in _TESTS.items():
        name = force_plain(frame, given[kind]) if kind in given else None
        if type(name) is str and not is_pythons(name):
            frame.break_graph("call_unknown", f"the {kind} {name!r}, which may be the program's")


@functools.cache
def _is_pythons_encoding(name: str) -> bool:
    stem = encodings.normalize_encoding(name.lower()) if name.isascii() else ""
    stem = encodings.aliases.aliases.get(stem, stem)
    if not stem.isidentifier():
        return False
    try:
        module = importlib.import_module(f"encodings.{stem}")
    except ImportError:
        return False
    return hasattr(module, "getregentry")


def _is_pythons_handler(name: str) -> bool:
    try:
        return isinstance(codecs.lookup_error(name), types.BuiltinFunctionType)
    except LookupError:  # it need not be there as long as there is no error
        return False


_TESTS: dict[str, Callable[[str], bool]] = {"encoding": _is_pythons_encoding, "errors": _is_pythons_handler}


for _name in ("encode", "decode"):
    TEXT_RULES[_name] = lambda frame, text, args, kwargs: break_for_own_codec(frame, args, kwargs)
