"""Small idioms of real programs, each against plain Python."""

import abc
import functools
import inspect
import math
import typing

import pytest
import torch
import torch.nn.functional as F
from harness import check
from tracework_capture import optimize
from tracework_capture.trace_policy import OF_KINDS


class G(typing.Generic[typing.TypeVar("T")]):
    def __init__(s, v):
        s.v = v


class NT(typing.NamedTuple):
    a: int
    b: int = 2

    def s(self):
        return self.a + self.b


class Meta(type):
    def __call__(cls, *a):
        return super().__call__(*a)


class WM(metaclass=Meta):
    def __init__(s, a):
        s.a = a


class AB(abc.ABC):
    @abc.abstractmethod
    def f(s): ...


class ABC2(AB):
    def f(s):
        return 3


class New:
    def __new__(cls, a):
        o = super().__new__(cls)
        o.z = a
        return o

    def __init__(s, a):
        s.a = a


class It:
    def __init__(s):
        s.i = 0

    def __iter__(s):
        return s

    def __next__(s):
        s.i += 1
        if s.i > 3:
            raise StopIteration
        return s.i


class Props:
    _x = 1

    def __setattr__(s, k, v):
        object.__setattr__(s, k, v * 2)

    def __getattribute__(s, k):
        return super().__getattribute__(k)


IDIOMS = {
    "generic": lambda x: (G(x).v, x + 1),
    "nt": lambda x: (NT(1).s(), NT(1, 3)[1], NT(1)._fields, x * NT(2).a, NT(3)),
    "meta": lambda x: WM(x).a + 1,
    "abc": lambda x: x + ABC2().f(),
    "new": lambda x: (lambda n: n.z + n.a)(New(x)),
    "iter": lambda x: x + sum(It()),
    "iter2": lambda x: [x * i for i in It()],
    "props": lambda x: (lambda p: (setattr(p, "q", x), p.q, p._x)[1:])(Props()),
    "unpack": lambda x: (lambda a, *b, c=1, **d: (a, b, c, d))(x + 1, 2, 3, c=4, e=5),
    "comp": lambda x: {k: {j for j in range(k)} for k in range(3)} and x + 1,
    "math": lambda x: x * math.sqrt(x.shape[0]) + math.pi + math.floor(2.5) + math.prod(x.shape),
    "fstr": lambda x: (f"{x.shape}", f"{x.dtype!r:>20}", x + 1),
    "slices": lambda x: (x[None, :, 1], x[..., -1:], x[:, [0, 1]], x[x.shape[0] - 1], x[slice(0, 2)], x[:-1]),
    "neg": lambda x: (x[-1], x.shape[-1], x.size(-2), x.flatten(), x.view(-1)),
    "linalg": lambda x: (torch.linalg.norm(x), x.norm(), torch.norm(x, dim=1), x.std(), x.var(0)),
    "fft": lambda x: torch.fft.fft(x).abs(),
    "special": lambda x: torch.special.expit(x) + torch.sigmoid(x),
    "ops": lambda x: torch.ops.aten.add.Tensor(x, x) + torch.ops.aten.relu(x),
    "tensorm": lambda x: torch.Tensor.add(x, x) + torch.Tensor.__mul__(x, 2),
    "gradmode": lambda x: (torch.is_grad_enabled(), x + 1),
    "finfo": lambda x: x.masked_fill(x > 0, torch.finfo(x.dtype).min),
    "clampmm": lambda x: x.clamp(min=0).clamp_(max=1),
    "splitl": lambda x: torch.cat(torch.split(x, [1, 3], dim=0)[::-1]),
    "meshgrid": lambda x: torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
    "isin": lambda x: (x.dtype in (torch.float32, torch.float16), x.device == torch.device("cpu"), x + 1),
    "tryexc": lambda x: (lambda d: d.get("a", x + 1))({}),
    "whilel": lambda x: functools.reduce(lambda a, b: a @ b, [x] * 3),
    "sortk": lambda x: (
        sorted([(2, "a"), (1, "b")], key=lambda p: p[0]),
        max({"a": 1, "b": 2}.items(), key=lambda p: p[1]),
        x + 1,
    ),
    "zipstar": lambda x: (list(zip(*[(1, 2), (3, 4)])), x + 1),
    "chunked": lambda x: [a + b for a, b in zip(x.chunk(2), x.chunk(2))],
    "multidot": lambda x: torch.stack([x[i] for i in range(x.shape[0])]),
    "strm": lambda x: ("a.b.c".split("."), "x".join(["1", "2"]), "abc".replace("a", "b"), "%s" % (3,), "abc"[::-1], x + 1),  # noqa: UP031
    "intops": lambda x: (divmod(7, 2), 7**2, -7 // 2, round(2.567, 1), abs(-3), int("4"), float("2.5"), bool([]), x + 1),
    "walrus": lambda x: (y := x + 1) * y,
    "types": lambda x: (
        type(x) is torch.Tensor,
        type(x).__name__,
        isinstance(x, (int, torch.Tensor)),
        isinstance(3, int | str),
        x + 1,
    ),
    "inplaceattr": lambda x: x.mul(2).add_(1).t_(),
    "nested": lambda x: (lambda f: f(f, 3))(lambda f, n: x if n == 0 else f(f, n - 1) + 1),
    "setdef": lambda x: (lambda d: (d.setdefault("a", []).append(1), d)[1])({}) and x + 1,
    "interp": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="nearest"),
    "rope": lambda x: torch.outer(torch.arange(4, dtype=torch.float32), 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4))),
    "ctx": lambda x: [x + c for c in [1]],
}


@pytest.mark.parametrize("name", IDIOMS)
def test_same_as_plain(name):
    check(IDIOMS[name], torch.randn(4, 4))


def of_what_kind(ask, objects, x):
    return x + 1, [ask(o) for o in objects]


def generates():
    yield 1


async def waits(): ...


OBJECTS = [WM, AB, ABC2, AB.f, NT(1).s, NT.s, len, str.join, int.real, math, torch, torch.add, F.relu, 3, It(), It, generates]
OBJECTS += [
    waits,
    functools.partial(waits),
    functools.partial(generates),
    generates.__code__,
    lambda: 0,
    type,
    NT.a,
    property(len),
]


@pytest.mark.parametrize("name", [name for name in OF_KINDS if not name.startswith("_") and name != "getmro"])
def test_functions_of_inspect_that_ask_what_an_object_is(name):
    ask = getattr(inspect, name)
    check(lambda x: of_what_kind(ask, OBJECTS, x), torch.ones(3))


def arguments_of(x, a: int = 1, *more, b=(2,), **others):
    return x


class HasMethods:
    def method(self, a: int = 3) -> str: ...

    @staticmethod
    def alone(a): ...


@functools.wraps(arguments_of)
def around_it(*args, **kwargs): ...


METHODS = HasMethods()


def test_the_arguments_of_functions():
    def step(x):
        def made(a, *, b): ...

        asked = (arguments_of, HasMethods.method, METHODS.method, METHODS.alone, around_it, made)
        return x + 1, [inspect.getfullargspec(f) for f in asked], [list(inspect.signature(f).parameters) for f in asked]

    check(step, torch.ones(2))


def test_other_arguments_of_a_function_are_noticed():
    def step(x):
        return x * len(inspect.getfullargspec(HasMethods.alone).args)

    call = optimize(lambda gm, example_inputs: gm.forward)(step)
    code = HasMethods.alone.__code__
    assert call(torch.ones(())) == 1
    HasMethods.alone.__code__ = (lambda a, b: None).__code__
    try:
        assert call(torch.ones(())) == 2
    finally:
        HasMethods.alone.__code__ = code


LETTERS = str.maketrans("ab", "xy", "-")
NESTED = {"a": 1, "b": [1, {"c": (2, None)}]}


def test_texts_of_tables_that_are_there():
    """All of such a table is read and guarded."""

    def step(x):
        made = "a-b".translate(LETTERS), "ab".translate(str.maketrans({"a": "zz"})), b"ab".translate(bytes.maketrans(b"a", b"z"))
        return x + 1, made, f"{NESTED}", repr(NESTED["b"]), "{a}".format_map(NESTED)

    check(step, torch.ones(2))
    call = optimize(lambda gm, example_inputs: gm.forward)(step)
    x = torch.ones(2)
    call(x)
    NESTED["b"][1]["c"] = 3
    assert call(x)[2:] == step(x)[2:]


def test_the_bases_of_a_class():
    check(lambda x: (x + 1, inspect.getmro(ABC2)), torch.ones(3))


class Falls(type):
    def __getattr__(cls, name):
        if name in ("eggs", "own"):
            return f"{name} of the metaclass"
        raise AttributeError(f"no {name}")

    @property
    def own(cls):
        raise AttributeError("not here")


class OnInstances:
    def __get__(self, instance, owner):
        if instance is None:
            raise AttributeError("of instances")
        return 4


class Spam(metaclass=Falls):
    eggs = OnInstances()
    ham = OnInstances()


class Plain:
    eggs = OnInstances()


def asked(cls, name):
    try:
        return getattr(cls, name)
    except AttributeError as error:
        return type(error), error.args


@pytest.mark.parametrize("name", ["eggs", "ham", "own", "none"])
def test_what_a_class_has_not_is_asked_of_its_metaclass(name):
    """Also where a descriptor raises AttributeError."""
    check(lambda x: (x + 1, asked(Spam, name), asked(Plain, name), hasattr(Spam, name), getattr(Spam, name, 3)), torch.ones(3))


def test_equal_aliases_and_unions_are_told_apart_by_their_parts():
    graphs = []
    function = lambda x, kind: (x + 1, kind.__args__, str(kind))
    compiled = optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1], recompile_limit=20)(function)
    kinds = [int | str, str | int, list[int | str], list[str | int], list[1], list[True], list[None], tuple[int, int], tuple[int]]
    for kind in (*kinds, *kinds):
        assert repr(compiled(torch.ones(2), kind)) == repr(function(torch.ones(2), kind))
    for kind in (int | str, list[int | str], tuple[int, int]):  # made anew
        assert repr(compiled(torch.ones(2), kind)) == repr(function(torch.ones(2), kind))
    assert len(graphs) == len(kinds)
