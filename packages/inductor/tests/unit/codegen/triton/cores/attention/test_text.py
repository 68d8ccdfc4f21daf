"""Texts of which kernels of attention are written."""

import pytest
from tracework_inductor.codegen.triton.cores.attention import text


@pytest.mark.parametrize(("width", "lanes", "mask"), [(8, 16, "(d < 8)"), (64, 64, None), (80, 128, "(d < 80)")])
def test_tiles_have_a_power_of_two_of_lanes(width, lanes, mask):
    assert (text.tile(width), text.lane_mask("d", width)) == (lanes, mask)
    assert text.lanes_mask("d", width) == (mask and f"{mask}[None, :]")


@pytest.mark.parametrize(("masks", "load"), [((None,), "tl.load(p)"), (("a", None, "b"), "tl.load(p, a & b, other=0.0)")])
def test_masks_are_joined(masks, load):
    assert text.loaded("p", *masks) == load
    assert text.also(*masks) == ("" if masks == (None,) else ", a & b")
