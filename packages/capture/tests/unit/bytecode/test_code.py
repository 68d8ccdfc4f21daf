"""Decoding and continuations over code of the standard library."""

import argparse
import dis
import inspect
import json.encoder
import textwrap
import types

import pytest
from tracework_capture.bytecode.code import code_info, exception_table
from tracework_capture.bytecode.liveness import live_locals
from tracework_capture.bytecode.resume import ResumePoint, resume_code
from tracework_capture.interp.handlers import OPCODES


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


def test_exception_tables_agree_with_dis():
    for code in CODES:
        theirs = [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]
        assert [tuple(row) for row in exception_table(code)] == theirs


def test_every_opcode_of_the_standard_library_is_listed():
    assert not {i.opname for code in CODES for i in code_info(code).instructions} - set(OPCODES)


@pytest.mark.parametrize("raising", [False, True])
def test_continuations_keep_code_and_exception_table(raising):
    for code in CODES[:150]:
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE) or not code.co_flags & inspect.CO_OPTIMIZED:
            continue
        instructions = code_info(code).instructions
        index = len(instructions) // 2
        cells = tuple(dict.fromkeys(code.co_cellvars + code.co_freevars))
        names = tuple(n for n in sorted(live_locals(code_info(code), index)) if n not in cells)
        made = resume_code(code, ResumePoint(index, "vnv", names, cells, raising))
        assert made.co_freevars == cells
        old, new = exception_table(code), exception_table(made)
        assert [row[3:] for row in old] == [row[3:] for row in new]
        moved = {code_info(made).instructions[code_info(made).by_offset[row[2]]].opname for row in new}
        assert moved <= {
            "PUSH_EXC_INFO",
            "COPY",
            "RERAISE",
            "SWAP",
            "POP_TOP",
            "WITH_EXCEPT_START",
            "CLEANUP_THROW",
            "CALL_INTRINSIC_1",
            "STORE_FAST",
            "BUILD_LIST",
            "JUMP_FORWARD",
            "LOAD_CONST",
            "NOP",
        }, moved


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
