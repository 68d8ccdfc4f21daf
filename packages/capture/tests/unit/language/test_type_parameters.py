"""Functions, classes and aliases with type parameters (3.12+), made in captured functions. The programs are texts: 3.11 cannot read them."""

import sys
import types

import pytest
import torch
import tracework_capture as capture
from tracework_capture import _C
from tracework_capture.hook.context import FrameCallback
from tracework_capture.options import CaptureOptions

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is that of CPython 3.12")

FUNCTION = """
def program(x):
    def twice[T: int, *Ts, **P](a: T, *rest: *Ts) -> T:
        return a * 2
    return twice(x), twice
"""
CONSTRAINTS = """
def program(x):
    bound = str
    def twice[T: (int, bound)](a: T) -> T:
        return a * 2
    bound = bytes
    return twice(x), twice
"""
ALIAS = """
def program(x):
    type Plain = list[int]
    type Pair[A] = tuple[A, Plain]
    return x + 1, Plain, Pair, Pair.__name__
"""
NAMES = """
def program(x):
    def f[T](a: T) -> T:
        return a
    parameter, = f.__type_params__
    return f(x) * 2, parameter is f.__type_params__[0], parameter.__name__, f
"""
CLASS = """
def program(x):
    y = x + 1
    class Twice[T]:
        def __call__(self, a: T) -> T:
            return a * 2
    return Twice()(y), Twice
"""
EVALUATED = """
def program(x):
    y = x + 1
    type Plain = list[int]
    value = Plain.__value__
    return y * 2, value
"""
LOOKS_AT_BOUND = """
def program(x):
    y = x + 1
    def f[T: float](a: T) -> T:
        return a * 2
    bound = f.__type_params__[0].__bound__
    return f(y), bound
"""
RAISES_LATE = """
def program(x):
    y = x + 1
    class Twice[T: not_there]:
        pass
    try:
        return y, Twice.__type_params__[0].__bound__
    except NameError as error:
        return y * 2, str(error)
"""
DEFAULT = """
def program(x):
    def f[T = int, *Ts = *tuple[int, ...]](a: T) -> T:
        return a * 2
    return f(x), f
"""
# what plain Python makes at a break, a class, is another object in each call, and its continuation compiled for both
GRAPHS = {
    "FUNCTION": 1,
    "CONSTRAINTS": 1,
    "ALIAS": 1,
    "NAMES": 1,
    "CLASS": 3,
    "EVALUATED": 2,
    "LOOKS_AT_BOUND": 2,
    "RAISES_LATE": 1,
}
if sys.version_info >= (3, 13):
    GRAPHS["DEFAULT"] = 1
FACTS = "__name__ __module__ __bound__ __constraints__ __default__ __infer_variance__ __value__ __type_params__".split()


def facts(value):
    """What can be compared of a result."""
    if isinstance(value, (torch.Tensor, tuple)):
        return value.tolist() if isinstance(value, torch.Tensor) else [facts(item) for item in value]
    if isinstance(value, (types.FunctionType, type)):
        annotations = {name: repr(kind) for name, kind in getattr(value, "__annotations__", {}).items()}
        return (
            value.__qualname__,
            annotations,
            facts(value.__type_params__),
            [repr(b) for b in getattr(value, "__orig_bases__", ())],
        )
    if type(value).__module__ == "typing":
        return type(value), repr(value), [facts(getattr(value, name, None)) for name in FACTS]
    return repr(value)


@pytest.mark.parametrize("name", GRAPHS)
def test_type_parameters_are_as_in_plain_python(name):
    scope, graphs = {"__name__": __name__}, []
    exec(globals()[name], scope)

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = capture.optimize(backend)(scope["program"])
    for _ in range(2):
        assert facts(compiled(torch.ones(3))) == facts(scope["program"](torch.ones(3)))
    assert len(graphs) == GRAPHS[name]


@pytest.mark.parametrize("name", GRAPHS)
def test_what_makes_them_is_captured_too(name, caplog):
    """It closes over names like `.type_params`, which are no identifiers."""
    scope = {"__name__": __name__}
    exec(globals()[name], scope)
    callback = FrameCallback(lambda gm, inputs: gm.forward, CaptureOptions(keep_empty=True))
    assert facts(_C.Scoped(scope["program"], callback)(torch.ones(3))) == facts(scope["program"](torch.ones(3)))
    assert "failed" not in caplog.text
