"""The file: a zip of a manifest, members with a hash each, and a seal, which has the manifest's hash and, where a key was given, the hash
under that key.

Hashes show damage, not intent: a file is a program, to be trusted like one. A key shows who wrote it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from tracework_runtime.errors import ProgramFileError
from tracework_runtime.program.weights import Content

__all__ = ["KIND", "SCHEMA", "Archive", "digest_of", "write"]

KIND = "tracework program"
SCHEMA = 1
MANIFEST, SEAL = "manifest.json", "seal.json"
_AGAIN = "copy it again, or make it again"

File = str | os.PathLike[str] | IO[bytes]


def digest_of(data: bytes | Content) -> str:
    """The hash of a member."""
    digest = hashlib.sha256()
    for part in (data,) if isinstance(data, bytes) else data:
        digest.update(part)
    return digest.hexdigest()


def write(file: File, manifest: Mapping[str, Any], members: Mapping[str, bytes | Content], key: bytes | None = None) -> None:
    """Writes a file; one with a name appears complete or not at all. Weights are not compressed."""
    if isinstance(file, (str, os.PathLike)):
        target = Path(file)
        handle, made = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
        try:
            with os.fdopen(handle, "wb") as opened:
                write(opened, manifest, members, key)
            os.chmod(made, 0o666 & ~_umask())
            os.replace(made, target)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
        return
    hashes = {name: {"sha256": digest_of(data), "size": len(data)} for name, data in members.items()}
    text = json.dumps({"kind": KIND, "schema": SCHEMA, **manifest, "members": hashes}, sort_keys=True).encode()
    digest = hashlib.sha256(text).digest()
    seal = {"manifest": digest.hex(), "signature": None if key is None else _signature(key, digest)}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in ((MANIFEST, text), (SEAL, json.dumps(seal).encode()), *members.items()):
            how = zipfile.ZIP_DEFLATED if isinstance(data, bytes) else zipfile.ZIP_STORED
            info = zipfile.ZipInfo(name)  # of no date: equal programs are equal files
            info.compress_type, info.file_size = how, len(data)
            with archive.open(info, "w") as member:
                for part in (data,) if isinstance(data, bytes) else data:
                    member.write(part)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_OF_DAMAGE = (zipfile.BadZipFile, OSError, EOFError, KeyError, ValueError, NotImplementedError, RuntimeError, zlib.error)
"""What zipfile raises for a member whose bytes or header are not what was written."""


def _signature(key: bytes, digest: bytes) -> str:
    return hmac.digest(key, digest, "sha256").hex()


class Archive:
    """A file that is open for reading: its manifest is checked, members are when they are read."""

    def __init__(self, file: File, key: bytes | None = None) -> None:
        """Raises ProgramFileError, and OSError for a file that cannot be opened."""
        self._name = str(file) if isinstance(file, (str, os.PathLike)) else "the file"
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self.refused(f"it is no program of tracework, or cut short ({error})", _AGAIN) from error
        names = self._zip.namelist()
        if MANIFEST not in names or SEAL not in names:
            raise self.refused("it is a zip file, but no program of tracework", "give a file that tracework.save() wrote")
        text = self._bytes(MANIFEST)
        self.manifest = self._parsed(text)
        self._check_seal(text, key)
        listed = {MANIFEST, SEAL, *self.manifest["members"]}
        if sorted(names) != sorted(listed):
            others = ", ".join(sorted(listed.symmetric_difference(names))) or "one twice"
            raise self.refused(f"it does not have the members that its manifest lists ({others})", _AGAIN)

    def refused(self, what: str, advice: str) -> ProgramFileError:
        """The error for this file."""
        return ProgramFileError(f"{self._name} cannot be loaded: {what}", advice=advice)

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            manifest = json.loads(text)
            kind, schema = manifest["kind"], manifest["schema"]
        except (ValueError, KeyError, TypeError) as error:
            raise self.refused(f"its manifest is damaged ({error!r})", _AGAIN) from error
        if kind != KIND:
            raise self.refused(f"it is {kind!r}, not {KIND!r}", "give a file that tracework.save() wrote")
        if schema != SCHEMA:
            newer = isinstance(schema, int) and schema > SCHEMA
            advice = "install a newer version of tracework" if newer else "make it again with this version"
            raise self.refused(f"it is written in schema {schema}, and this version reads schema {SCHEMA}", advice)
        return dict(manifest)

    def _check_seal(self, text: bytes, key: bytes | None) -> None:
        digest = hashlib.sha256(text).digest()
        found = self._bytes(SEAL)
        try:
            seal = json.loads(found)
            whole, signature = seal["manifest"] == digest.hex(), seal["signature"]
        except (ValueError, KeyError, TypeError) as error:
            raise self.refused(f"its seal is damaged ({error!r})", _AGAIN) from error
        if not whole:
            raise self.refused("its manifest does not have the hash that it was written with", _AGAIN)
        if key is None:
            return
        if not isinstance(signature, str):
            raise self.refused("it is not signed, and a key was given", "sign it with save(..., key=), or load it without a key")
        if not hmac.compare_digest(signature, _signature(key, digest)):
            raise self.refused(
                "it is signed with another key", "give the key that it was saved with, if you trust where it comes from"
            )

    def _bytes(self, name: str) -> bytes:
        try:
            return self._zip.read(name)
        except _OF_DAMAGE as error:
            raise self.refused(f"its member {name} is damaged ({error})", _AGAIN) from error

    def member(self, name: str) -> bytes:
        """The content of a member. Raises ProgramFileError where it does not have the hash that it was written with."""
        data = self._bytes(name)
        self._check(name, len(data), hashlib.sha256(data))
        return data

    def read_into(self, name: str, parts: Iterable[memoryview]) -> None:
        """Fills memory with a member's content, part by part. Raises ProgramFileError likewise."""
        digest, size = hashlib.sha256(), 0
        try:
            with self._zip.open(name) as opened:
                file: Any = opened  # has readinto
                for part in parts:
                    filled = 0
                    while filled < len(part) and (count := file.readinto(part[filled:])):
                        filled += count
                    digest.update(part[:filled])
                    size += filled
        except _OF_DAMAGE as error:
            raise self.refused(f"its member {name} is damaged ({error})", _AGAIN) from error
        self._check(name, size, digest)

    def _check(self, name: str, size: int, digest: Any) -> None:
        wanted = self.manifest["members"].get(name, {})
        if (wanted.get("size"), wanted.get("sha256")) != (size, digest.hexdigest()):
            raise self.refused(f"its member {name} does not have the hash that it was written with", _AGAIN)

    def close(self) -> None:
        """Closes the file."""
        self._zip.close()
