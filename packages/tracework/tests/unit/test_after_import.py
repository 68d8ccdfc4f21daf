"""Work that waits for an import."""

import importlib
import sys

import pytest
from tracework.after_import import after_import


@pytest.fixture
def awaited(tmp_path, monkeypatch):
    (tmp_path / "awaited_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "awaited_module"
    sys.modules.pop("awaited_module", None)


@pytest.mark.parametrize("waiting", [1, 2, 5])
def test_everybody_who_waits_for_a_module_sees_it(awaited, waiting):
    seen = []
    before = list(sys.meta_path)
    for n in range(waiting):
        after_import(awaited, lambda module, n=n: seen.append((n, module.value)))
    assert importlib.import_module(awaited).value == 1
    assert sorted(seen) == [(n, 1) for n in range(waiting)] and sys.meta_path == before


def test_who_gives_up_does_not_see_it(awaited):
    seen = []
    after_import(awaited, lambda module: seen.append("stays"))
    after_import(awaited, lambda module: seen.append("gives up"))()
    importlib.import_module(awaited)
    assert seen == ["stays"]


def test_what_is_imported_already_is_seen_now():
    seen = []
    after_import("json", seen.append)
    assert [module.__name__ for module in seen] == ["json"]
