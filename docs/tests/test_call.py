"""What call.md names under "The first call" runs in the order in which it stands there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import torch
import tracework
from tracework_capture.hook.context import FrameCallback

from docs.tests.documents import ROOT, code_spans

ELSEWHERE = {"_ahead_of_time", "GraphCompiler", "trace_joint", "partition", "wrap_autograd", "tuned", "triton_pool"}
"""Named, and run by compile() itself, where inputs require gradients, or on a GPU."""
Place = tuple[str, str]
"""The end of a file's path, below its package, and the qualified name of a function in it."""


def named_places() -> list[Place]:
    """The functions of Python that the page names, in order, each once."""
    page = (ROOT / "docs" / "call.md").read_text()
    section = page.partition("## The first call")[2].partition("## A later call")[0]
    found = [span.partition(":") for span in code_spans(section) if ".py:" in span]
    return list(dict.fromkeys((path.partition("/")[2], name) for path, _, name in found))


@contextmanager
def watched(seen: list[Place]) -> Iterator[None]:
    """Notes the functions of ours that begin."""

    def note(frame: FrameType, event: str, arg: Any) -> None:
        package, separator, path = frame.f_code.co_filename.rpartition("/tracework")[2].partition("/")
        if event == "call" and separator:
            seen.append((path, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_the_first_call_runs_in_the_order_of_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    seen: list[Place] = []
    answer = FrameCallback.answer

    def watched_answer(*args: Any) -> Any:  # from here on: a profile that is on before makes frames run plainly
        with watched(seen):
            return answer(*args)

    monkeypatch.setattr(FrameCallback, "answer", watched_answer)
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRACEWORK_CACHE_KEY", str(tmp_path / "cache.key"))
    tracework.reset()
    torch.testing.assert_close(tracework.compile(lambda x: torch.sin(x).sum(-1))(torch.ones(3, 5)), torch.sin(torch.ones(3)) * 5)
    named = named_places()
    first = [place for place in dict.fromkeys(seen) if place in named]
    assert first == [place for place in named if place in first]
    assert {name for path, name in named if (path, name) not in first} == ELSEWHERE
