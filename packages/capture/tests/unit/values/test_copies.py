"""copy.deepcopy of tensors, parameters and modules inside of one graph."""

import copy

import pytest
import torch
from torch import nn
from tracework_capture import explain, optimize


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.settings = {"sizes": [1, 2], "names": {"a"}}
        self.register_forward_hook(lambda module, args, result: result * 2)

    def forward(self, x):
        return self.norm(self.second(self.first(x))) * self.settings["sizes"][1]


def used_and_dropped(module, x):
    copied = copy.deepcopy(module)
    copied.settings["sizes"][1] = 5
    with torch.no_grad():
        copied.first.weight.mul_(2)
    return copied(x).detach(), module(x)


def kept(module, x):
    copied = copy.deepcopy(module)
    return copied, copied.second.weight is copied.first.weight, copied.first.weight is module.first.weight, module(x)


@pytest.mark.parametrize("function", [used_and_dropped, kept])
def test_modules(function):
    module, x = Tied(), torch.randn(4, 3)
    plain = copy.deepcopy(module)
    expected, found = function(plain, x), explain(function)(module, x)
    assert len(found.graphs) == 1 and not found.breaks
    if function is kept:
        mine, theirs = found.result[0], expected[0]
        assert type(mine) is Tied and mine.settings == theirs.settings and mine.settings is not module.settings
        assert list(mine.state_dict()) == list(theirs.state_dict())
        torch.testing.assert_close(dict(mine.state_dict()), dict(theirs.state_dict()))
        torch.testing.assert_close(mine.eval()(x), theirs.eval()(x))
        assert all(type(p) is nn.Parameter and p.requires_grad and p.is_leaf for p in mine.parameters())
    torch.testing.assert_close(found.result[1:], expected[1:])
    torch.testing.assert_close(dict(module.state_dict()), dict(plain.state_dict()))


def test_tensors():
    def copied(x, p, both):
        y, q, z = copy.deepcopy((x, p, both))
        y.add_(1)
        return y, q, z[0] is z[1], q * 2

    x, p = torch.randn(3, 4).t(), nn.Parameter(torch.randn(3), requires_grad=False)
    found = explain(copied)(x, p, [x, x])
    expected = copied(x, p, [x, x])
    assert len(found.graphs) == 1 and not found.breaks
    torch.testing.assert_close(found.result, expected)
    assert found.result[0].stride() == expected[0].stride() and type(found.result[1]) is nn.Parameter


def test_what_has_a_history_is_refused_as_in_plain_python():
    def copied(x):
        return copy.deepcopy(x * 2)

    x = torch.randn(3, requires_grad=True)
    for call in (copied, explain(copied)):
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            call(x)


def test_tensors_that_share_memory_are_left_to_plain_python():
    def copied(x, y):
        a, b = copy.deepcopy([x, y])
        a.add_(1)
        return b

    x = torch.zeros(4)
    torch.testing.assert_close(explain(copied)(x, x[1:]).result, copied(torch.zeros(4), x[1:]) * 0 + 1)


def test_the_states_of_modules_are_not_taken_for_one_another():
    """A state that `__getstate__` makes dies when it is copied; the next one may get its address."""

    def copied(module, x, n):
        return copy.deepcopy(module), x * n

    module = nn.ModuleList([nn.PReLU() if number % 2 else nn.Dropout() for number in range(6)])
    call = optimize(lambda graph, inputs: graph.forward, dynamic=False)(copied)
    for n in range(2, 6):
        for made, part in zip(call(module, torch.ones(2), n)[0], module):
            assert vars(made).keys() == vars(part).keys() and made._parameters.keys() == part._parameters.keys()


def fresh():
    return torch.ones(2, 3)


def resized():
    return torch.ones(2, 3).resize_(1, 2)


def emptied():
    return torch.ones(2, 3).resize_(0)


def start_of_more():
    return torch.empty(0).set_(torch.ones(20).untyped_storage(), 0, (2, 3), (3, 1))


@pytest.mark.parametrize(
    "makes", [(fresh,), (resized,), (emptied,), (start_of_more,), (fresh, start_of_more), (start_of_more, fresh)]
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_copy_has_all_of_the_memory_that_the_tensor_has(makes, inside):
    def f(x):
        y = x.clone().resize_(1) if inside and x.numel() else x
        return copy.deepcopy(y), y * 2

    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    for make in makes:
        expected, found = f(make())[0], compiled(make())[0]
        assert torch.equal(found, expected) and found.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
