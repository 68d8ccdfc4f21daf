"""A KernelPlan as text that reads back. KernelPlan.text() is shorter, and for people alone."""

from __future__ import annotations

import dataclasses

from tracework_primops import ParseError
from tracework_primops.literals import parse_literal, print_literal, read_symbols, symbol_lines, symbols_in

from ..autotune.record import Candidate
from ..ir.body import Axis, IndexCheck, Instruction, LoopBody, Ref
from ..ir.buffer import Buffer, BufferLayout, BufferView, CoreNode, ExternNode, LoopNode
from .plan import (
    CoreKernel,
    ExternKernel,
    KernelBatch,
    KernelPlan,
    LoopKernel,
    MemoryPlan,
    MemoryStep,
    Output,
    Pass,
    Program,
    Refusal,
    Scratch,
    Workspace,
)

HEADER = "kernel plan"
WITH_TABLE = f"{HEADER} with symbols"
OF_PLANS = (KernelPlan, LoopKernel, CoreKernel, KernelBatch, ExternKernel, Pass, Scratch, Refusal, Output, Program)
OF_MEMORY = (MemoryPlan, MemoryStep, Workspace)
OF_LOOPS = (
    LoopBody,
    Instruction,
    Ref,
    Axis,
    IndexCheck,
    Buffer,
    BufferLayout,
    BufferView,
    LoopNode,
    ExternNode,
    CoreNode,
    Candidate,
)


def print_plan(plan: KernelPlan) -> str:
    """The text of a plan. Raises ParseError where a core was told what is no plain data."""
    table = plan.program.symbols
    plain = dataclasses.replace(plan, program=dataclasses.replace(plan.program, symbols=None))
    lines = symbol_lines(symbols_in(plain), table)
    return "\n".join([HEADER if table is None else WITH_TABLE, *lines, print_literal(plain)]) + "\n"


def parse_plan(text: str) -> KernelPlan:
    """The inverse of print_plan. Raises ParseError."""
    header, _, rest = text.partition("\n")
    if header not in (HEADER, WITH_TABLE):
        raise ParseError(f"not a plan: its text begins with `{HEADER}`")
    begin = rest.index("KernelPlan(")
    names, table = read_symbols(rest[:begin].splitlines(), header == WITH_TABLE)
    plan: KernelPlan = parse_literal(rest[begin:], (*OF_PLANS, *OF_MEMORY, *OF_LOOPS), names)
    return dataclasses.replace(plan, program=dataclasses.replace(plan.program, symbols=table))
