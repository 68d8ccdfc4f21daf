"""Arguments like those of calls, from the guards of their entries."""

import torch
import tracework
from tracework.seen_calls import examples_of


def kinds(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.stride()
    if isinstance(value, (tuple, list)):
        return type(value), [kinds(part) for part in value]
    return {key: kinds(part) for key, part in value.items()} if isinstance(value, dict) else value


def fn(x, parts, *rest, k=2, **named):
    return x * k + parts[0]["a"] + rest[0] + named["z"]


def test_arguments_are_of_the_same_kinds():
    args = torch.ones(3, 4).t(), ({"a": torch.ones(4, 1)},), torch.ones(3)
    kwargs = {"k": 5, "z": torch.ones((), dtype=torch.float64)}
    call = tracework.compile(fn, dynamic=False)
    with torch.no_grad():
        call(*args, **kwargs)
    ((found, by_name, open_sizes),) = examples_of(call)
    assert (kinds(found), kinds(by_name)) == (kinds(args), kinds(kwargs))
    assert open_sizes.declared == {}


def test_open_sizes_get_numbers_that_fit():
    call = tracework.compile(lambda x: x.sum() if x.shape[0] > 5 else x, dynamic=True)
    with torch.no_grad():
        call(torch.ones(9, 3))
    (((x,), _, open_sizes),) = examples_of(call)
    assert x.shape[0] > 5 and open_sizes.declared
