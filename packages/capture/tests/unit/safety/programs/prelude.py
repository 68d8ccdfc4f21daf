"""What every program begins with: classes, functions and globals that its statements use."""

__all__ = ["PRELUDE"]

PRELUDE = """\
import abc, array, bisect, collections, contextlib, contextvars, copy, dataclasses, datetime, decimal, enum, fractions, functools, hashlib, heapq
import inspect, io, itertools, json, logging, math, operator, os, pathlib, pickle, random, re, shlex, string, struct, sys, textwrap, threading, types
import typing, urllib.parse, warnings, weakref
from dataclasses import dataclass
import numpy as np
import torch, torch.utils.checkpoint, torch.utils.data

LOG = []
COUNT = 0
SHARED = {"a": 1, "b": [1, 2]}


@tracework_capture.disable
def note(*values):
    LOG.append([v.sum().item() if isinstance(v, torch.Tensor) else re.sub(" at 0x[0-9a-f]+", "", repr(v)) for v in values])


@tracework_capture.disable
def brk(value):
    LOG.append("plain")
    return value


def peek(value):
    LOG.append(value)
    return value


@contextlib.contextmanager
def scope(name, swallow=False):
    LOG.append("enter " + name)
    try:
        yield name
    except ValueError:
        LOG.append("caught in " + name)
        if not swallow:
            raise
    finally:
        LOG.append("leave " + name)


class Guarded:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, kind, value, trace):
        self.log.append("out" if kind is None else kind.__name__)
        return self.swallow and kind is not None and issubclass(kind, LookupError)


@dataclass
class Point:
    a: object
    b: int = 2
    def norm(self):
        return self.a * self.a + self.b


class Base:
    kind = "base"
    total = 0
    def __init__(self, value=1):
        self.value = value
        self.items = []
    def step(self, k):
        self.value = self.value + k
        self.items.append(k)
        return self
    @property
    def double(self):
        return self.value * 2
    @double.setter
    def double(self, v):
        self.value = v
    @classmethod
    def make(cls, v):
        cls.total += 1
        return cls(v)
    @staticmethod
    def plain(v):
        return v + 1
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __call__(self, v):
        return v + self.value
    def __eq__(self, other):
        return isinstance(other, Base) and type(self.value) is type(other.value) and not isinstance(self.value, torch.Tensor) and self.value == other.value
    def __hash__(self):
        return 7
    def __contains__(self, v):
        return any(v is i for i in self.items)
    def __repr__(self):
        return type(self).__name__


class Derived(Base):
    kind = "derived"
    def step(self, k):
        LOG.append("derived")
        return super().step(k + 1)
    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(name)
    def __add__(self, other):
        return Derived(self.value + (other.value if isinstance(other, Base) else other))
    def __radd__(self, other):
        return Derived(other + self.value)
    def __iter__(self):
        for i in list(self.items):
            yield i


class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__.get(self.name, 0)
    def __set__(self, instance, value):
        if isinstance(value, str):
            raise TypeError("no text")
        LOG.append("set " + self.name)
        instance.__dict__[self.name] = value


class Left(Base):
    def step(self, k):
        LOG.append("left")
        return super().step(k)
    @property
    def double(self):
        return super().double + 1
    @classmethod
    def make(cls, v):
        made = super().make(v)
        made.items.append(1)
        return made


class Right(Base):
    def step(self, k):
        return super(Right, self).step(k * 2)


class Both(Left, Right):
    field = Typed()
    registry = {}
    def __init__(self, *args, **more):
        super().__init__(*args)
        self.__dict__.update(more)
    def __init_subclass__(cls, **more):
        super().__init_subclass__()
        cls.registry[cls.__name__] = sorted(more)
    @functools.cached_property
    def cached(self):
        LOG.append("computed")
        return self.value
    def __setattr__(self, name, value):
        if name == "locked":
            raise AttributeError("locked " + name)
        super().__setattr__(name, value)
    def __setitem__(self, key, value):
        self.__dict__["auto"] = key
        self.__dict__[key] = value
    def __getitem__(self, key):
        return self.__dict__[key] if isinstance(key, str) else super().__getitem__(key)
    def __delitem__(self, key):
        del self.__dict__[key]
    def __iadd__(self, other):
        self.items.append(other)
        return self
    def __bool__(self):
        return len(self.items) < 3
    def __format__(self, spec):
        return spec + str(len(self.items))


@dataclass
class Record:
    name: str
    rows: list = dataclasses.field(default_factory=list)
    weight: object = None
    count: int = dataclasses.field(default=0, compare=False)
    def __post_init__(self):
        LOG.append("made " + self.name)
    def add(self, row):
        self.rows.append(row)
        self.count += 1
        return self
    @property
    def last(self):
        return self.rows[-1]


@dataclass(frozen=True, order=True)
class Key:
    name: str
    rank: int = 0


class Color(enum.Enum):
    RED = 1
    BLUE = 2
    def next(self):
        return Color(self.value % 2 + 1)


class Bag(dict):
    def __missing__(self, key):
        LOG.append("missing " + key)
        self[key] = 0
        return 0


class Stack(list):
    def push(self, value):
        self.append(value)
        return self
    def top(self):
        return super().__getitem__(-1)


class Meta(type):
    def __call__(cls, *args):
        LOG.append("make " + cls.__name__[:1])
        return super().__call__(*args)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.inner = torch.nn.ModuleList([torch.nn.PReLU(), torch.nn.Dropout(0.0)])
        self.register_buffer("seen", torch.zeros(()))
        self.gain = 2
    def forward(self, v, *, again=0):
        if self.training:
            self.seen += 1
        for part in self.inner:
            v = part(v.float())
        return self.forward(v, again=again - 1) if again > 0 else v * self.scale * self.gain


class Slots:
    __slots__ = ("a", "b")
    def __init__(self, a):
        self.a = a


Pair = collections.namedtuple("Pair", "left right")


class Oops(Exception):
    def __init__(self, what, code=3):
        super().__init__(what)
        self.code = code


def counter(n, log=LOG):
    try:
        for i in range(n):
            got = yield i
            if got:
                log.append(("sent", got))
    finally:
        log.append("counter ends")


def relay(n):
    got = yield from counter(n)
    yield n
    return got


def traced(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append("call " + str(len(args)))
        try:
            return fn(*args, **kwargs)
        finally:
            LOG.append("done")
    return wrapper


def twice(fn):
    return lambda p, q=1, **more: fn(fn(p, q), q)


def varargs(a, *rest, key=2, **more):
    return (a, rest, key, sorted(more))


net = Net()


def bump(by=1):
    global COUNT
    COUNT += by
    return COUNT


def copy_of(value):
    import copy
    return copy.copy(value)
"""
