"""Liveness of locals."""

from tracework_capture.bytecode.code import code_info
from tracework_capture.bytecode.liveness import live_locals


def test_a_dead_code_does_not_lend_its_answer():
    for number in range(50):  # a decoded code may take the address of one that is gone
        space = {}
        exec(f"def f(a{number}): return a{number}", space)
        code = space["f"].__code__
        assert live_locals(code_info(code), 0) == {f"a{number}"}
