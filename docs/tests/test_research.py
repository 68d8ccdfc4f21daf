"""Each script of docs/research runs, and is on the page."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import tracework

from docs.tests.documents import ROOT

SCRIPTS = sorted((ROOT / "docs" / "research").glob("*.py"))


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is compiled goes to a folder of its own."""
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRACEWORK_CACHE_KEY", str(tmp_path / "cache.key"))
    yield
    tracework.reset()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_run(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_all_are_on_the_page() -> None:
    page = (ROOT / "docs" / "research" / "index.md").read_text()
    assert len(SCRIPTS) == 6 and all(f"{{literalinclude}} {script.name}" in page for script in SCRIPTS)
