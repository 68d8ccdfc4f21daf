"""A file's members are those that were written, under the key that it was signed with."""

import io
import zipfile

import pytest
from tracework_runtime import ProgramFileError
from tracework_runtime.program.archive import SEAL, Archive, write

MEMBERS = {"a": b"first" * 50, "folder/b": b""}


def written(key=None):
    file = io.BytesIO()
    write(file, {"name": "f"}, MEMBERS, key)
    return file


@pytest.mark.parametrize("key", [None, b"ours"])
def test_what_is_written_is_read(key):
    archive = Archive(written(key), key)
    assert archive.manifest["name"] == "f"
    assert {name: archive.member(name) for name in MEMBERS} == MEMBERS


def test_equal_programs_are_equal_files():
    assert written().getvalue() == written().getvalue()


def test_a_member_that_was_exchanged_is_refused():
    given, changed = zipfile.ZipFile(written()), io.BytesIO()
    with zipfile.ZipFile(changed, "w") as out:
        for name in given.namelist():
            out.writestr(name, b"other" * 50 if name == "a" else given.read(name))
    archive = Archive(changed)
    assert archive.member("folder/b") == b""
    with pytest.raises(ProgramFileError, match="member a does not have the hash"):
        archive.member("a")


def test_a_damaged_seal_is_named():
    data = bytearray(written().getvalue())
    place = zipfile.ZipFile(io.BytesIO(data)).getinfo(SEAL).header_offset
    data[place + 30 + len(SEAL)] ^= 255  # its first byte
    with pytest.raises(ProgramFileError, match=f"its member {SEAL} is damaged"):
        Archive(io.BytesIO(data))


def test_a_file_without_a_signature_is_refused_where_a_key_is_given():
    assert SEAL in zipfile.ZipFile(written()).namelist()
    with pytest.raises(ProgramFileError, match="not signed"):
        Archive(written(), b"ours")
    with pytest.raises(ProgramFileError, match="another key"):
        Archive(written(b"theirs"), b"ours")


def test_a_file_with_a_name_appears_complete_or_not_at_all(tmp_path):
    class Broken(bytes):
        def __len__(self):
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write(tmp_path / "m.tw", {}, {"a": Broken(b"x")})
    assert not list(tmp_path.iterdir())
