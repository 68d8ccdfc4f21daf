import dataclasses
import logging
import os
import threading

import pytest
from tracework_runtime import KEY_PARTS, Artifact, Cache, CacheUnsafe, KeyFacts, RuntimeOptions, Store, cache_key, explain_key

HOST = "def call(args):\n    return ()\n"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache")


def test_get_or_make_makes_once(store):
    made = []
    cache = Cache(store)

    def make():
        made.append(1)
        return Artifact("k1", HOST)

    first = cache.get_or_make("k1", make)
    assert cache.get_or_make("k1", make) is first
    assert Cache(store).get_or_make("k1", make) == first
    assert made == [1]


def test_destructors_may_ask_the_cache(store):
    """What leaves it may run code of the program's, which compiles in its turn."""
    cache, found = Cache(store, entries=1), []

    class Asks(Artifact):
        def __del__(self):
            found.append(cache.get("k2"))

    def work():
        cache.put("k1", Asks("k1", HOST))
        cache.put("k2", Artifact("k2", HOST))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert [artifact.key for artifact in found] == ["k2"]


def test_damaged_entry_is_made_again(store, caplog):
    Cache(store).put("k1", Artifact("k1", HOST))
    path = store.file("artifact", "k1", ".twa")
    data = bytearray(path.read_bytes())
    data[40] ^= 255
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING, "tracework.runtime.cache"):
        assert Cache(store).get("k1") is None
    assert "thrown away" in caplog.text
    assert not path.exists()


def test_folder_others_can_write_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    os.chmod(folder, 0o777)
    with pytest.raises(CacheUnsafe, match="written by others"):
        Store(folder)


def test_relative_folder_is_of_the_directory_it_was_opened_in(tmp_path, monkeypatch):
    """Compilers run in folders of their own, and programs change theirs."""
    monkeypatch.chdir(tmp_path)
    store = Store("cache")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = store.put("x", "key", b"content")
    assert path.is_absolute()
    assert path.is_relative_to(tmp_path / "cache")
    assert store.get("x", "key") == b"content"


def test_least_recently_used_go_first(store):
    for i in range(10):
        path = store.put("x", f"key{i}", bytes(60))
        os.utime(path, (i, i))
    store.limit = 5 * path.stat().st_size
    store.get("x", "key0")
    assert store.evict() == 5
    assert store.size() <= store.limit
    assert store.get("x", "key0") is not None
    assert store.get("x", "key1") is None


def test_what_older_versions_kept_goes_too(store):
    old = store.folder / "v0" / "x" / "ke" / "key"
    old.parent.mkdir(parents=True)
    old.write_bytes(bytes(60))
    os.utime(old, (0, 0))
    path = store.put("x", "key", bytes(60))
    store.limit = path.stat().st_size
    assert store.evict() == 1 and path.exists() and not old.exists()


def test_no_entry_is_a_pickle(store):
    path = Cache(store).store.put("artifact", "k", Artifact("k", HOST).to_bytes(), ".twa")
    assert path.read_bytes().startswith(b"TRACEWRK")


def test_key_parts_have_names():
    assert list(explain_key(KeyFacts("g"))) == [name for name, _ in KEY_PARTS]


@pytest.mark.parametrize(
    "change",
    [
        {"graph": "h"},
        {"options": "o"},
        {"extra": ("e",)},
        {"devices": frozenset({"cuda"})},
        {"runtime": RuntimeOptions(cxx_flags=("-O1",))},
    ],
    ids=str,
)
def test_key_changes(change):
    facts = KeyFacts("g")
    assert cache_key(facts) == cache_key(KeyFacts("g"))
    assert cache_key(facts) != cache_key(dataclasses.replace(facts, **change))


def test_every_option_changes_the_fingerprint_or_is_neutral():
    plain = RuntimeOptions()
    for field in dataclasses.fields(plain):
        value = getattr(plain, field.name)
        other = ("x",) if isinstance(value, tuple) else (not value if isinstance(value, bool) else 17)
        changed = plain.replace(**{field.name: other}).fingerprint() != plain.fingerprint()
        assert changed == field.metadata["changes_code"], field.name
