"""Index arithmetic that 32 bits do not hold."""

import sys
from pathlib import Path

import torch
from tracework_inductor import InductorOptions, lower
from tracework_inductor.ir.buffer import ExternNode
from tracework_primops import prims

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from triton_programs import graph_of


def calls(program, *inputs):
    """Library calls of the lowered program."""
    return [
        n.target
        for n in lower(graph_of(program, *inputs, device=torch.device("cuda", 0)), InductorOptions()).nodes
        if isinstance(n, ExternNode)
    ]


def test_a_long_roll_is_the_librarys():
    """(place + length - shift) % length passes 2**31 before it is brought back."""
    rolled = lambda x: prims.mul(prims.roll(x, (7,), (0,)), 2.0)
    assert calls(rolled, torch.empty((1 << 30) + 8, dtype=torch.bfloat16, device="meta"))
    assert not calls(rolled, torch.empty(1 << 20, dtype=torch.bfloat16, device="meta"))
