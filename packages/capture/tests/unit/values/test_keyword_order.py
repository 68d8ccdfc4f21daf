"""Compiled modules that are called with keyword arguments in another order."""

import torch
from tracework_capture import optimize

X = torch.ones(2, 3)


def counted(target):
    graphs = []
    return optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1])(target), graphs


class Scales(torch.nn.Module):
    def forward(self, x, by=1.0, plus=None):
        return x * by + plus


class TakesAny(torch.nn.Module):
    def forward(self, x, **more):
        return x * len(next(iter(more))), list(more)


class Around(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Scales()

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


def test_parameters_by_name_take_one_graph():
    for module in (Scales(), Scales().eval()):
        call, graphs = counted(module)
        for _ in range(2):
            assert torch.equal(call(X, by=X * 2, plus=X), X * 3)
            assert torch.equal(call(X, plus=X, by=X * 3), X * 4)
        assert len(graphs) == 1
        assert torch.equal(call(X, plus=X), X * 2) and torch.equal(call(plus=X, by=X, x=X), X * 2)


def test_an_order_that_shows_is_kept():
    call, _ = counted(TakesAny())
    assert [v.tolist() if isinstance(v, torch.Tensor) else v for v in call(X, a=X, bc=X)] == [X.tolist(), ["a", "bc"]]
    assert [v.tolist() if isinstance(v, torch.Tensor) else v for v in call(X, bc=X, a=X)] == [(X * 2).tolist(), ["bc", "a"]]
    around, _ = counted(Around())
    assert torch.equal(around(X, by=X, plus=X), X * 2) and torch.equal(around(X, plus=X * 2, by=X), X * 3)


def test_hooks_see_the_order():
    module, seen = Scales(), []
    module.register_forward_pre_hook(lambda module, args, kwargs: seen.append(list(kwargs)), with_kwargs=True)
    call, _ = counted(module)
    for _ in range(2):
        call(X, by=X, plus=X)
        call(X, plus=X, by=X)
    assert seen == [["by", "plus"], ["plus", "by"]] * 2


def test_names_that_do_not_fit():
    call, _ = counted(Scales())
    call(X, by=X, plus=X)
    for wrong in ({"by": X, "other": X}, {"other": X, "more": X}, {"more": X, "other": X}):
        try:
            Scales()(X, **wrong)
        except TypeError as error:
            expected = str(error)
        try:
            call(X, **wrong)
        except TypeError as error:
            assert str(error) == expected
        else:
            raise AssertionError(wrong)


def test_a_hook_that_is_registered_and_removed_inside():
    """Its number is another one in each call."""
    module = torch.nn.Linear(3, 3)

    def hooked(x):
        handle = module.register_forward_hook(lambda module, args, out: out * 2)
        y = module(x)
        handle.remove()
        return y + 1

    call, graphs = counted(hooked)
    for _ in range(5):
        assert torch.equal(call(X), hooked(X))
        assert not module._forward_hooks
    assert len(graphs) <= 3
