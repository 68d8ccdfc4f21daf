"""Runs a function twice, plainly and captured, and compares: result, side effects on the arguments, or the exception."""

import copy
import enum
import types

import torch
from tracework_capture import _C
from tracework_capture import sources as s
from tracework_capture.guards.access import Scope, part_item, plain_part
from tracework_capture.guards.program import check_guard
from tracework_capture.hook.compile_frame import FrameInput, capture_frame
from tracework_capture.hook.context import disabled_call
from tracework_capture.hook.history import History
from tracework_capture.options import CaptureOptions

FETCH = {
    s.Attr: lambda x, base: getattr(base, x.name),
    s.InstanceAttr: lambda x, base: base.__dict__[x.name],
    s.InstanceDict: lambda x, base: base.__dict__,
    s.ModuleEntry: lambda x, base: base.__dict__[x.table][x.name],
    s.TypeOf: lambda x, base: type(base),
    s.Item: lambda x, base: base[x.index],
    s.PartItem: lambda x, base: part_item(base, x.index),
    s.PlainPart: lambda x, base: plain_part(base),
    s.DictItem: lambda x, base: dict.__getitem__(base, x.key),
    s.DictValueAt: lambda x, base: list(base.values())[x.index],
    s.CellContents: lambda x, base: base.__closure__[x.index].cell_contents,
    s.DefaultArg: lambda x, base: base.__defaults__[x.index],
    s.KwDefaultArg: lambda x, base: base.__kwdefaults__[x.name],
    s.TensorSize: lambda x, base: base.size(x.dim),
    s.FunctionGlobals: lambda x, base: base.__globals__,
}


def fetch(source, slots, function):
    """The object at a source."""
    if isinstance(source, s.Local):
        return slots[source.name]
    if isinstance(source, s.Global):
        return function.__globals__[source.name]
    if isinstance(source, s.Closure):
        return function.__closure__[function.__code__.co_freevars.index(source.name)].cell_contents
    if isinstance(source, s.Const):
        return source.value
    return FETCH[type(source)](source, fetch(source.base, slots, function))


def slots_of(function, args, kwargs):
    """Argument slots as the frame would have them."""
    import inspect

    bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def call(function, arguments):
    """What the evaluator does where generated code goes on in a continuation."""
    return function(*arguments)


def eager(gm, example_inputs):
    """The backend of the tests: run the captured graph as it is."""
    return gm.forward


def capture(function, *args, fullgraph=True, backend=eager, **kwargs):
    """(replacement result thunk, Captured)."""
    if isinstance(function, types.MethodType):
        args, function = (function.__self__, *args), function.__func__
    slots = slots_of(function, args, kwargs)
    given = FrameInput(function.__code__, slots, function.__globals__, function.__closure__)
    captured = capture_frame(given, backend, CaptureOptions(fullgraph=fullgraph), History(), disabled_call)
    assert_guards_hold(captured, slots, function)
    code = captured.code.replace(co_consts=tuple(call if c is _C.go_on else c for c in captured.code.co_consts))
    replacement = types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)

    def run():
        inputs = tuple(fetch(source, slots, function) for source in captured.collect)
        return replacement(inputs, *slots.values())

    return run, captured


def assert_guards_hold(captured, slots, function):
    """Every guard of a new entry holds for the call that it was made from."""
    names = dict(slots)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        names[name] = cell.cell_contents
    scope = Scope(names, function.__globals__)
    failures = [failure for guard in captured.guards if (failure := check_guard(guard, scope)) is not None]
    assert not failures, f"guards of a new entry fail: {failures[:3]}"


def check(function, *args, fullgraph=True, **kwargs):
    """Plain and captured give the same; gives the Captured."""
    plain_args, plain_kwargs = copy.deepcopy((args, kwargs))
    try:
        expected = function(*plain_args, **plain_kwargs)
    except Exception as error:
        expected = error
    run, captured = capture(function, *args, fullgraph=fullgraph, **kwargs)
    try:
        actual = run()
    except Exception as error:
        actual = error
    assert_same(actual, expected)
    assert_same(args, plain_args)
    assert_same(kwargs, plain_kwargs)
    return captured


def assert_same(actual, expected, path="result"):
    """Deep comparison with tensors by value."""
    assert type(actual) is type(expected), f"{path}: {type(actual)} {actual!r} is not {type(expected)} {expected!r}"
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, equal_nan=True)
        assert actual.requires_grad == expected.requires_grad, path
    elif isinstance(expected, BaseException):
        assert_same(actual.args, expected.args, path)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), path
        for index, pair in enumerate(zip(actual, expected)):
            assert_same(*pair, f"{path}[{index}]")
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), path
        for key in expected:
            assert_same(actual[key], expected[key], f"{path}[{key!r}]")
    elif hasattr(expected, "__dict__") and not isinstance(expected, (type, types.FunctionType, enum.Enum)):
        assert_same(vars(actual), vars(expected), path)
    else:
        assert actual == expected, path
