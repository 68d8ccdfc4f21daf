"""Classes get other bases, descriptors come to bind, modules are exchanged, remembered results are forgotten: the next call sees it."""

import sys
import types

import pytest
import torch
from tracework_capture import optimize

CLASSES = """
class P:
    v = 1
    def __init__(self, n=1): self.n = n
    def f(self, x): return x + 1
    @classmethod
    def made(cls, x): return x + 1
class Q:
    v = 2
    def __init__(self, n=1): self.n = n * 10
    def f(self, x): return x + 2
    @classmethod
    def made(cls, x): return x + 2
class C(P):
    v = 10
    def __init__(self, n): super().__init__(n + 1)
    def f(self, x): return super().f(x) * 3
    @classmethod
    def made(cls, x): return super().made(x) * 3
    def above(self): return super().v
c = C(1)
"""

REBUILT = ["C.__bases__ = (Q,)", "C.__bases__ = (P,)", "C.__bases__ = (Q, P)"]

CASES = {
    "method of super": (CLASSES + "def main(x): return c.f(x)", REBUILT),
    "attribute of super": (CLASSES + "def main(x): return x * c.above()", [*REBUILT, "Q.v = 7"]),
    "class method of super": (CLASSES + "def main(x): return C.made(x)", REBUILT),
    "__init__ of super": (CLASSES + "def main(x): return x * C(2).n", REBUILT),
    "isinstance": (CLASSES + "def main(x): return x * (2 if isinstance(c, Q) else 3)", REBUILT[:1]),
    "issubclass": (CLASSES + "def main(x): return x * (2 if issubclass(C, P) else 3)", REBUILT[:1]),
    "class next in line": (
        """
class P:
    def f(self, x): return x + 1
class Q(P):
    def f(self, x): return super().f(x) + 2
class R(P):
    def f(self, x): return super().f(x) * 4
class C(Q): pass
c = C()
def main(x): return c.f(x)""",
        ["C.__bases__ = (Q, R)", "C.__bases__ = (R, Q)"],
    ),
    "except": (
        """
class E(ValueError): pass
def main(x):
    try:
        raise E
    except KeyError:
        return x * 2
    except Exception:
        return x * 3""",
        ["E.__bases__ = (KeyError,)"],
    ),
    "reflected operator": (
        """
class A:
    def __add__(self, other): return 1
class B(A): pass
a, b = A(), B()
def main(x): return x * (a + b)""",
        ["B.__radd__ = lambda self, other: 5", "del B.__radd__; A.__radd__ = lambda self, other: 6"],
    ),
    "attribute that comes to bind": (
        """
class C: v = 5
c = C()
c.v = 9
def main(x): return x * c.v""",
        ["C.v = property(lambda self: 3)", "C.v = 5"],
    ),
    "descriptor that comes to store": (
        """
class D:
    def __get__(self, instance, owner): return 7
class C: v = D()
c = C()
vars(c)["v"] = 2
def main(x): return x * c.v""",
        ["D.__set__ = lambda self, instance, value: None", "del D.__set__"],
    ),
    "object that comes to bind": (
        """
class D: number = 2
class C: d = D()
c = C()
def main(x): return x * c.d.number""",
        ["D.__get__ = lambda self, instance, owner: types.SimpleNamespace(number=4)"],
    ),
    "special names that Python asks for itself": (
        """
import copy
class C:
    __match_args__ = ("a", "b")
    def __init__(self): self.a, self.b = 1, [2]
    def __class_getitem__(cls, key): return key + 1
class E(Exception): pass
c = C()
def main(x):
    match c:
        case C(first, _): x = x * (first if type(first) is int else 20)
    try:
        raise E("text")
    except E as error:
        x = x + len(error.args) + getattr(error, "code", 0)
    return x * C[3] + len(copy.deepcopy(c).b) + len(copy.copy(c).b)""",
        [
            "C.__match_args__ = ('b', 'a')",
            "C.__class_getitem__ = classmethod(lambda cls, key: 9)",
            "C.__deepcopy__ = lambda self, memo: types.SimpleNamespace(b=[0] * 5)",
            "C.__copy__ = lambda self: types.SimpleNamespace(b=[0] * 7)",
            "E.__init__ = lambda self, *args: setattr(self, 'code', 11)",
        ],
    ),
    "members of a protocol": (
        """
import typing
@typing.runtime_checkable
class Sized(typing.Protocol):
    def measured(self): ...
class C: pass
c = C()
def main(x): return x * (2 if isinstance(c, Sized) else 3)""",
        ["C.measured = lambda self: 1", "del C.measured", "c.measured = 1"],
    ),
    "field of a namedtuple": (
        """
import collections
N = collections.namedtuple("N", "a b")
n = N(1, 2)
def main(x): return x * n.b""",
        ["N.b = property(lambda self: 7)"],
    ),
    "limit of recursion": (
        "def main(x): return x * sys.getrecursionlimit()",
        ["LIMIT = sys.getrecursionlimit(); sys.setrecursionlimit(LIMIT + 1000)", "sys.setrecursionlimit(LIMIT)"],
    ),
    "class of a module": (
        """
other = types.ModuleType("other")
other.v = 2
class Derived(types.ModuleType):
    w = property(lambda self: 6)
def main(x): return x * getattr(other, "w", other.v)""",
        ["other.__class__ = Derived"],
    ),
    "module exchanged": (
        """
sys.modules["of_this_test"] = types.SimpleNamespace(v=2)
def main(x):
    import of_this_test
    return x * of_this_test.v""",
        ["sys.modules['of_this_test'].v = 3", "sys.modules['of_this_test'] = types.SimpleNamespace(v=8)"],
    ),
    "remembered result": (
        """
N = 1
@functools.lru_cache
def f(k): return k + N
def main(x): return x + f(1)""",
        ["f.cache_clear(); N = 5", "f.cache_clear(); N = 6"],
    ),
    "remembered result left by others": (
        """
N = 1
@functools.lru_cache(maxsize=1)
def f(k): return k + N
def main(x): return x + f(1)""",
        ["N = 5; f(2)"],
    ),
    "remembered tensor": (
        """
N = 1.0
@functools.cache
def f(): return torch.full((2,), N)
def main(x): return x + f()""",
        ["f().add_(3)", "f.cache_clear(); N = 2.0"],
    ),
    "remembered method": (
        """
class A:
    n = 1
    @functools.lru_cache
    def f(self, k): return k + self.n
a = A()
def main(x): return x + a.f(1)""",
        ["a.n = 5; A.f.cache_clear()", "a = A(); a.n = 7"],
    ),
}


@pytest.fixture(autouse=True)
def modules():
    yield
    sys.modules.pop("of_this_test", None)


def results(name, wrapped):
    source, changes = CASES[name]
    program = {"torch": torch, "types": types, "sys": sys, "__name__": "rebuilt"}
    exec(compile("import functools\n" + source, f"<{name}>", "exec"), program)
    call, seen = wrapped(program["main"]), []
    for change in ("", *changes):
        exec(change, program)
        seen.append([call(torch.ones(2)).tolist() for _ in range(3)])
    return seen


@pytest.mark.parametrize("name", CASES)
def test_it_is_noticed(name):
    graphs = []
    expected = results(name, lambda main: main)
    assert results(name, optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)) == expected
    assert graphs and all(before != after for before, after in zip(expected, expected[1:]))


def test_what_does_not_change_is_remembered():
    """A result that was there before stays, as in plain Python, whatever it was made from."""
    for name in ("remembered result", "remembered method"):
        source, _ = CASES[name]
        program = {"torch": torch, "types": types}
        exec("import functools\n" + source, program)
        call = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program["main"])
        before = call(torch.ones(2))
        program["N"] = 50
        if "a" in program:
            program["a"].n = 50
        assert torch.equal(call(torch.ones(2)), before)


def test_calls_of_remembered_functions_are_counted():
    import functools

    @functools.lru_cache
    def f(k):
        return k + 1

    def main(x):
        return x + f(1) + f(2) + f(1)

    call = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(main)
    call(torch.ones(2))
    before = f.cache_info()
    for _ in range(4):
        call(torch.ones(2))
    assert f.cache_info() == before._replace(hits=before.hits + 12)


KNOWN = {"a", "b", 3}


def counted(x):
    return x + len(KNOWN) + sum(1 for name in KNOWN if name == "a")


def test_guards_without_room_below_the_recursion_limit_let_the_frame_run():
    """Those that are Python code take a few calls more than the program does."""

    def depth():
        frame, count = sys._getframe(), 0
        while frame is not None:
            frame, count = frame.f_back, count + 1
        return count

    def nested(n, fn):
        return nested(n - 1, fn) if n else fn(torch.ones(1))

    def outcome(left, fn):
        try:
            return nested(sys.getrecursionlimit() - depth() - left, fn).item()
        except RecursionError:
            return "no room"

    compiled = optimize(lambda gm, inputs: gm.forward)(counted)
    compiled(torch.ones(1)), compiled(torch.ones(1))
    rooms = range(3, 100)
    assert [outcome(left, compiled) for left in rooms] == [outcome(left, counted) for left in rooms]
