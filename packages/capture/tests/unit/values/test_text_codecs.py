"""Codecs and error handlers that a program registers run when it encodes, not while it is traced; Python's own do not break the graph."""

import codecs

import pytest
import torch
from tracework_capture.hook.context import optimize

CALLS = []


def compiled_and_plain(fn, *args):
    """What both runs give and leave in CALLS."""
    found = []
    for run in (fn, optimize(lambda gm, inputs: gm.forward)(fn)):
        CALLS.clear()
        found.append([(run(*args), list(CALLS)) for _ in range(2)])
    return found


@pytest.fixture
def own_codec():
    def reverse(text, errors="strict"):
        CALLS.append((text, errors))
        return (text[::-1].encode() if isinstance(text, str) else bytes(text).decode()[::-1]), len(text)

    def search(name):
        return codecs.CodecInfo(reverse, reverse, name=name) if name == "backwards" else None

    def handler(error):
        CALLS.append(error.reason)
        return "?" * len(CALLS), error.end

    codecs.register(search)
    codecs.register_error("counting", handler)
    yield
    codecs.unregister(search)


@pytest.mark.parametrize(
    "made",
    [
        lambda: "abc".encode("backwards"),
        lambda: b"abc".decode(encoding="backwards", errors="x"),
        lambda: str(b"abc", "backwards"),
        lambda: bytes("abc", encoding="backwards"),
        lambda: str.encode("abc", "backwards"),
        lambda: "a\xff".encode("ascii", "counting"),
        lambda: str(b"a\xff", errors="counting"),
    ],
)
def test_the_programs_codecs_run_when_their_turn_comes(own_codec, made):
    def program(x):
        CALLS.append("before")
        text = made()
        return text, float((x + len(text)).sum())

    plain, compiled = compiled_and_plain(program, torch.ones(2))
    assert compiled == plain


def test_a_codec_that_the_frame_itself_brings(own_codec):
    table = {}

    def search(name):
        return table.get(name)

    def program(word):
        def encode(text, errors="strict"):
            return word.encode(), len(text)

        table["of_the_frame"] = codecs.CodecInfo(encode, None, name="of_the_frame")
        found = "abc".encode("of_the_frame")
        del table["of_the_frame"]
        return found

    for word in ("one", "two"):
        codecs.register(search)
        assert optimize(lambda gm, inputs: gm.forward)(program)(word) == word.encode()
        codecs.unregister(search)


def test_pythons_own_codecs_are_part_of_the_graph():
    def program(x):
        texts = ["a\xff".encode(), b"ab".decode("UTF8"), "a\xff".encode("Latin-1", "strict"), str(b"\xff", "ascii", "replace")]
        texts += [bytes("ab", "utf-16"), "\u0141".encode("cp1250", errors="namereplace")]
        return x + len(texts), texts

    x = torch.ones(2)
    assert str(optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)(x)) == str(program(x))
