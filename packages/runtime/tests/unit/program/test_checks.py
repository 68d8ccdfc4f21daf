"""What a program calls its arguments."""

import inspect

import pytest
import torch
from tracework_runtime.program.checks import is_autocast_on, names_of, shown_path, signature_of

SIGNATURE = [["x", "POSITIONAL_OR_KEYWORD", []], ["k", "POSITIONAL_OR_KEYWORD", [2]], ["rest", "VAR_POSITIONAL", []]]
PATHS = {
    "x": ["args", 0],
    "k": ["args", 1],
    "rest[0]": ["args", 2],
    "rest[1][0].name": ["args", 3, 0, "name"],
    "z['a b']": ["kwargs", "z", "a b"],
}


@pytest.mark.parametrize("shown", PATHS)
def test_arguments_are_shown_as_a_user_calls_them(shown):
    assert shown_path(PATHS[shown], names_of(signature_of(SIGNATURE))) == shown


def test_a_signature_comes_back():
    def function(x, k=2, *rest): ...

    assert signature_of(SIGNATURE) == inspect.signature(function)


def test_autocast_of_a_device():
    assert not is_autocast_on(["cpu", "cuda"])
    with torch.autocast("cpu"):
        assert is_autocast_on(["cuda", "cpu"]) and not is_autocast_on(["cuda"])
