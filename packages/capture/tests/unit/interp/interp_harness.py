"""Runs a function through the interpreter and its replacement code without the native evaluator."""

import inspect
import types

import torch
from tracework_capture import _C
from tracework_capture.bytecode.reload import reload_text
from tracework_capture.bytecode.resume import is_resume_code
from tracework_capture.errors import SkipFrame
from tracework_capture.guards.classes import class_attribute
from tracework_capture.hook.compile_frame import FrameInput, capture_frame
from tracework_capture.hook.context import disabled_call
from tracework_capture.hook.history import History
from tracework_capture.options import CaptureOptions


def eager(gm, example_inputs):
    """The backend of the tests: run the graph."""
    return gm.forward


class Fetch:
    """Evaluates sources on a frame's slots."""

    def __init__(self, slots, globals_, closure, code):
        self.slots, self.globals = slots, globals_
        self.closure = dict(zip(code.co_freevars, closure or ()))
        self.constants = {}

    def const(self, obj, hint="c"):
        name = f"c{len(self.constants)}"
        self.constants[name] = obj
        return name

    literal = const

    def free_name(self, name):
        return name

    def global_name(self, name):
        return f"__tw_lookup_global({name!r})"

    def __call__(self, source):
        def text(s):
            return reload_text(s, text(s.base) if s.base is not None else "", self)

        scope = {
            "__tw_getattr": getattr,
            "__tw_type": type,
            "__tw_dict_get": dict.__getitem__,
            "__tw_list": list,
            "__tw_own_dict": _C.instance_dict,
            "__tw_class_attribute": class_attribute,
            "__tw_lookup_global": self.globals.__getitem__,
        }
        expression = text(source)
        scope.update({n: c.cell_contents for n, c in self.closure.items()})
        scope.update({("__tw_arg_" + n[1:]) if n.startswith(".") else n: v for n, v in self.slots.items()}, **self.constants)
        return eval(expression, scope)


class Runner:
    """Captures functions and the continuations they lead to; counts graphs and skips."""

    def __init__(self, backend=eager, **options):
        self.backend = backend
        self.options = CaptureOptions(**options)
        self.graphs = []
        self.skipped = []
        self.histories = {}

    def call(self, function, *args, **kwargs):
        """function(*args, **kwargs), captured anew."""
        if isinstance(function, types.MethodType):
            return self.call(function.__func__, function.__self__, *args, **kwargs)
        bound = (
            inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
            if not is_resume_code(function.__code__)
            else None
        )
        if bound is not None:
            bound.apply_defaults()
            slots = dict(bound.arguments)
        else:
            slots = dict(zip(function.__code__.co_varnames, args))
        code = function.__code__
        given = FrameInput(code, slots, function.__globals__, function.__closure__)
        try:
            captured = capture_frame(given, self.backend, self.options, self.histories.setdefault(code, History()), disabled_call)
        except SkipFrame as skipped:
            self.skipped.append(skipped)
            return function(*args, **kwargs)
        if captured.graph is not None:
            self.graphs.append(captured)
        fetch = Fetch(slots, function.__globals__, function.__closure__, code)
        inputs = tuple(fetch(source) for source in captured.collect)
        replacement = types.FunctionType(
            self.traced(captured.code), function.__globals__, code.co_name, None, function.__closure__
        )
        nargs = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        return replacement(inputs, *[slots[n] for n in code.co_varnames[:nargs]])

    def make_function(self, *args):
        """FunctionType of generated code; continuations are captured."""
        made = types.FunctionType(*args)
        return (lambda *values: self.call(made, *values)) if is_resume_code(args[0]) else made

    def traced(self, code):
        """The replacement with its continuations captured in turn."""

        def redirect(const):
            if (
                isinstance(const, types.FunctionType)
                and is_resume_code(const.__code__)
                and "__tw_raised" not in const.__code__.co_varnames
            ):
                return lambda *args: self.call(const, *args)
            if const is types.FunctionType:
                return self.make_function
            if const is _C.go_on:  # the evaluator's part
                return lambda function, arguments: function(*arguments)
            return const

        if code is None:
            raise AssertionError("no code")
        return code.replace(co_consts=tuple(redirect(c) for c in code.co_consts))


def check(function, *args, graphs=None, skips=None, **kwargs):
    """Result of the captured function, asserted equal to plain Python's; args are cloned for each."""
    plain_args, plain_kwargs = clone(args), clone(kwargs)
    expected = outcome(function, plain_args, plain_kwargs)
    runner = Runner()
    torch.manual_seed(0)
    actual = outcome(lambda *a, **k: runner.call(function, *a, **k), args, kwargs)
    assert_same(actual, expected)
    assert_same(args, plain_args)
    if graphs is not None:
        assert len(runner.graphs) == graphs, (len(runner.graphs), runner.skipped)
    if skips is not None:
        assert len(runner.skipped) == skips, runner.skipped
    return runner


def outcome(function, args, kwargs):
    """("value", result) or ("raised", type, text)."""
    try:
        return "value", function(*args, **kwargs)
    except Exception as error:
        return "raised", type(error), str(error)


def clone(value):
    """Deep copy of containers and tensors, other objects as they are."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(clone(v) for v in value)
    if type(value) is dict:
        return {k: clone(v) for k, v in value.items()}
    return value


def assert_same(actual, expected):
    """Equal structure, types and values."""
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(actual, torch.Tensor):
        torch.testing.assert_close(actual, expected)
    elif isinstance(actual, (list, tuple)):
        assert len(actual) == len(expected), (actual, expected)
        for a, b in zip(actual, expected):
            assert_same(a, b)
    elif isinstance(actual, dict):
        assert list(actual) == list(expected), (actual, expected)
        for key in actual:
            assert_same(actual[key], expected[key])
    elif not callable(actual) and type(actual).__eq__ is not object.__eq__:
        assert actual == expected, (actual, expected)
