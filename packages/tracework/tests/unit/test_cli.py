"""`tracework cache`: what is in the disk cache, whether it can be trusted, and its entries as a file."""

import pytest
import tracework_runtime as runtime
from tracework.cli import app
from typer.testing import CliRunner

KEY = b"k" * 32


@pytest.fixture
def stores(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "secret", lambda file: KEY)
    monkeypatch.setenv("COLUMNS", "200")
    one = runtime.Store(tmp_path / "one", secret_key=KEY)
    one.put("artifact", "key1", b"1" * 5, ".twa")
    one.put("cpp", "key2", b"2" * 7, ".so")
    one.put("cut", "key3", b"3")
    return one, runtime.Store(tmp_path / "other", secret_key=KEY)


def run(*words, status=0):
    done = CliRunner().invoke(app, ["cache", *map(str, words)])
    assert done.exit_code == status, done.output
    return done.output


def test_a_list_counts_by_kind(stores):
    rows = [line.split("│")[1:4] for line in run("list", stores[0].folder).splitlines() if line.count("│") > 3]
    assert [[part.strip() for part in row][:2] for row in rows] == [["artifact", "1"], ["cpp", "1"], ["cut", "1"], ["all", "3"]]


def test_entries_are_carried_as_a_file(stores, tmp_path):
    one, other = stores
    assert run("save", tmp_path / "file", one.folder).startswith("3 entries")
    assert run("load", tmp_path / "file", other.folder).startswith("3 entries")
    assert other.get("cpp", "key2", ".so") == b"2" * 7 and other.get("cut", "key3") == b"3"
    assert "3 of 3 entries" in run("verify", other.folder)


def test_what_is_carried_is_signed_where_a_key_is_given(stores, tmp_path):
    one, other = stores
    (tmp_path / "key").write_bytes(b"secret")
    (tmp_path / "wrong").write_bytes(b"another")
    run("save", tmp_path / "plain", one.folder)
    run("save", tmp_path / "signed", one.folder, "--key", tmp_path / "key")
    for file, key, said in (("plain", "key", "are not signed"), ("signed", "wrong", "signed with another key")):
        assert said in run("load", tmp_path / file, other.folder, "--key", tmp_path / key, status=1)
    assert not other.names()
    assert run("load", tmp_path / "signed", other.folder, "--key", tmp_path / "key").startswith("3 entries")
    assert run("load", tmp_path / "signed", other.folder).startswith("3 entries")


def test_what_cannot_be_trusted_is_named_and_left(stores):
    one, _ = stores
    damaged = one.file("cut", "key3")
    damaged.write_bytes(b"nothing")
    runtime.Store(one.folder, secret_key=b"o" * 32).put("cpp", "key4", b"4", ".so")
    told = run("verify", one.folder, status=1)
    assert "cut/ke/key3: cut short" in told and "key4.so: sealed with another key" in told and "2 of 4 entries" in told
    assert damaged.read_bytes() == b"nothing"


REFUSED = {"a file that is none": b"nothing", "no file": None}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_loaded(case, stores, tmp_path):
    if REFUSED[case] is not None:
        (tmp_path / "file").write_bytes(REFUSED[case])
    run("load", tmp_path / "file", stores[1].folder, status=1)
    assert not stores[1].names()
