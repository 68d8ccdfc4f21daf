"""Forward hooks that a frame puts on modules and takes off again are part of its graph; others break it where they are put on."""

import copy

import pytest
import torch
from torch.utils.hooks import RemovableHandle
from tracework_capture import allow_in_graph, assume_constant_result, explain, leaf_function, nonstrict_trace, optimize

X = torch.arange(12.0).reshape(3, 4)


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def results_of_layers(model, x):
    found, handles = {}, []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(lambda m, i, o, name=name: found.__setitem__(name, o.mean())))
    try:
        y = model(x)
    finally:
        for handle in handles:
            handle.remove()
    return y, found, model(x)


def changed_arguments(model, x):
    first = model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    second = model[0].register_forward_hook(lambda module, args, kwargs, out: out + len(kwargs), with_kwargs=True)
    y = model(x)
    first.remove()
    first.remove()
    z = model(x)
    second.remove()
    return y, z, model(x)


def in_a_block(model, x):
    with model[2].register_forward_hook(lambda module, args, out: out * 2):
        y = model(x)
    return y, model(x)


def removed_by_itself(model, x):
    def once(module, args, out):
        handle.remove()
        return out + 1

    handle = model.register_forward_hook(once)
    return model(x), model(x)


def left_by_an_exception(model, x):
    handle = model.register_forward_hook(lambda module, args, out: out * 3)
    try:
        y = model(x)
        raise ValueError("x")
    except ValueError:
        y = y + 1
    finally:
        handle.remove()
    return y


@pytest.mark.parametrize(
    "function",
    [results_of_layers, changed_arguments, in_a_block, removed_by_itself, left_by_an_exception],
    ids=lambda function: function.__name__,
)
def test_put_on_and_taken_off(function):
    model = net()
    fast = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    for x in (X, X + 1):
        before = RemovableHandle.next_id
        expected, numbers = function(model, x), RemovableHandle.next_id - before
        found = fast(model, x)
        torch.testing.assert_close(found, expected)
        assert RemovableHandle.next_id == before + 2 * numbers
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_on_top_of_those_that_are_there():
    model = net()
    model.register_forward_hook(lambda module, args, out: out + 1)
    found = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(in_a_block)(model, X)
    torch.testing.assert_close(found, in_a_block(model, X))


def stays(model, x):
    model.register_forward_hook(lambda module, args, out: out * 2)
    return model(x)


def is_given_back(model, x):
    return model(x), model.register_forward_hook(lambda module, args, out: out * 2)


def is_looked_for(model, x):
    handle = model.register_forward_hook(lambda module, args, out: out * 2)
    found = len(model._forward_hooks)
    handle.remove()
    return model(x), found


def is_on_over_a_break(model, x):
    handle = model.register_forward_hook(lambda module, args, out: out * 2)
    y = model(x)
    if y.sum().tolist() > 3:
        y = y + 1
    z = model(x)
    handle.remove()
    return y, z


def is_in_front(model, x):
    model.register_forward_hook(lambda module, args, out: out * 2)
    handle = model.register_forward_hook(lambda module, args, out: out + 1, prepend=True)
    y = model(x)
    handle.remove()
    return y


@pytest.mark.parametrize(
    "function", [stays, is_given_back, is_looked_for, is_on_over_a_break, is_in_front], ids=lambda function: function.__name__
)
def test_others_break_the_graph(function):
    expected, found = function(net(), X), explain(function)(net(), X)
    assert "hook" in {stop.reason_id for stop in found.breaks}
    torch.testing.assert_close(_plain(found.result), _plain(expected))


def _plain(result):
    return [part for part in result if not isinstance(part, RemovableHandle)] if isinstance(result, tuple) else [result]


def test_the_hook_stays_on():
    model = net()
    explain(stays)(model, X)
    assert len(model._forward_hooks) == 1


MODEL = torch.nn.Linear(4, 4)


@allow_in_graph
def allowed(x):
    return MODEL(x)


@nonstrict_trace
def traced_as_it_is(x):
    return MODEL(x)


@leaf_function
def leaf(model, x):
    return (model(x),)


@leaf.register_fake
def _(model, x):
    return (torch.empty_like(x),)


@assume_constant_result
def constant():
    return MODEL(torch.ones(1, 4)).sum().item()


@torch.library.custom_op("frame_hooks_tests::model", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    return MODEL(x).clone()


@operator.register_fake
def _(x):
    return torch.empty_like(x)


SEEN_BY = {
    "allow_in_graph": allowed,
    "nonstrict_trace": traced_as_it_is,
    "leaf_function": lambda x: leaf(MODEL, x)[0],
    "assume_constant_result": lambda x: x * constant(),
    "custom operator": operator,
    "copy": lambda x: copy.copy(MODEL)(x),
    "deepcopy": lambda x: copy.deepcopy(MODEL)(x),
    "vars": lambda x: x * len(vars(MODEL)["_forward_hooks"]),
    "__dict__": lambda x: x * len(MODEL.__dict__["_forward_hooks"]),
}


@pytest.mark.parametrize("kind", SEEN_BY)
def test_what_calls_or_reads_the_module_itself_sees_the_hook(kind):
    function = SEEN_BY[kind]

    def hooked(x):
        handle = MODEL.register_forward_hook(lambda module, args, out: out * 2)
        y = function(x)
        handle.remove()
        return y

    with torch.no_grad():
        torch.testing.assert_close(optimize(lambda gm, inputs: gm.forward)(hooked)(X), hooked(X))
    assert not MODEL._forward_hooks
