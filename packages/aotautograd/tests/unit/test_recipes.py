"""A recipe, through JSON, makes what aot_compile gave."""

import json

import pytest
import torch
from tracework_aotautograd import aot_compile
from tracework_aotautograd.recipes import RECIPE, NotData, from_data, from_recipe, to_data
from tracework_aotautograd.signature import InputInfo, InputKind, OutputInfo, OutputKind, Signature, SizeSlot, ViewStep


class Compiled:
    """What a graph compiler gives, under the name that its recipe has."""

    def __init__(self, gm, name):
        self.gm = gm
        setattr(self, RECIPE, name)

    def __call__(self, inputs):
        return self.gm(*inputs)


class Views(torch.nn.Module):
    def forward(self, x, y):
        z = x + y
        return x.t(), z[0], z, 3, y, z.sum()


class Writes(torch.nn.Module):
    def forward(self, x, y):
        return x.add_(y)


def compiled(module, *args):
    made = {}

    def compiler(gm, spec):
        return made.setdefault("graph", Compiled(gm, "graph"))

    return aot_compile(torch.fx.symbolic_trace(module), args, forward_compiler=compiler), made


@pytest.mark.parametrize("records", [False, True])
def test_what_is_made_again_gives_the_same(records):
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    with torch.set_grad_enabled(records):
        call, made = compiled(Views(), x, y)
        again = from_recipe(json.loads(json.dumps(getattr(call, RECIPE))), made.get)
        found, expected = again(x, y), Views()(x, y)
    assert found[3] == 3 and found[4] is y and found[0]._base is x
    for one, other in zip(found, expected):
        assert one is other or torch.equal(torch.as_tensor(one), torch.as_tensor(other))
    assert from_recipe(getattr(call, RECIPE), lambda name: None) is None


def test_what_needs_the_captured_graph_has_no_recipe():
    x = torch.rand(3)
    assert not hasattr(compiled(Writes(), x.clone(), x)[0], RECIPE)
    weight = torch.rand(3, requires_grad=True)
    assert not hasattr(compiled(Views(), torch.rand(3, 3), weight)[0], RECIPE)


def test_signatures_are_data():
    step = ViewStep(torch.ops.aten.view.default, ((2, SizeSlot(1)),), (("dtype", torch.int32),))
    info = OutputInfo(OutputKind.BASE_VIEW, 0, (step,), constant=[1.5, torch.device("cpu")])
    signature = Signature((InputInfo("x", InputKind.TENSOR),), (info,), 2, places=((0, 1, 2),))
    assert from_data(json.loads(json.dumps(to_data(signature)))) == signature
    with pytest.raises(NotData):
        to_data(ViewStep(torch.add, ()))
