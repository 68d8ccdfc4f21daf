"""Getters and methods of a tensor under __torch_function__, and the switches that turn it off: as plain Python has them."""

import operator
import time
import types

import pytest
import torch
import tracework_capture as capture
from torch._C import DisableTorchFunction, DisableTorchFunctionSubclass
from torch._C import _is_torch_function_all_disabled as all_disabled
from torch._C import _is_torch_function_enabled as enabled

LOG = []
DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType, property)
GETTERS = sorted({n for cls in torch.Tensor.__mro__[:-1] for n, static in vars(cls).items() if isinstance(static, DESCRIPTORS)})
METHODS = sorted(
    n for n in dir(torch.Tensor) if isinstance(getattr(torch.Tensor, n), types.MethodDescriptorType) and n[:2] != "__"
)


class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        owner = getattr(func, "__self__", None)
        LOG.append((func.__name__, getattr(owner, "__name__", None)))
        return "own " + func.__name__


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        LOG.append(("mode", func.__name__, enabled(), all_disabled()))
        return func(*args, **(kwargs or {}))


class Seen(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append((func.__name__, enabled(), all_disabled()))
        found = super().__torch_function__(func, types, args, kwargs or {})
        with DisableTorchFunctionSubclass():
            LOG.append((enabled(), all_disabled(), type(args[0] * 1).__name__))
        return found


def outcome(function, *args):
    LOG.clear()
    try:
        found = function(*args)
    except Exception as error:
        found = type(error).__name__, str(error)
    with DisableTorchFunction():
        text = repr([type(part).__name__ if isinstance(part, torch.Tensor) else part for part in found])
    return text, list(LOG), enabled(), all_disabled()


def check(function, *args):
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(function)
    expected = outcome(function, *args)
    for _ in range(2):
        assert outcome(compiled, *args) == expected


@pytest.mark.parametrize("name", GETTERS)
@pytest.mark.parametrize("how", ["attribute", "getattr", "attrgetter", "descriptor", "set"])
def test_getters_go_by_torch_function(fresh, name, how):
    def fn(x, own):
        x = x + 1
        if how == "attribute":
            found = eval_of[name](own)
        elif how == "getattr":
            found = getattr(own, name)
        elif how == "attrgetter":
            found = operator.attrgetter(name)(own)
        elif how == "descriptor":
            found = getattr(torch.Tensor, name).__get__(own)
        else:
            found = setattr(own, name, None)
        return x * 2, type(found), found if isinstance(found, str) else None

    eval_of = {name: eval(f"lambda own: own.{name}")}
    check(fn, torch.ones(2), torch.ones(2, 3).as_subclass(Own))


@pytest.mark.parametrize("name", METHODS)
def test_methods_go_by_torch_function(fresh, name):
    def fn(x, own, given):
        x = x + 1
        found = getattr(own, name)(*given)
        return x * 2, found if isinstance(found, str) else type(found)

    for given in ((), (1,)):
        try:
            fn(torch.ones(2), torch.ones(2, 3).as_subclass(Own), given)
        except Exception:  # arguments that the method does not take are refused before
            continue
        check(fn, torch.ones(2), torch.ones(2, 3).as_subclass(Own), given)


def test_getters_are_told_apart_by_their_descriptors(fresh):
    class Told(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func == torch.Tensor.ndim.__get__:
                return 7
            if func in {torch.Tensor.shape.__get__: 1}:
                return (8,)
            return super().__torch_function__(func, types, args, kwargs or {})

    def fn(x):
        return (
            x + 1,
            x.ndim,
            x.shape,
            x.dtype,
            torch.Tensor.ndim.__get__(x),
            torch.Tensor.ndim.__get__ == torch.Tensor.ndim.__get__,
        )

    compiled = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)
    x = torch.ones(2, 3).as_subclass(Told)
    assert compiled(x)[1:] == fn(x)[1:] == (7, (8,), torch.float32, 7, True)


def state():
    return enabled(), all_disabled()


def kind(x):
    return type(x).__name__


def in_classes_off(x):
    before = state()
    with DisableTorchFunctionSubclass():
        inside, y = state(), x + 1
    return y, before, inside, kind(y), state()


def in_all_off(x):
    with DisableTorchFunction():
        inside, y = state(), x + 1
    return y, inside, kind(y), state()


def nested(x):
    with DisableTorchFunctionSubclass():
        with DisableTorchFunction():
            inner, y = state(), x + 1
        with DisableTorchFunctionSubclass():
            pass
        outer = state()
    return y, inner, outer, state(), kind(x * 2)


def a_mode_around(x):
    with Mode():
        y = torch.abs(x)
        with DisableTorchFunctionSubclass():
            y, classes_off = torch.sin(y), state()
        with DisableTorchFunction():
            y, all_off = torch.cos(y), state()
    return y + 1, classes_off, all_off, state()


def a_mode_inside(x):
    with DisableTorchFunctionSubclass(), Mode():
        y, classes_off = torch.sin(x), state()
    with DisableTorchFunction():
        with Mode():
            y, all_off = torch.sin(y), state()
    return y, classes_off, all_off, state()


def by_hand(x):
    manager = DisableTorchFunctionSubclass()
    manager.__enter__()
    y, inside = x + 1, state()
    manager.__exit__(None, None, None)
    return y, inside, state(), kind(x * 2)


def left_by_an_error(x):
    try:
        with DisableTorchFunctionSubclass():
            y = x + 1
            raise ValueError
    except ValueError:
        return y, state(), kind(y), kind(x * 2)


def over_a_break(x):
    with DisableTorchFunctionSubclass():
        y = x + 1
        time.time_ns()
        inside, z = state(), x * 2
    with DisableTorchFunction():
        y = y + 1
        time.time_ns()
        all_off, w = state(), x * 3
    return y, inside, all_off, kind(z), kind(w), kind(x * 2), state()


def of_has_torch_function(x):
    with DisableTorchFunctionSubclass():
        inside = torch.overrides.has_torch_function((x,))
    return x + 1, inside, torch.overrides.has_torch_function((x,))


PROGRAMS = [
    in_classes_off,
    in_all_off,
    nested,
    a_mode_around,
    a_mode_inside,
    by_hand,
    left_by_an_error,
    over_a_break,
    of_has_torch_function,
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("cls", [torch.Tensor, Seen])
@pytest.mark.parametrize("around", [None, DisableTorchFunctionSubclass, DisableTorchFunction, Mode])
def test_switches(fresh, program, cls, around):
    def called(function):
        def call(x):
            if around is None:
                return function(x)
            with around():
                return function(x)

        return call

    compiled = capture.optimize(lambda gm, inputs: gm.forward)(program)
    x = torch.ones(2).as_subclass(cls)
    expected = outcome(called(program), x)
    assert [outcome(called(compiled), x) for _ in range(2)] == [expected] * 2


def test_an_entry_is_for_the_state_it_was_made_in(fresh):
    def fn(x):
        return x + 1, type(torch.ones(2).as_subclass(Seen) + 1).__name__, state()

    compiled = capture.optimize(lambda gm, inputs: gm.forward)(fn)
    for around in (DisableTorchFunctionSubclass, None, DisableTorchFunction, None, DisableTorchFunctionSubclass):
        if around is None:
            assert compiled(torch.ones(2))[1:] == fn(torch.ones(2))[1:]
            continue
        with around():
            assert compiled(torch.ones(2))[1:] == fn(torch.ones(2))[1:]
