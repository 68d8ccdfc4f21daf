"""What was seen to change, kept over runs: sizes and numbers by function, so that the next run's first capture makes them symbols.

Functions are known by file, line and name; what does not fit the code any more is never asked for.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import CaptureError
from .history import History

FORMAT = 1
_known: dict[str, dict[str, Any]] = {}  # what earlier runs saw: new functions start with it
_seen: dict[str, dict[str, Any]] = {}  # what this run saw


def _name(code: types.CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}:{code.co_qualname}"


def new_history(code: types.CodeType, forget_checked: Callable[[], object]) -> History:
    """An empty history, or what earlier runs saw of the function."""
    history = History(forget_checked=forget_checked)
    seen = _known.get(_name(code))
    if seen is not None:
        history.sizes = {source: list(sizes) for source, sizes in seen["sizes"].items()}
        history.numbers = dict.fromkeys(seen["numbers"])
    return history


def remember(histories: Iterable[tuple[types.CodeType, History]]) -> None:
    """Takes what changed in these histories."""
    for code, history in histories:
        sizes = {source: seen for source, seen in history.sizes.items() if None in seen}
        numbers = [source for source, seen in history.numbers.items() if seen is None]
        if sizes or numbers:
            _seen[_name(code)] = _merged(_seen.get(_name(code), _NOTHING), {"sizes": sizes, "numbers": numbers})


_NOTHING: dict[str, Any] = {"sizes": {}, "numbers": []}


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"sizes": {**one["sizes"], **other["sizes"]}, "numbers": sorted({*one["numbers"], *other["numbers"]})}


def known() -> str:
    """All that is known, as JSON."""
    functions = {name: _merged(_known.get(name, _NOTHING), _seen.get(name, _NOTHING)) for name in {*_known, *_seen}}
    return json.dumps({"format": FORMAT, "functions": functions}, indent=1, sort_keys=True)


def load_dynamism(text: str) -> None:
    """Functions that are compiled from now on start with what dump_dynamism() wrote. Raises CaptureError for anything else."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict) or data.get("format") != FORMAT or not _is_record(data.get("functions")):
        raise CaptureError(f"this is no record of dynamism of format {FORMAT}. Write it anew with dump_dynamism().")
    _known.update(data["functions"])


def _is_record(functions: Any) -> bool:
    """Whether it is what `known` writes of functions."""
    return isinstance(functions, dict) and all(
        isinstance(seen, dict)
        and isinstance(seen.get("sizes"), dict)
        and all(_are(sizes, (int, type(None))) for sizes in seen["sizes"].values())
        and _are(seen.get("numbers"), str)
        for seen in functions.values()
    )


def _are(items: Any, kinds: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, kinds) for item in items)
