"""A compiled function that lives on keeps nothing alive of what it was called with: neither tensors nor the classes, functions and modules of
the program that hold them.

A table: what the program makes (it holds the parameter `w`), what the function gets of it, and what it computes of that and `x`."""

import abc
import collections
import dataclasses
import enum
import functools
import gc
import inspect
import threading
import types
import weakref

import pytest
import torch
import tracework_capture as capture
from tracework_capture import _C
from tracework_capture.hook.cache import entries_of
from tracework_capture.weakly_held import held, held_in_parts, is_there, may_die

NAMES = dict(
    abc=abc,
    capture=capture,
    collections=collections,
    dataclasses=dataclasses,
    enum=enum,
    functools=functools,
    inspect=inspect,
    threading=threading,
    types=types,
    weakref=weakref,
    torch=torch,
)
GO = "def go(self, x): return x * w"
ROWS = {
    "class of an instance": (f"class C:\n {GO}", "C()", "a.go(x)"),
    "class": (f"class C:\n {GO}", "C", "a().go(x)"),
    "class that is compared": (f"class C:\n {GO}", "C", "x + (a is int)"),
    "class that is asked for instances": (f"class C:\n {GO}", "C", "x + isinstance(x, a)"),
    "class in a tuple": (f"class C:\n {GO}", "(C, int)", "x + isinstance(x, a)"),
    "class that is a key": (f"class C:\n {GO}", "{C: 1}", "x + len(a) + [a[k] for k in a][0]"),
    "class that is a member": (f"class C:\n {GO}", "{C}", "x + len([k for k in a])"),
    "class that is a value": (f"class C:\n {GO}", "{'c': C}", "a['c']().go(x)"),
    "class with a base": (f"class B:\n {GO}\nclass C(B): pass", "C()", "a.go(x)"),
    "base of a made class": (f"class B:\n {GO}", "B", "type('D', (a,), {})().go(x)"),
    "class with slots": (f"class C:\n __slots__ = ('n',)\n {GO}\nc = C()\nc.n = 2", "c", "a.go(x) + a.n"),
    "hidden slot": (f"class B:\n __slots__ = ('n',)\nclass C(B):\n n = property(lambda self: 5)\n {GO}", "C()", "a.go(x) + a.n"),
    "property": ("class C:\n n = property(lambda self: w)", "C()", "a.n * x"),
    "static method": ("class C:\n n = staticmethod(lambda x: w * x)", "C()", "a.n(x)"),
    "class method": ("class C:\n n = classmethod(lambda cls, x: w * x)", "C()", "a.n(x) + type(a).n(x)"),
    "descriptor": ("class D:\n def __get__(self, obj, cls): return w\nclass C:\n n = D()", "C()", "a.n * x"),
    "class attribute": ("class C:\n n = w", "C()", "a.n * x"),
    "attributes made when asked for": ("class C:\n def __getattr__(self, name): return w", "C()", "a.n * x"),
    "metaclass": (f"class M(type):\n {GO}\nclass C(metaclass=M): pass", "C", "a.go(x)"),
    "metaclass that is called": ("class M(type):\n def __call__(cls): return w\nclass C(metaclass=M): pass", "C", "a() * x"),
    "method": (f"class C:\n {GO}", "C().go", "a(x)"),
    "written cell": ("n = 0\nclass C:\n def go(self, x):\n  nonlocal n\n  n += 1\n  return x * w", "C()", "a.go(x)"),
    "enum member": (f"class C(enum.Enum):\n A = 1\n {GO}", "C.A", "a.go(x)"),
    "named tuple": (f"class C(collections.namedtuple('C', 'n')):\n {GO}", "C(2)", "a.go(x) + a.n"),
    "dataclass": (f"@dataclasses.dataclass\nclass C:\n n: int\n {GO}", "C(2)", "a.go(x) + a.n"),
    "instance that is made": ("class C:\n def __init__(self, x): self.n = x * w", "C", "a(x)"),
    "instance of the same class": ("class C:\n def __init__(self, x): self.n = x * w", "C(1)", "type(a)(x)"),
    "dataclass that is made": (f"@dataclasses.dataclass\nclass C:\n n: object\n {GO}", "C", "a(a(x).go(x))"),
    "dict that is made": (f"class C(dict):\n {GO}", "C", "a(n=a().go(x))"),
    "list that is made": (f"class C(list):\n {GO}", "C", "a([a().go(x)])"),
    "tuple that is made": (f"class C(tuple):\n {GO}", "C", "a([a().go(x)])"),
    "named tuple that is made": (f"class C(collections.namedtuple('C', 'n')):\n {GO}", "C", "a(a(1).go(x))"),
    "exception that is made": (f"class C(Exception):\n {GO}", "C", "a(a().go(x))"),
    "dict": ("class C(dict):\n def __missing__(self, key): return w", "C()", "a[3] * x"),
    "list": (f"class C(list):\n {GO}", "C()", "a.go(x)"),
    "int": (f"class C(int):\n {GO}", "C(3)", "a.go(x)"),
    "str": (f"class C(str):\n {GO}", "C('n')", "a.go(x)"),
    "factory of a dict": ("f = lambda: w", "collections.defaultdict(f)", "a[3] * x"),
    "keys of their own equality": (
        "class K:\n def __hash__(self): return 1\n def __eq__(self, other): return w is not None",
        "{K(): 1}, K()",
        "x + a[0][a[1]]",
    ),
    "function": ("def f(x): return x * w", "f", "a(x)"),
    "function that is compared": ("def f(x): return x * w", "f", "x + (a is print)"),
    "function that is a key": ("def f(x): return x * w", "{f: 1}", "x + [a[k] for k in a][0]"),
    "default argument": ("def f(x, w=w): return x * w", "f", "a(x)"),
    "keyword default": ("def f(x, *, w=w): return x * w", "f", "a(x)"),
    "partial": ("def f(x, w): return x * w", "functools.partial(f, w=w)", "a(x)"),
    "wrapped function": ("f = functools.wraps(print)(lambda x: x * w)", "f", "a(x)"),
    "remembering function": ("f = functools.lru_cache(lambda n: n + (w is not None))", "f", "a(1) * x"),
    "function for kinds": ("f = functools.singledispatch(lambda n, x: x * w)", "f", "a(1, x)"),
    "generator": ("def f(x):\n yield x * w\n yield x", "f", "sum(a(x))"),
    "signature": ("def f(x, n=1): return x * w", "f", "a(x) + len(inspect.signature(a).parameters)"),
    "signature of a class": (f"class C:\n def __init__(self, n=1): pass\n {GO}", "C", "x * len(inspect.signature(a).parameters)"),
    "names of a class": (f"class C:\n {GO}", "C", "x * len(dir(a))"),
    "subclasses": (f"class C:\n {GO}\nclass D(C): pass", "C, D", "x * len(a[0].__subclasses__())"),
    "abstract class": (f"class C(abc.ABC):\n {GO}\nclass D: pass", "C, D()", "x + isinstance(a[1], a[0])"),
    "module": ("m = types.ModuleType('m')\nm.w = w\nexec('def f(x): return x * w', vars(m))", "m", "a.f(x)"),
    "weak reference": (f"class C:\n {GO}\nc = C()", "c, weakref.ref(c)", "a[1]().go(x)"),
    "names of a thread": (f"class C(threading.local):\n {GO}", "C()", "a.go(x)"),
    "manager": ("class C:\n def __enter__(self): return w\n def __exit__(self, *e): pass", "C()", "managed(a, x)"),
    "nn.Module": ("class C(torch.nn.Module):\n def forward(self, x): return x * w", "C()", "a(x)"),
    "hook": ("m = torch.nn.Linear(2, 2)\nm.register_forward_hook(lambda m, i, o: o * w)", "m", "a(x)"),
    "tensor": (
        "class C(torch.Tensor):\n @classmethod\n def __torch_function__(cls, f, types, args=(), kwargs=None):\n"
        "  with torch._C.DisableTorchFunctionSubclass(): return f(*args, **(kwargs or {})) * w",
        "torch.ones(2).as_subclass(C)",
        "x + a",
    ),
    "parameter": (f"class C(torch.nn.Parameter):\n {GO}\nm = torch.nn.Module()\nm.p = C(torch.ones(2))", "m", "a.p.go(x)"),
    "autograd.Function": (
        "class C(torch.autograd.Function):\n forward = staticmethod(lambda ctx, x: x * w)\n backward = staticmethod(lambda ctx, g: g)",
        "C",
        "a.apply(x)",
    ),
    "function mode": (
        "class C(torch.overrides.TorchFunctionMode):\n def __torch_function__(self, f, types, args=(), kwargs=None):\n"
        "  return f(*args, **(kwargs or {})) * w.detach()",
        "C()",
        "managed(a, x)",
    ),
    "transform": ("def f(x): return (x * w.detach()).sum()", "f", "torch.func.grad(a)(x)"),
    "branches": ("def f(x): return x * w.detach()", "f", "torch.cond(x.sum() > 0, a, a, (x,))"),
    "checkpoint": ("def f(x): return x * w", "f", "torch.utils.checkpoint.checkpoint(a, x, use_reentrant=False)"),
    "over a break": (f"class C:\n {GO}", "C()", "(x := a.go(x), capture.graph_break(), type(a)().go(x))"),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_the_program_lets_go_of_dies(fresh, name):
    definitions, given, expression = ROWS[name]
    names = dict(NAMES)
    body = "\n".join(f"    {line}" for line in definitions.split("\n"))
    text = f"def make(w):\n{body}\n    return {given}\ndef managed(a, x):\n    with a:\n        return x + 1\ndef program(x, a):\n    return {expression}"
    exec(compile(text, "program.py", "exec"), names)
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(names["program"])
    w = torch.nn.Parameter(torch.ones(2))
    a = names["make"](w)
    for _ in range(3):
        compiled(torch.ones(2), a)
    dies = weakref.ref(w)
    del w, a
    gc.collect()
    assert dies() is None


def test_an_entry_ends_with_what_it_is_for(fresh):
    def make():
        class Own:
            def go(self, x):
                return x * 2

        return Own()

    def program(x, given):
        return given.go(x)

    compiled = capture.optimize(lambda gm, inputs: gm.forward)(program)
    first, second = make(), make()
    for _ in range(3):
        compiled(torch.ones(2), first), compiled(torch.ones(2), second)
    assert len(entries_of(program.__code__)) == 2
    del first
    gc.collect()
    assert len(entries_of(program.__code__)) == 1
    assert compiled(torch.ones(2), second).tolist() == [2, 2] and len(entries_of(program.__code__)) == 1


def test_a_model_that_compiles_a_method_of_its_own_dies(fresh):
    w = torch.nn.Parameter(torch.ones(2))

    class Model(torch.nn.Module):
        def __init__(self, w):
            super().__init__()
            self.fast = capture.optimize(lambda gm, inputs: gm.forward)(self.slow)
            type(self).scale = w

        def slow(self, x):
            return x * type(self).scale

    model = Model(w)
    for _ in range(3):
        model.fast(torch.ones(2))
    dies = weakref.ref(w)
    del w, model, Model
    gc.collect()
    assert dies() is None


def test_what_may_die():
    class Own:
        number = property(lambda self: 1)

    def function():
        pass

    module = types.ModuleType("module")
    assert all(map(may_die, (Own, Own(), function, module, enum.Enum("Made", "A"))))
    lasting = (
        collections.OrderedDict,
        int,
        torch.nn.Linear,
        torch.nn.Linear.forward,
        torch.nn.functional.relu,
        types,
        may_die,
        3,
        "a",
    )
    assert not any(map(may_die, lasting))
    assert type(held(Own)) is _C.WeakKey and held(int) is int
    parts = held_in_parts(vars(Own)["number"])
    assert is_there(parts, vars(Own)["number"]) and not is_there(parts, property(lambda self: 1))
