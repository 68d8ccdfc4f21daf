"""What the tests of the documentation read: its pages, and the READMEs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
READMES = (ROOT / "README.md", *sorted((ROOT / "packages").glob("*/README.md")))
PAGES = (
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "breaks"} & {*p.relative_to(ROOT).parts}),
)
"""Without those that the site writes for itself: the tests of break_pages run what is on them."""
DOCUMENTS = (*READMES, *PAGES)

_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def name_of(document: Path) -> str:
    """For messages: its path in the repository."""
    return str(document.relative_to(ROOT))


def code_spans(text: str) -> list[str]:
    """What stands in code font in the running text of a page: fenced blocks are left out."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", _FENCE.sub("", text))
