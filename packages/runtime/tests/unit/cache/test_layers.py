import os
import socketserver
import sys
import threading

import pytest
from tracework_runtime import RuntimeOptions, Store, counters, reset_counters
from tracework_runtime.cache.memory import _store, open_store

NAME = ("cpp", "key1", ".so")
KEY, OTHER = b"k" * 32, b"o" * 32


def options(tmp_path, **given):
    (tmp_path / "key").write_bytes(KEY)
    return RuntimeOptions(cache_dir=str(tmp_path / "own"), **given)


def put(folder, content=b"below", secret_key=KEY):
    store = Store(folder, secret_key=secret_key)
    return store, store.put("cpp", "key1", content, ".so")


def test_folders_below_are_asked_in_order_and_not_written(tmp_path):
    for name in ("one", "two"):
        put(tmp_path / name, name.encode(), OTHER)
    Store(tmp_path / "two", secret_key=OTHER).put("cpp", "key2", b"of two", ".so")
    store = open_store(options(tmp_path, cache_layers=(str(tmp_path / "one"), str(tmp_path / "two"))))
    reset_counters()
    assert (store.get(*NAME), store.get("cpp", "key2", ".so"), store.get("cpp", "key3", ".so")) == (b"one", b"of two", None)
    assert counters()["cache.cpp.below"] == 2 and store.used == {NAME, ("cpp", "key2", ".so")}
    assert store.file(*NAME).is_relative_to(tmp_path / "one")
    store.put("cpp", "key1", b"own", ".so")
    assert store.get(*NAME) == b"own" and store.file(*NAME).is_relative_to(tmp_path / "own")
    store.drop(*NAME)
    assert store.get(*NAME) is None and Store(tmp_path / "one", secret_key=OTHER).get(*NAME) == b"one"


def test_a_named_key_is_asked_of_folders_below(tmp_path):
    for name, secret_key in (("ours", KEY), ("theirs", OTHER)):
        put(tmp_path / name, name.encode(), secret_key)
    layers = (str(tmp_path / "theirs"), str(tmp_path / "ours"))
    assert open_store(options(tmp_path, cache_layers=layers, cache_key=str(tmp_path / "key"))).get(*NAME) == b"ours"


def damaged(path):
    path.write_bytes(path.read_bytes()[:-1])


UNSAFE = {
    "an entry that others can write": lambda path: path.chmod(0o666),
    "a folder of entries that others can write": lambda path: path.parent.chmod(0o777),
    "damage": damaged,
    "nothing": os.unlink,
}


@pytest.mark.parametrize("change", UNSAFE.values(), ids=UNSAFE)
def test_what_is_unsafe_below_is_not_used(change, tmp_path):
    _, path = put(tmp_path / "below")
    change(path)
    assert open_store(options(tmp_path, cache_layers=(str(tmp_path / "below"),))).get(*NAME) is None


@pytest.mark.parametrize("change", [c for c in UNSAFE.values() if c is not os.unlink], ids=[n for n in UNSAFE if n != "nothing"])
def test_the_file_is_that_of_the_content(change, tmp_path):
    change(put(tmp_path / "first")[1])
    put(tmp_path / "own", b"foreign", OTHER)
    put(tmp_path / "second")
    layers = (str(tmp_path / "first"), str(tmp_path / "second"))
    with pytest.warns(UserWarning, match="sealed with another key"):
        store = open_store(options(tmp_path, cache_layers=layers, cache_key=str(tmp_path / "key")))
        assert store.get(*NAME) == b"below" and store.file(*NAME).is_relative_to(tmp_path / "second")
    store.put("cpp", "key1", b"own", ".so")
    assert store.get(*NAME) == b"own" and store.file(*NAME).is_relative_to(tmp_path / "own")


def test_the_file_is_none_where_a_shared_entry_cannot_be_copied(tmp_path, monkeypatch):
    given = {"cache_shared": str(tmp_path / "shared"), "cache_key": str(tmp_path / "key")}
    open_store(options(tmp_path, **given)).put("cpp", "key1", b"content", ".so")
    put(tmp_path / "other", b"foreign", OTHER)
    store = open_store(options(tmp_path, **given).replace(cache_dir=str(tmp_path / "other")))
    monkeypatch.setattr(store.own, "put", lambda *given: None)
    assert store.get(*NAME) == b"content" and store.file(*NAME) is None and NAME in store.used


def test_a_layer_that_is_not_there_is_left_out(tmp_path):
    with pytest.warns(UserWarning, match="nowhere.* it is left out"):
        store = open_store(options(tmp_path, cache_layers=(str(tmp_path / "nowhere"),)))
    store.put(*NAME[:2], b"own", NAME[2])
    assert store.get(*NAME) == b"own" and not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_layer_of_another_user_is_left_out(tmp_path):
    put(tmp_path / "theirs")
    os.chown(tmp_path / "theirs", 1234, 1234)
    with pytest.warns(UserWarning, match="belongs to user 1234.* it is left out\n.*chown 0"):
        assert open_store(options(tmp_path, cache_layers=(str(tmp_path / "theirs"),))).get(*NAME) is None


class Redis(socketserver.StreamRequestHandler):
    """As much of a Redis server as a client asks for that gets and sets values."""

    values = {}

    def handle(self):
        while count := self.rfile.readline():
            words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(count[1:]))]
            match words[0].upper(), *words[1:]:
                case b"HELLO", *_:
                    reply = b"%1\r\n+proto\r\n:3"
                case b"SET", name, value:
                    self.values[name] = value
                    reply = b"+OK"
                case b"GET", name:
                    found = self.values.get(name)
                    reply = b"_" if found is None else b"$%d\r\n%s" % (len(found), found)
                case _:
                    reply = b"+OK"
            self.wfile.write(reply + b"\r\n")


@pytest.fixture
def redis():
    """The address of a server."""
    pytest.importorskip("redis", reason="the extra of that name is not installed")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Redis) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()
        thread.join(10)
        Redis.values.clear()


@pytest.mark.parametrize("where", ["folder", "memory://cache", "file://{}", "redis"])
def test_a_place_is_shared_by_machines_that_have_its_key(where, tmp_path, request):
    if "://" in where:
        pytest.importorskip("fsspec")
    places = {"folder": lambda: str(tmp_path / "shared"), "redis": lambda: request.getfixturevalue("redis")}
    place = places.get(where, lambda: where.format(tmp_path / "shared"))()
    given = {"cache_shared": place, "cache_key": str(tmp_path / "key")}
    open_store(options(tmp_path, **given)).put("cpp", "key1", b"content", ".so")
    _store.cache_clear()
    other = open_store(options(tmp_path, **given).replace(cache_dir=str(tmp_path / "other")))
    assert other.get("cpp", "key2", ".so") is None
    assert other.get(*NAME) == b"content"
    assert other.file(*NAME).is_relative_to(tmp_path / "other")  # copied, so that it can be loaded
    (tmp_path / "key2").write_bytes(OTHER)
    third = options(tmp_path, **given).replace(cache_dir=str(tmp_path / "third"), cache_key=str(tmp_path / "key2"))
    with pytest.warns(UserWarning, match="sealed with another key"):
        assert open_store(third).get(*NAME) is None


def test_a_shared_place_takes_a_key_and_a_file_system(tmp_path):
    with pytest.warns(UserWarning, match="needs a key"):
        store = open_store(options(tmp_path, cache_shared=str(tmp_path / "shared")))
    store.put("cpp", "key1", b"own", ".so")
    assert not (tmp_path / "shared").exists()
    with pytest.warns(UserWarning, match="nowhere://x"):
        open_store(options(tmp_path, cache_shared="nowhere://x", cache_key=str(tmp_path / "key")))


def test_a_redis_server_that_is_not_there(tmp_path):
    pytest.importorskip("redis", reason="the extra of that name is not installed")
    given = {"cache_shared": "redis://127.0.0.1:1/0", "cache_key": str(tmp_path / "key")}
    with pytest.warns(UserWarning, match="goes on without"):
        open_store(options(tmp_path, **given)).put("cpp", "key1", b"own", ".so")
    with pytest.warns(UserWarning, match="no address of a Redis server"):
        open_store(options(tmp_path, **given).replace(cache_shared="redis://127.0.0.1:port"))


def test_what_an_address_needs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    given = {"cache_shared": "redis://127.0.0.1:1/0", "cache_key": str(tmp_path / "key")}
    with pytest.warns(UserWarning, match="needs redis"):
        open_store(options(tmp_path, **given)).put("cpp", "key1", b"own", ".so")


def test_a_place_that_fails_is_asked_once(tmp_path):
    (tmp_path / "file").write_text("")
    store = open_store(options(tmp_path, cache_shared=str(tmp_path / "file"), cache_key=str(tmp_path / "key")))
    reset_counters()
    with pytest.warns(UserWarning, match="goes on without"):
        store.put("cpp", "key1", b"own", ".so")
    assert store.get(*NAME) == b"own" and store.get("cpp", "key2", ".so") is None
    assert counters()["cache.shared.failed"] == 1
