"""Every prim has a lowering, or a reason of its own why it has none."""

import collections
import dataclasses

import pytest
import torch
from tracework_inductor import InductorOptions, lower
from tracework_inductor.lowering import LOWERINGS, NOT_LOWERED
from tracework_inductor.lowering.fallback import LIBRARIES, reason
from tracework_primops import OPS, TensorSpec, prims
from triton_programs import graph_of

from prim_programs import overload  # isort: skip

ALIKE = 20
"""Prims of one reason at most."""


def test_each_prim_is_in_one_of_both():
    """Passes add prims of their own, which have lowerings."""
    missing = OPS.keys() - LOWERINGS.keys() - NOT_LOWERED.keys()
    assert not missing, "give each a lowering, a scalar function of its name, or a reason in lowering/not_lowered.py"
    assert not NOT_LOWERED.keys() - (OPS.keys() - LOWERINGS.keys())


def test_reasons_say_something():
    """Long enough to be one, of one line, and shared only by prims of one family."""
    sharing = collections.defaultdict(set)
    for name, why in NOT_LOWERED.items():
        sharing[why].add(name)
        assert 30 <= len(why) <= 160 and "\n" not in why and not why.endswith(".")
        assert "no lowering" not in why
    for names in sharing.values():
        assert len(names) <= ALIKE and len({OPS[name].family for name in names}) == 1, names
    assert len({*NOT_LOWERED.values(), *LIBRARIES.values()}) == len(sharing) + len(set(LIBRARIES.values()))


CALLS = {
    "a prim": (lambda x: prims.digamma(x), "under 0.2"),
    "a random prim": (lambda x: prims.bernoulli_p(x, 0.5), "generator"),
    "a Fourier transform": (
        lambda x: overload(
            torch.ops.aten._fft_r2c.default, (x, [1], 0, False), TensorSpec(torch.complex64, x.device, (4, 3), (3, 1))
        ),
        "Fourier",
    ),
    "a factorisation": (lambda x: overload(torch.ops.aten.linalg_inv_ex.default, (x, False), x.spec, x.spec), "LAPACK"),
    "what has no prim": (lambda x: overload(torch.ops.aten.renorm.default, (x, 2, 0, 1.0), x.spec), "no decomposition"),
}


@pytest.mark.parametrize("name", CALLS)
def test_reasons_are_told(name):
    program, words = CALLS[name]
    ((_, why),) = lower(graph_of(program, torch.randn(4, 4)), InductorOptions()).fallbacks
    assert words in why


def test_operators_of_programs():
    """A prim that somebody added has no row here."""
    added = dataclasses.replace(OPS["digamma"], name="added_by_a_test")
    assert "the program" in reason("added_by_a_test", added, (), None, InductorOptions())
