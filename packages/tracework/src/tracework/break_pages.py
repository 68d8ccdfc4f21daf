"""A page for each reason to break a graph: what happens, a small program that shows it, and what to write instead.

The words are those of capture's BREAK_REASONS, the programs those of break_examples.md, which the tests run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from tracework_capture import BREAK_REASONS, calls_that_break

from .errors import UnknownName

EXAMPLES = Path(__file__).with_name("break_examples.md")


@functools.cache
def examples() -> Mapping[str, str]:
    """Id -> the text of its section, whose first block breaks and whose second does not."""
    parts = re.split(r"^## (\w+)\n", EXAMPLES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))


def _marked(text: str) -> str:
    """Names with underlines around them in code font: to Markdown they are bold."""
    return re.sub(r"\b__\w+__\b", r"`\g<0>`", text)


def break_page(reason_id: str) -> str:
    """The page of an id as Markdown. Raises UnknownName."""
    if reason_id not in BREAK_REASONS:
        raise UnknownName("reason to break", reason_id, BREAK_REASONS)
    row, calls = BREAK_REASONS[reason_id], calls_that_break().get(reason_id, [])
    program, closing, instead = examples()[reason_id].partition("\n```\n")
    parts = [
        f"# {reason_id}",
        *(_marked(f"{said}.") for said in (f"What: {row.what}", f"Why: {row.why}", f"What to do: {row.cure}")),
    ]
    parts += [f"So break calls of {', '.join(f'`{name}`' for name in calls)}."] if calls else []
    parts += ["## A program that breaks so", program + closing.rstrip()]
    parts += ["## Instead", instead.strip()] if instead else []
    return "\n\n".join(parts) + "\n"
