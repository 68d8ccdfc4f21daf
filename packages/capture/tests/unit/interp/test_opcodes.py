"""The OPCODES table is complete for every supported CPython: the names of each are committed, and are those of the one that runs."""

import dis
import sys
from pathlib import Path

import pytest
from tracework_capture.bytecode.facts import SUPPORTED_VERSIONS
from tracework_capture.bytecode.intrinsics import intrinsic_names
from tracework_capture.interp.handlers.intrinsics import INTRINSICS
from tracework_capture.interp.opcodes import OPCODES

FOLDER = Path(__file__).with_name("opcodes")


def names(version):
    """Opcode names of a CPython version."""
    return set((FOLDER / "{}.{}.txt".format(*version)).read_text().split())


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS, ids="{0[0]}.{0[1]}".format)
def test_every_opcode_has_a_handler_or_a_reason(version):
    missing = names(version) - OPCODES.keys()
    assert missing == set()


def test_no_row_is_for_an_opcode_that_does_not_exist():
    unknown = OPCODES.keys() - set().union(*map(names, SUPPORTED_VERSIONS))
    assert unknown == set()


def test_a_row_is_a_handler_or_a_text():
    assert all(callable(row) or (isinstance(row, str) and len(row) > 10) for row in OPCODES.values())


def test_committed_names_are_those_of_the_interpreter():
    assert names(sys.version_info[:2]) == set(dis.opmap)


@pytest.mark.parametrize("operands", [1, 2])
def test_every_intrinsic_has_a_handler_or_a_reason(operands):
    names = intrinsic_names(operands)
    assert names or sys.version_info < (3, 12)
    rows = [INTRINSICS[operands, name] for name in names]
    assert all(callable(row) or (isinstance(row, str) and len(row) > 10) for row in rows)
