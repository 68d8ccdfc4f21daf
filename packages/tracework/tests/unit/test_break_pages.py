"""Pages of reasons to break: each id has one, its program breaks so, and what stands under "Instead" does not break and gives the same."""

import linecache
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import tracework
import tracework_capture
from tracework.break_pages import break_page, examples
from tracework.cli import app
from tracework_capture import BREAK_REASONS
from tracework_capture.interp import progress
from typer.testing import CliRunner

WITHOUT = {"opcode_unsupported", "other"}
RAISED = (RuntimeError, TypeError, ValueError)
PROGRAMS = [reason for reason in BREAK_REASONS if reason not in WITHOUT]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def defined(source: str, names: dict[str, Any], file: str) -> Any:
    """The function f of a block, which has its source as one of a file has."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names["f"]


def outcome(f: Any) -> Any:
    """What the plain function gives, or the class of what it raises."""
    try:
        return f(torch.arange(3.0))
    except RAISED as error:
        return type(error)


def test_every_reason_has_a_page():
    assert list(examples()) == list(BREAK_REASONS)
    assert {reason for reason in BREAK_REASONS if not blocks(break_page(reason))} == WITHOUT


def reasons(f: Any) -> set[str]:
    """Why f breaks where breaks are allowed, for a backend without symbols, and where they are errors."""
    explained = tracework_capture.explain(f)
    try:
        found = {stop.reason_id for stop in explained(torch.arange(3.0)).breaks}
    except RAISED:  # as the plain program does
        found = set()
    try:
        tracework.compile(f, backend="eager", fullgraph=True)(torch.arange(3.0))
    except tracework_capture.Unsupported as error:
        assert str(error).endswith(f"reason id: {error.reason_id} (tracework explain-break {error.reason_id})")
        found.add(error.reason_id)
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A loop is long after a sixtieth of the instructions, and the number of threads is put back."""
    monkeypatch.setattr(progress, "WITH_TENSORS", progress.WITH_TENSORS / 60)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("reason", PROGRAMS)
def test_programs_break_for_their_reason_and_what_is_instead_does_not(reason: str) -> None:
    page, row = break_page(reason), BREAK_REASONS[reason]
    assert page.startswith(f"# {reason}\n") and all(words in page.replace("`", "") for words in (row.what, row.why, row.cure))
    breaks, works = blocks(page)
    plain = outcome(defined(breaks, {"__name__": "__main__"}, f"<{reason}>"))
    names = {"__name__": "__main__"}
    f = defined(breaks, names, f"<{reason}>")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tracework.UncompiledWarning)
        assert reason in reasons(f)
    f = defined(works, names, f"<instead of {reason}>")
    found = tracework.compile(f, backend="eager", fullgraph=True)(torch.arange(3.0))
    if isinstance(plain, torch.Tensor):
        torch.testing.assert_close(found, plain, check_dtype=False)


def test_the_command():
    told = CliRunner().invoke(app, ["explain-break", "lock"])
    assert told.exit_code == 0 and told.output == break_page("lock")
    told = CliRunner().invoke(app, ["explain-break"], env={"COLUMNS": "200"})
    assert told.exit_code == 0 and all(reason in told.output for reason in BREAK_REASONS)
    told = CliRunner().invoke(app, ["explain-break", "locks"])
    assert told.exit_code == 1 and "Did you mean 'lock'?" in " ".join(told.output.split())
