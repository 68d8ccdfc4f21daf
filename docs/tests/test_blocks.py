"""Every block of Python in the documentation and in the READMEs runs as written: in order, in one namespace a document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import tracework
from sybil.document import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from docs.tests.documents import DOCUMENTS, name_of

WITH_BLOCKS = [d for d in DOCUMENTS if "```python" in d.read_text()]
READERS_OWN = {"model": torch.nn.Linear(2, 2), "fn": torch.sin}
"""What the blocks of the README in the root take for the reader's own."""


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of one document is left for the next. What blocks write goes to a folder of their own, and so does what is compiled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRACEWORK_CACHE_KEY", str(tmp_path / "cache.key"))
    tracework.reset()
    yield
    tracework.reset()
    tracework.set_default_backend(None)


@pytest.mark.parametrize("document", WITH_BLOCKS, ids=name_of)
def test_blocks_run(document: Path) -> None:
    parsed = Document.parse(str(document), PythonCodeBlockParser())
    # capture looks at the module of a function: it is the program's own
    parsed.namespace.update(READERS_OWN if document.parent == DOCUMENTS[0].parent else {}, __name__="__main__")
    examples = list(parsed)
    assert examples
    for example in examples:
        example.evaluate()
