"""A recipe, through JSON, makes what aot_compile gave."""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from stored_callables import Process, Views, Writes
from tracework_aotautograd import aot_compile
from tracework_aotautograd.recipes import RECIPE, REFUSED, NotData, Parts, from_data, from_recipe, to_data
from tracework_aotautograd.signature import InputInfo, InputKind, OutputInfo, OutputKind, Signature, SizeSlot, ViewStep


@pytest.mark.parametrize("records", [False, True])
def test_what_is_made_again_gives_the_same(records):
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    with torch.set_grad_enabled(records):
        process = Process(Views(), x, y)
        again = process.again()
        found, expected = again(x, y), Views()(x, y)
    assert found[3] == 3 and found[4] is y and found[0]._base is x
    for one, other in zip(found, expected):
        assert one is other or torch.equal(torch.as_tensor(one), torch.as_tensor(other))
    assert from_recipe(getattr(process.call, RECIPE), Parts(lambda recipe: None, process.backward, None, print)) is None


def test_what_is_not_made_of_data():
    weight = torch.rand(3, requires_grad=True)
    weight.register_hook(lambda gradient: gradient)
    call = aot_compile(torch.fx.symbolic_trace(Writes()), (torch.rand(3), torch.rand(3)), forward_compiler=lambda gm, spec: gm)
    assert "not kept" in getattr(call, REFUSED) and not hasattr(call, RECIPE)
    assert "has hooks" in getattr(Process(Views(), torch.rand(3, 3), weight).call, REFUSED)


def test_signatures_are_data():
    step = ViewStep(torch.ops.aten.view.default, ((2, SizeSlot(1)),), (("dtype", torch.int32),))
    info = OutputInfo(OutputKind.BASE_VIEW, 0, (step,), constant=[1.5, torch.device("cpu")])
    signature = Signature((InputInfo("x", InputKind.TENSOR),), (info,), 2, places=((0, 1, 2),))
    assert from_data(json.loads(json.dumps(to_data(signature)))) == signature
    for refused in (ViewStep(torch.add, ()), torch.ones(2, 3).t(), torch.ones(1 << 17), torch.ones(2, requires_grad=True)):
        with pytest.raises(NotData):
            to_data(refused)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_constants_are_data(shape, dtype):
    tensor = torch.arange(6)[: math.prod(shape)].reshape(shape).to(dtype)
    again = from_data(json.loads(json.dumps(to_data(tensor))))
    assert torch.equal(again, tensor) and (again.dtype, again.stride()) == (dtype, tensor.stride())
