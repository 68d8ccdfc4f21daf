"""Decoding and continuations over code of the standard library."""

import argparse
import dis
import inspect
import json.encoder
import sys
import textwrap
import types

import pytest
from tracework_capture.bytecode import resume
from tracework_capture.bytecode.code import CodeInfo, code_info
from tracework_capture.bytecode.emit import CodeWriter
from tracework_capture.bytecode.liveness import live_locals, reachable
from tracework_capture.bytecode.resume import ResumePoint, resume_code
from tracework_capture.exception_table import exception_table
from tracework_capture.interp.opcodes import OPCODES


def codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


CODES = [
    c
    for module in (argparse, json.encoder, textwrap, inspect)
    for c in codes(compile(inspect.getsource(module), module.__file__, "exec"))
]


def test_instructions_agree_with_dis():
    for code in CODES:
        ours = code_info(code).instructions
        theirs = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
        assert [i.opname for i in ours] == [i.opname for i in theirs]
        for mine, other in zip(ours, theirs):
            assert mine.offset == other.offset
            if mine.target >= 0:
                assert code_info(code).by_offset[other.argval] == mine.target


def loop_after_blocks(xs):
    try:
        first = xs[0]
    except IndexError:
        first = 1
    with xs:
        first += 1
    for x in xs:
        with x:
            first += x
        try:
            first -= x
        except TypeError:
            continue
        x.look()
    with xs:
        first += 2
    return first


def test_handlers_that_jump_back_are_no_loops():
    """They lie behind the code that goes on after them (3.12+)."""
    info = code_info(loop_after_blocks.__code__)
    first = loop_after_blocks.__code__.co_firstlineno
    inside = {info.line(i) - first for i in info.instructions if i.in_loop}
    assert inside - {0} == set(range(7, 15))


def test_exception_tables_agree_with_dis():
    for code in CODES:
        theirs = [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]
        assert [tuple(row) for row in exception_table(code)] == theirs


def test_every_opcode_of_the_standard_library_is_listed():
    assert not {i.opname for code in CODES for i in code_info(code).instructions} - set(OPCODES)


@pytest.mark.parametrize("raising", [False, True])
def test_continuations_keep_what_can_be_reached(raising):
    for code in CODES[:150]:
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE) or not code.co_flags & inspect.CO_OPTIMIZED:
            continue
        info = code_info(code)
        index = len(info.instructions) // 2
        cells = tuple(dict.fromkeys(code.co_cellvars + code.co_freevars))
        names = tuple(n for n in sorted(live_locals(info, index)) if n not in cells)
        made = resume_code(code, ResumePoint(index, "vnv", names, cells, raising))
        assert made.co_freevars == cells
        indices, moved = resume._RESUME_CODES[id(made)].indices, code_info(made)
        landing = next(i for i in moved.instructions if i.opname == "JUMP_FORWARD")
        assert indices[landing.target] == index
        assert list(dict.fromkeys(indices[landing.index + 1 :])) == sorted(reachable(info, index))
        if raising:
            in_block = info.instructions[index].handler is not None
            assert moved.instructions[landing.index - 1].opname == ("RERAISE" if in_block else "RAISE_VARARGS")
            assert same_handler(moved.instructions[landing.index - 1], info.instructions[index], indices)
        for mine in moved.instructions[landing.index + 1 :]:
            theirs = info.instructions[indices[mine.index]]
            half = mine.index - indices.index(theirs.index, landing.index + 1)  # an instruction on two locals became two
            halves = list(zip(PAIRS[theirs.opname], theirs.value)) if theirs.opname in PAIRS else [(theirs.opname, theirs.value)]
            assert mine.opname == halves[half][0] and mine.caches == theirs.caches
            assert mine.target == theirs.target == -1 or indices[mine.target] == theirs.target
            assert mine.target != -1 or mine.value == halves[half][1]
            assert moved.position(mine) == info.position(theirs)
            assert same_handler(mine, theirs, indices)


PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}


def same_handler(mine, theirs, indices):
    """Whether two instructions have the same exception handler; `indices` says where the first one's instructions come from."""
    if mine.handler is None or theirs.handler is None:
        return mine.handler is theirs.handler
    return (indices[mine.handler.target], *mine.handler[1:]) == tuple(theirs.handler)


def test_long_jumps_and_many_names():
    """Arguments of more than one byte, in jumps over each other and in numbers of locals that the continuation changes."""
    body = (
        "".join(f"        x{i} = n + {i}\n" for i in range(400)) + f"        total += {' + '.join(f'x{i}' for i in range(400))}\n"
    )
    scope = {}
    exec(f"def f(n, total):\n    while n > 0:\n{body}        n -= 1\n    return total\n", scope)
    f = scope["f"]
    stores = [i.index for i in code_info(f.__code__).instructions if i.opname == "STORE_FAST"]
    made = resume_code(f.__code__, ResumePoint(stores[0], "v", ("n", "total"), ()))
    assert types.FunctionType(made, {})(3, 0, 3) == f(3, 0)
    assert types.FunctionType(made, {})(3, 0, 4) == f(3, 0) + 1


def test_continuation_runs_from_the_middle():
    def f(a, b):
        try:
            c = a + b
            return c * 10
        except ValueError as error:
            return str(error)

    index = next(i.index for i in code_info(f.__code__).instructions if i.opname == "STORE_FAST")
    go_on = types.FunctionType(resume_code(f.__code__, ResumePoint(index, "v", ("a", "b"), ())), {})
    assert go_on(1, 2, 5) == 50
    fail = types.FunctionType(resume_code(f.__code__, ResumePoint(index, "v", ("a", "b"), (), True)), f.__globals__)
    assert fail(1, 2, 5, ValueError("seen")) == "seen"


def test_long_texts_are_held_and_not_written_into_the_generated_source():
    writer = CodeWriter((lambda: None).__code__, globals(), {})
    text = "x" * 100_000
    assert writer.const(text) == writer.literal(text)
    assert writer.literal("name") == "'name'"


def decoded(code):
    return [(i.opname, i.arg, i.offset, i.target, i.handler) for i in CodeInfo(code).instructions]


def test_specialised_and_instrumented_code_is_decoded_as_it_was_written():
    """Up to the instructions that stand for others while somebody watches them (3.12+)."""
    function = types.FunctionType(loop_after_blocks.__code__.replace(co_name="watched"), {})
    written = decoded(function.__code__)
    for _ in range(100):  # specialised
        with pytest.raises((TypeError, AttributeError)):
            function([1, 2])
    assert decoded(function.__code__) == written
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        events = monitoring.events.LINE | monitoring.events.INSTRUCTION | monitoring.events.CALL | monitoring.events.JUMP
        monitoring.use_tool_id(3, "test")
        try:
            monitoring.set_local_events(3, function.__code__, events)
            with pytest.raises((TypeError, AttributeError)):
                function([1, 2])
            assert decoded(function.__code__) == written
        finally:
            monitoring.set_local_events(3, function.__code__, 0)
            monitoring.free_tool_id(3)
    assert decoded(function.__code__) == written
