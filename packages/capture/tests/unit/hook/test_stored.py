"""Stored entries serve another process where all is as it was, and no other: each case is a program as one process has it and as the
next one does. What the next one gives is always plain Python's."""

import builtins
import contextlib
import functools
import importlib.util
import inspect
import itertools
import marshal
import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy
import pytest
import torch
import tracework_capture as capture
from torch.overrides import TorchFunctionMode
from tracework_capture.contracts import ENTRIES, RECIPE, SYMBOLIC_SIZES
from tracework_capture.hook import compile_frame, stored

PROGRAM = """
import torch.nn.attention.flex_attention
import torch.nn.utils.parametrize
import collections
import dataclasses
import enum
import functools
import inspect
import numpy
import torch

SCALE = 2
LIMIT = 3.0
class Kind(enum.Enum):
    SUM = 1
class Order(enum.Enum):
    A = 1; B = 2
class Noted:
    a: int
    b: int

def factor():
    return 3

def outer():
    held = 5
    def inside(x):
        return x * held
    return inside

cell = outer()

def shifted(x, by=1):
    return x + by

class Base:
    gain = 7
    def twice(self, x):
        return x * 2
    @property
    def bias(self):
        return 11
    @staticmethod
    def third(x):
        return x / 3
    def __add__(self, x):
        return x + 100

class Model(Base, torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 2
    def forward(self, x):
        return self.third(self.twice(x)) + self.bias + self.gain * self.n + (self + x)

class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return x

def run(x):
    y = shifted(x) * SCALE + factor()
    y = y.clamp(max=LIMIT) if Kind.SUM.value == 1 else y - 1
    return cell(y) + x.sum(dtype=torch.get_default_dtype())

def uses(x):
    assert pow(SCALE, 1) == 2
    return x + pow(SCALE, 1) + len([x, x]) + (0 if str(SCALE) == "2" else 1)

def asked(x):
    first = {int: 3, float: 4}[Noted.__annotations__["a"]]
    return [x * k.value for k in Order], x + len(Order["A"].name) + Order(2).value + first

@dataclasses.dataclass
class Fields:
    a: int = 1
    b: int = 2

def of_fields(x):
    for field in dataclasses.fields(Fields):
        x = x * (field.default if field.init else 5)
    return x

def signed(x):
    return x + len(inspect.signature(shifted).parameters)

def coded(x):
    return x + shifted.__code__.co_argcount + torch._VF.relu(x) + torch.backends.mha._is_fastpath_enabled

def chosen(x, with_one, into):
    into.append(1)
    if with_one:
        x = x + SCALE
    return x

def broken(x):
    shown = []
    for n in range(2):
        x = shifted(x) * 2
        shown.append(n)
        print("between")
    try:
        x = x + factor()
        torch._dynamo.graph_break()
        x = x * SCALE
    except ValueError:
        pass
    return torch.relu(x), shown, (lambda: x.sum())()

Pair = collections.namedtuple("Pair", "left right")
class Flags(enum.IntFlag):
    A = 1; B = 2; C = 4
both = Flags.A | Flags.B

class Passed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.flags, self.pair = both, Pair(2, 3)
    @functools.cached_property
    def scale(self):
        return 5
    def forward(self, x):
        pair = Pair(x, self.pair.right)
        return pair.left * pair.right * self.scale + (7 if self.flags & Flags.B else 8)

def passes(x):
    return Passed().forward(x)

@functools.lru_cache(None)
def number_of(n):
    return n + 10

@functools.lru_cache(None)
def parts_of(n):
    return (n, (n + 1, 2.5))

@functools.lru_cache(None)
def table_of(n):
    return torch.arange(n) * 2.0

@functools.cache
def table_again(n):
    return table_of(n)

def remembering(x):
    one, (two, three) = parts_of(4)
    return x * number_of(3) * one * two * three + table_of(4) + (table_again(4) if both else x)

def chained(by):
    def decorate(function):
        def inner(*args):
            return function(*args) * by
        return inner
    return decorate

@functools.lru_cache(None)
@chained(3)
def tripled(n):
    return n + 1

class Wrapped:
    @chained(5)
    def times(self, x):
        return x * 2

def decorated(x):
    return Wrapped().times(x) * tripled(2)

def classes_of(n, by):
    class Inner:
        factor = 3
        def times(self, x):
            return x * self.factor * by
    class Outer(Inner, torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            torch.nn.utils.parametrize.register_parametrization(self.linear, "weight", Half())
        @property
        def n(self):
            return n
        def forward(self, x):
            return self.linear(self.times(x)) + self.n + isinstance(self, Inner)
    return Outer

class Half(torch.nn.Module):
    def forward(self, weight):
        return weight / 2

class One(classes_of(3, 1)): pass
Other = classes_of(3, 1)
two = (One(), Other())

def compared(x):
    return x + (2 if type(two[0]) is type(two[1]) else 3)

@functools.singledispatch
def kind_of(value, x):
    return x

@kind_of.register
def _(value: int, x):
    return x * value

@kind_of.register(str)
def of_text(value, x):
    return x + len(value)

class Mixer:
    @functools.singledispatchmethod
    def mix(self, value, x):
        return x
    @mix.register
    def _(self, value: int, x):
        return x * value * 2

class Scaled:
    def __init__(self, by):
        self.by = by
    def __get__(self, instance, owner):
        return self.by * 2

class Mixed(Mixer):
    scale = Scaled(4)

mixer = Mixed()

def dispatched(x):
    return mixer.scale * mixer.mix(3, kind_of("text", kind_of(3, x)))

def attends(x):
    def changed(score, b, h, i, j):
        return score * 2 + (i - j) * SCALE
    y = x.view(1, 1, 2, 2) if isinstance(SCALE, int | str) else -x.view(1, 1, 2, 2)
    return torch.nn.attention.flex_attention.flex_attention(y, y, y, score_mod=changed)

def arrays(x):
    return x * float(numpy.sqrt(16.0))

model = Model()
"""
REMEMBERS_INSTANCES = hasattr(functools.singledispatchmethod(len), "_method_cache")
"""As CPython 3.13's does, so that they are compared by identity, which no other process has."""
if REMEMBERS_INSTANCES:
    PROGRAM = PROGRAM.replace('mixer.mix(3, kind_of("text", kind_of(3, x)))', 'kind_of("text", kind_of(3, x))')


class Store:
    """An EntryStore in memory; recipes are numbers of callables."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.made: list[Any] = []

    def get(self, key: str) -> bytes | None:
        return self.kept.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.kept[key] = content

    def missed(self) -> None:
        pass

    def restore(self, recipe: Any) -> Any:
        return self.made[recipe]


def backend_of(store: Store) -> Any:
    def backend(gm: Any, inputs: Any) -> Any:
        def call(*given: Any) -> Any:
            return gm.forward(*given)

        call.__tracework_writes_last__ = True  # type: ignore[attr-defined]
        setattr(call, RECIPE, len(store.made))
        store.made.append(call)
        return call

    setattr(backend, ENTRIES, store)
    setattr(backend, SYMBOLIC_SIZES, True)
    return backend


class Process:
    """Runs the program's text as the module `program`, captured anew each time it is started."""

    def __init__(self, folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.store, self.captures = folder / "stored_program.py", Store(), 0
        self.set, self.numbers = monkeypatch.setattr, itertools.count()
        real = compile_frame.capture_frame

        def counted(given: Any, *args: Any) -> Any:
            self.captures += given.code.co_filename in (str(self.path), __file__)  # not of audit hooks that libraries install
            return real(given, *args)

        monkeypatch.setattr(compile_frame, "capture_frame", counted)

    def start(self, text: str = PROGRAM) -> ModuleType:
        capture.reset()
        self.set(stored, "PROCESS", str(next(self.numbers)))
        self.path.write_text(text)
        spec = importlib.util.spec_from_loader("stored_program", None, origin=str(self.path))
        assert spec is not None
        module = sys.modules["stored_program"] = importlib.util.module_from_spec(spec)
        exec(compile(text, str(self.path), "exec"), vars(module))
        self.captures = 0
        return module

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return capture.optimize(backend_of(self.store), **options)(function)(*args)


@pytest.fixture
def process(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    yield Process(tmp_path, monkeypatch)
    sys.modules.pop("stored_program", None)
    capture.reset()


X = torch.arange(4.0)
RUNS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "run": lambda module: module.run,
    "model": lambda module: module.model.forward,
    "uses": lambda module: module.uses,
    "broken": lambda module: module.broken,
    "asked": lambda module: module.asked,
    "coded": lambda module: module.coded,
    "fields": lambda module: module.of_fields,
    "signed": lambda module: module.signed,
    "plain": lambda module: module.Plain().forward,
    "passed": lambda module: module.passes,
    "remembering": lambda module: module.remembering,
    "decorated": lambda module: module.decorated,
    "arrays": lambda module: module.arrays,
    "attends": lambda module: module.attends,
    "dispatched": lambda module: module.dispatched,
    "local": lambda module: module.classes_of(2, 5)().forward,
    "compared": lambda module: module.compared,
}


class Change(NamedTuple):
    """What differs in the second process: texts of the program, what it does before the call, the call's argument, and options."""

    run: str = "run"
    old: str = ""
    new: str = ""
    does: Callable[[Any], object] = lambda module: None
    argument: Any = X
    served: bool = False
    options: dict[str, Any] = {}


def patched(module: Any) -> None:
    module.Model.twice = lambda self, x: x * 20


def another_class(module: Any) -> None:
    class Model(module.Base, torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.n = 2

        def forward(self, x: Any) -> Any:
            return x - 1000

    Model.__module__, Model.__qualname__ = "stored_program", "Model"
    module.model = module.Model = Model  # the class, then an instance
    module.model = Model()


def marked(module: Any) -> None:
    capture.substitute_in_graph(module.factor)(lambda: 30)


CHANGES = {
    "nothing": Change(served=True),
    "nothing, a model": Change("model", served=True),
    "nothing, modules": Change("plain", served=True),
    "nothing, breaks": Change("broken", served=True),
    "a callee behind a break": Change("broken", old="return 3", new="return 33"),
    "a global behind a break": Change("broken", old="SCALE = 2", new="SCALE = 4"),
    "the function": Change(old="return cell(y) + x.sum(", new="return cell(y) - x.sum("),
    "where the function is": Change(old="def run(x)", new="\n\ndef run(x)"),
    "a callee": Change(old="return 3", new="return 33"),
    "a callee, patched": Change(does=lambda m: setattr(m, "factor", lambda: 300)),
    "a marked callee": Change(does=marked),
    "a method": Change("model", old="return x * 2", new="return x * 22"),
    "a method, patched": Change("model", does=patched),
    "a static method": Change("model", old="return x / 3", new="return x / 33"),
    "a property": Change("model", old="return 11", new="return 12"),
    "a special method": Change("model", old="return x + 100", new="return x + 101"),
    "a class attribute": Change("model", old="gain = 7", new="gain = 8"),
    "a base class": Change(
        "model", old="class Model(Base, torch", new="class Other(Base):\n    gain = 9\nclass Model(Other, torch"
    ),
    "an instance's attribute": Change("model", old="self.n = 2", new="self.n = 3"),
    "another class of that name": Change("model", does=another_class),
    "a global": Change(old="SCALE = 2", new="SCALE = 4"),
    "a global, set": Change(does=lambda m: setattr(m, "SCALE", 6)),
    "a global of another type": Change(old="SCALE = 2", new="SCALE = 2.0"),
    "a cell": Change(old="held = 5", new="held = 6"),
    "a default": Change(old="by=1", new="by=10"),
    "a default, set": Change(does=lambda m: setattr(m.shifted, "__defaults__", (4,))),
    "nothing, classes": Change("asked", served=True),
    "the order of members": Change("asked", old="A = 1; B = 2", new="B = 2; A = 1"),
    "the values of members": Change("asked", old="A = 1; B = 2", new="A = 2; B = 3"),
    "annotations": Change("asked", old="a: int", new="a: float"),
    "nothing, code and modules of torch": Change("coded", served=True),
    "code that is read": Change("coded", old="def shifted(x, by=1)", new="def shifted(x, by=1, more=2)"),
    "a setting of a module of torch": Change("coded", does=lambda m: torch.backends.mha.set_fastpath_enabled(False)),
    "nothing, fields": Change("fields", served=True),
    "a field's default": Change("fields", old="b: int = 2", new="b: int = 3"),
    "a field's flags": Change("fields", old="b: int = 2", new="b: int = dataclasses.field(default=2, init=False)"),
    "a field more": Change("fields", old="b: int = 2", new="b: int = 2; c: int = 3"),
    "nothing, a signature": Change("signed", served=True),
    "an argument's default": Change("signed", old="by=1", new="by=10"),
    "an argument's annotation": Change("signed", old="by=1", new="by: float = 1"),
    "a signature of its own": Change("signed", does=lambda m: setattr(m.shifted, "__signature__", inspect.Signature())),
    "a member's value": Change(old="SUM = 1", new="SUM = 2"),
    "a function of torch": Change("plain", does=lambda m: setattr(torch.nn.functional, "gelu", torch.relu)),
    "a method of torch": Change("plain", does=lambda m: setattr(torch.nn.Linear, "forward", lambda self, x: x @ self.weight.t())),
    "a hook": Change("plain", does=lambda m: torch.nn.modules.module.register_module_forward_hook(lambda *a: a[2] * 2)),
    "a builtin": Change("uses", does=lambda m: setattr(builtins, "pow", lambda *a: 2)),
    "a builtin, shadowed": Change("uses", does=lambda m: setattr(m, "pow", lambda *a: 2)),
    "nothing, builtins": Change("uses", served=True),
    "nothing, flags and named tuples": Change("passed", served=True),
    "the value of a flag": Change("passed", old="A = 1; B = 2; C = 4", new="A = 1; B = 8; C = 4"),
    "flags": Change("passed", old="Flags.A | Flags.B", new="Flags.A | Flags.C"),
    "the fields of a named tuple": Change("passed", old='"left right"', new='"right left"'),
    "a cached property": Change("passed", old="return 5", new="return 6"),
    "what a cached property becomes": Change("passed", old="@functools.cached_property", new="@property"),
    "nothing, what is remembered": Change("remembering", served=True),
    "a remembered number": Change("remembering", old="return n + 10", new="return n + 11"),
    "how a number is remembered": Change("remembering", old="return n + 10", new="return 10 + n"),
    "a remembered tuple": Change("remembering", old="(n + 1, 2.5)", new="(n + 1, 3.5)"),
    "a remembered tensor": Change("remembering", old="torch.arange(n) * 2.0", new="torch.arange(n) * 3.0"),
    "a remembered dtype": Change("remembering", old="torch.arange(n) * 2.0", new="torch.arange(n).double()"),
    "two remembered tensors": Change("remembering", old="return table_of(n)", new="return table_of(n) + 1"),
    "who remembers no more": Change("remembering", old="@functools.cache\n", new=""),
    "who remembers, replaced": Change("remembering", does=lambda m: setattr(m, "number_of", lambda n: 100)),
    "nothing, decorators": Change("decorated", served=True),
    "a decorator": Change("decorated", old="function(*args) * by", new="function(*args) + by"),
    "what a decorator is given": Change("decorated", old="@chained(5)", new="@chained(6)"),
    "a decorated method": Change("decorated", old="return x * 2\n\ndef decorated", new="return x * 4\n\ndef decorated"),
    "a decorated function": Change("decorated", old="def tripled(n):\n    return n + 1", new="def tripled(n):\n    return n + 2"),
    "nothing, local classes": Change("local", served=True),
    "a local class's attribute": Change("local", old="factor = 3", new="factor = 4"),
    "a local class's method": Change("local", old="x * self.factor * by", new="x * by / self.factor"),
    "what a local class closes over": Change(
        "local", old="return n\n        def forward", new="return n\n        x = by\n        def forward"
    ),
    "a local class's base": Change(
        "local", old="class Outer(Inner,", new="class Between(Inner): factor = 9\n    class Outer(Between,"
    ),
    "a local class's property": Change("local", old="return n\n        def forward", new="return -n\n        def forward"),
    "a parametrization": Change("local", old="weight / 2", new="weight / 4"),
    "no parametrization": Change(
        "local", old='torch.nn.utils.parametrize.register_parametrization(self.linear, "weight", Half())', new=""
    ),
    "nothing, two classes": Change("compared", served=True),
    "two classes that are one": Change(
        "compared", old="class One(classes_of(3, 1)): pass\nOther = classes_of(3, 1)", new="One = Other = classes_of(3, 1)"
    ),
    "nothing, dispatch": Change("dispatched", served=True),
    "what is called for a class": Change("dispatched", old="return x * value\n", new="return x + value\n"),
    "a class that something is called for": Change("dispatched", old="register(str)", new="register(bytes)"),
    "a class more": Change("dispatched", does=lambda m: m.kind_of.register(str, lambda value, x: x)),
    "what a method calls for a class": Change("dispatched", old="value * 2", new="value * 4"),
    "what a descriptor does": Change("dispatched", old="self.by * 2", new="self.by * 3"),
    "what a descriptor holds": Change("dispatched", old="Scaled(4)", new="Scaled(5)"),
    "nothing, attention": Change("attends", served=True),
    "what changes the scores": Change("attends", old="score * 2 +", new="score / 2 +"),
    "what changes the scores reads": Change("attends", old="SCALE = 2", new="SCALE = 3"),
    "nothing, arrays": Change("arrays", served=True),
    "the default dtype": Change(does=lambda m: torch.set_default_dtype(torch.float64)),
    "sizes": Change(argument=torch.arange(5.0)),
    "a dtype": Change(argument=X.double()),
    "requires grad": Change(argument=torch.ones(4, requires_grad=True)),
    "an option": Change(options={"dynamic": True}, argument=torch.arange(6.0)),
}

if REMEMBERS_INSTANCES:
    del CHANGES["what a method calls for a class"]


@pytest.fixture
def restored() -> Iterator[None]:
    """What the cases change of torch."""
    functional, linear, dtype = torch.nn.functional.gelu, torch.nn.Linear.forward, torch.get_default_dtype()
    power = pow
    yield
    builtins.pow = power  # type: ignore[misc]
    torch.nn.functional.gelu = functional
    torch.nn.Linear.forward = linear  # type: ignore[method-assign]
    torch.set_default_dtype(dtype)
    torch.backends.mha.set_fastpath_enabled(True)
    torch.nn.modules.module._global_forward_hooks.clear()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_process(process: Process, restored: None, change: Change) -> None:
    with torch.no_grad():
        torch.manual_seed(0)
        module = process.start()
        process.call(RUNS[change.run](module), X)
        assert process.captures and process.store.kept
        torch.manual_seed(0)
        assert change.old in PROGRAM
        module = process.start(PROGRAM.replace(change.old, change.new) if change.old else PROGRAM)
        change.does(module)
        function = RUNS[change.run](module)
        expected = function(change.argument)
        found = process.call(function, change.argument, **change.options)
    assert repr(found) == repr(expected) and type(found) is type(expected)
    assert (process.captures == 0) is change.served


def test_objects_are_those_of_the_process(process: Process) -> None:
    text = PROGRAM + "\nfixed = object()\ndef refers(x):\n    return x + 1, fixed\n"
    for captures in (1, 0):
        module = process.start(text)
        assert process.call(module.refers, X)[1] is module.fixed and process.captures == captures


class Passing(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_under_a_function_mode(process: Process, recwarn: pytest.WarningsRecorder) -> None:
    for manager in contextlib.nullcontext(), Passing():
        module = process.start()
        with torch.no_grad(), manager:
            assert torch.equal(process.call(module.run, X), module.run(X)) and process.captures
    assert not [each for each in recwarn if issubclass(each.category, capture.UncompiledWarning)]


def test_what_is_no_entry(process: Process) -> None:
    module = process.start()
    process.call(module.run, X)
    (key,) = process.store.kept
    process.store.kept[key] = b"no entry"
    module = process.start()
    assert torch.equal(process.call(module.run, X), module.run(X)) and process.captures == 1


NOT_STORED = {
    "a marked function": "return x + told()",
    "an operator of the program's": "return torch.ops.stored_entries.shift(x)",
    "an operator behind a write": "global written; written = x; return torch.ops.stored_entries.made(x) + 1",
    "a hash": "return x + hash('a') % 7",
    "a method for hashes": "return x + 'a'.__hash__() % 7",
    "a number of an object": "return x + id(factor) % 7",
    "a text with an address": "return x + len(repr(refused))",
    "the order of a set": "return sum(x * i * len(n) for i, n in enumerate({'a', 'bb', 'ccc'}))",
    "a set that is given back": "return x + 1, {'a', 'bb', 'ccc'} | {'d'}",
    "a set as a text": "return x + str({'a', 'bb'}).index('bb')",
    "a member of a set": "return x + len({'a', 'bb'}.pop())",
    "a class that is registered": "return x + isinstance(One(), Abstract)",
}
OTHERS = """
import abc
import tracework_capture as capture
class One: pass
class Abstract(abc.ABC): pass
Abstract.register(One)
@capture.assume_constant_result
def told():
    return 1
def refused(x):
    {}
"""


@pytest.fixture(scope="module")
def operator() -> Iterator[None]:
    library = torch.library.Library("stored_entries", "DEF")
    library.define("shift(Tensor x) -> Tensor")
    library.impl("shift", lambda x: x + 1, "CompositeExplicitAutograd")
    library.impl("shift", lambda x: torch.empty_like(x), "Meta")
    made = torch.library.custom_op("stored_entries::made", torch.sin, mutates_args=(), schema="(Tensor x) -> Tensor")
    made.register_fake(torch.empty_like)
    yield
    library._destroy()
    del made


@pytest.mark.parametrize("text", NOT_STORED.values(), ids=NOT_STORED)
def test_what_is_not_stored(process: Process, operator: None, text: str) -> None:
    for _ in range(2):
        module = process.start(PROGRAM + OTHERS.format(text))
        with torch.no_grad():
            assert repr(process.call(module.refused, X)) == repr(module.refused(X))
        assert process.captures


TRAINED = (
    PROGRAM
    + """
from torch.utils.checkpoint import checkpoint

def half(x):
    return x / 2

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3

class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
    def forward(self, x):
        return checkpoint(half, self.norm(self.linear(x)) * factor(), use_reentrant=False)

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        return Function.apply(x * self.weight)

rate = 2

def gradient_of(ctx, gradient):
    return gradient * rate

scale = torch.ops.stored_entries.made
torch.library.register_autograd("stored_entries::made", gradient_of)

class Operated(Own):
    def forward(self, x):
        return scale(x * self.weight)

def updating(optimizer):
    def update():
        optimizer.step()
    return update
"""
)


class Trains(NamedTuple):
    """What differs in the second process when a model is trained: texts, what it does to the model, and around it."""

    kind: str = "Trained"
    old: str = ""
    new: str = ""
    does: Callable[[Any], object] = lambda model: None
    around: Callable[[], Any] = contextlib.nullcontext
    served: bool = False


def frozen(model: Any) -> None:
    model.linear.weight.requires_grad_(False)


def doubled(*given: Any) -> Any:
    return tuple(gradient * 2 for gradient in given[-2])


TRAINING = {
    "nothing": Trains(served=True),
    "a callee": Trains(old="return 3", new="return 33"),
    "what a checkpoint runs": Trains(old="x / 2", new="x / 4"),
    "a parameter without a gradient": Trains(does=frozen),
    "other statistics": Trains(does=lambda model: model.norm.running_mean.fill_(3), served=True),
    "evaluation": Trains(does=lambda model: model.eval()),
    "a hook of a module": Trains(does=lambda model: model.linear.register_forward_hook(lambda *given: given[-1] * 2)),
    "a hook of a backward": Trains(does=lambda model: model.norm.register_full_backward_hook(doubled)),
    "a parametrization": Trains(does=lambda model: torch.nn.utils.parametrizations.weight_norm(model.linear)),
    "casts": Trains(around=lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "hooks of what is saved": Trains(
        around=lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t), served=True
    ),
    "a Function": Trains("Own", served=True),
    "the forward of a Function": Trains("Own", old="return x * 1", new="return x * 2"),
    "an operator": Trains("Operated", served=True),
    "the backward of an operator": Trains("Operated", old="gradient * rate", new="gradient / rate"),
    "what the backward of an operator reads": Trains("Operated", old="rate = 2", new="rate = 3"),
    "the backward of a Function": Trains("Own", old="gradient * 3", new="gradient * 4"),
}


def step(process: Process, change: Trains, text: str, changed: bool) -> tuple[list[Any], list[Any]]:
    """What a training step gives, and plain Python's."""
    module = process.start(text)
    results = []
    for compiled in (True, False):
        torch.manual_seed(0)
        model, x = getattr(module, change.kind)(), torch.rand(3, 4, requires_grad=True)
        if changed:
            change.does(model)
        with change.around() if changed else contextlib.nullcontext():
            y = process.call(model.forward, x) if compiled else model(x)
            y.square().sum().backward()
        results.append([y.detach(), x.grad, *(p.grad for p in model.parameters()), *model.buffers()])
    return results[0], results[1]


@pytest.mark.parametrize("change", TRAINING.values(), ids=TRAINING)
def test_training_in_another_process(process: Process, operator: None, change: Trains) -> None:
    for changed in (False, True):
        text = TRAINED.replace(change.old, change.new) if changed and change.old else TRAINED
        found, expected = step(process, change, text, changed)
        assert repr(found) == repr(expected)
    assert (process.captures == 0) is change.served


def sgd(parameters: Any, **options: Any) -> Any:
    return torch.optim.SGD(parameters, **{"lr": 0.5, "momentum": 0.5, **options})


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "nothing": sgd,
    "another optimizer": torch.optim.Adam,
    "a rate": lambda parameters: sgd(parameters, lr=0.25),
    "a momentum": lambda parameters: sgd(parameters, momentum=0.25),
    "weight decay": lambda parameters: sgd(parameters, weight_decay=0.5),
    "fewer parameters": lambda parameters: sgd(parameters[:1]),
    "another order": lambda parameters: sgd(parameters[::-1]),
    "two groups": lambda parameters: sgd([{"params": [parameters[0]]}, {"params": [parameters[1]], "lr": 1.0}]),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_in_another_process(process: Process, operator: None, make: Callable[[Any], Any]) -> None:
    for made in (sgd, make):
        module, results = process.start(TRAINED), []
        for compiled in (True, False):
            parameters = [torch.nn.Parameter(torch.ones(n, n)) for n in (2, 3)]
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, 2.0)
            optimizer = made(parameters)
            update = module.updating(optimizer)
            for _ in range(3):
                process.call(update) if compiled else update()
            results.append([*map(repr, parameters), repr(optimizer.state_dict()["state"])])
        assert results[0] == results[1]
    assert (process.captures == 0) is (make is sgd)


def test_callbacks_of_one_code_keep_each_others_entries(process: Process) -> None:
    for captures in (3, 0):
        run = process.start().run
        one, other = (capture.optimize(backend_of(process.store))(run) for _ in range(2))
        for function, dtype in ((one, torch.float32), (other, torch.float64), (one, torch.float16)):
            function(X.to(dtype))
        assert process.captures == captures


def test_many_modules_of_one_class(process: Process) -> None:
    for captures in (12, 0):
        module = process.start()
        for number in range(12):
            model = module.Model()
            model.n = 100 + number
            assert torch.equal(process.call(model.forward, X), model.forward(X))
        assert process.captures == captures


def test_a_program_that_is_edited_again_and_again(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MOST_ENTRIES", 3)
    for number in (1, 2, 3, 4, 5, 5, 3):
        module = process.start(PROGRAM.replace("return 3", f"return {number}"))
        assert torch.equal(process.call(module.run, X), module.run(X))
    (kept,) = map(marshal.loads, process.store.kept.values())
    assert len(kept) == 3 and process.captures == 0
    looked_at = []
    monkeypatch.setattr(
        stored, "loads", lambda data, *given, real=stored.loads: looked_at.append(data["number"]) or real(data, *given)
    )
    module = process.start(PROGRAM.replace("return 3", "return 5"))
    process.call(module.run, X)
    assert looked_at == [kept[0]["number"]] and process.captures == 0  # the latest first


PLAIN = {
    # flag, calls -> how many of them look for something to compile where another process has found nothing for a flag of False
    "as before": (False, 2, 0),
    "often": (False, 4, 1),
    "another flag": (True, 1, 1),
}


@pytest.mark.parametrize(("flag", "calls", "captures"), PLAIN.values(), ids=PLAIN)
def test_frames_without_anything_to_compile(
    process: Process, monkeypatch: pytest.MonkeyPatch, flag: bool, calls: int, captures: int
) -> None:
    monkeypatch.setattr(stored, "TRUSTED", 3)
    assert process.call(process.start().chosen, X, False, [0]) is X and process.captures == 1
    module, into = process.start(), [0]
    function = capture.optimize(backend_of(process.store))(module.chosen)
    for _ in range(calls):
        assert torch.equal(function(X, flag, into), X + 2 * flag)
    assert into == [0, *[1] * calls] and process.captures == captures


COUNTED = """
import functools
import torch

@functools.cache
def factor(n):
    return n + 1

@functools.lru_cache
def weights(n):
    return torch.ones(n)

def run(x):
    return x * factor(2) + weights(4)
"""


def test_what_functions_count_is_what_the_program_asks(process: Process) -> None:
    process.call(process.start(COUNTED).run, X)
    module = process.start(COUNTED)
    for calls in range(3):
        process.call(module.run, X)
        found = [module.factor.cache_info(), module.weights.cache_info()]
        assert [(info.hits, info.misses) for info in found] == [(calls, 1)] * 2
    assert process.captures == 0


FAILING = """
def run(x):
    y = x + 1
    print("between")
    y = y * 2
    raise ValueError(y)
"""


def test_cells_of_another_process(process: Process) -> None:
    """A notebook's folder has the number of its process: tracebacks name the present one."""
    folder = process.path.parent
    for number, captures in ((1, 1), (2, 0)):
        process.path = folder.joinpath(f"ipykernel_{number}", "12.py")
        process.path.parent.mkdir(exist_ok=True)
        with pytest.raises(ValueError) as raised:
            process.call(process.start(FAILING).run, X)
        files = [entry.frame.code.raw.co_filename for entry in raised.traceback if entry.name == "run"]
        assert files and set(files) == {str(process.path)} and process.captures == captures


NOT_SERVED = {
    # what functions read as several processes have it, each of which stores an entry, and as the last one does -> whether that captures
    "another kind": (["float32"], "float64", True),
    "two other kinds": (["float32", "bfloat16"], "float64", True),
    "the first of two": (["float32", "float64"], "float32", False),
}


@pytest.mark.parametrize(("before", "now", "captures"), NOT_SERVED.values(), ids=NOT_SERVED)
def test_what_an_entry_asked_that_does_not_serve_is_asked_once(
    process: Process, before: list[str], now: str, captures: bool
) -> None:
    text = COUNTED.replace("torch.ones(n)", "torch.ones(n, dtype=getattr(torch, KIND))") + "\nKIND = "
    for kind in before:
        process.call(process.start(text + repr(kind)).run, X)
    module = process.start(text + repr(now))
    run = capture.optimize(backend_of(process.store))(module.run)
    for calls in range(3):
        assert run(X).dtype == getattr(torch, now)
        found = [module.factor.cache_info(), module.weights.cache_info()]
        assert [(info.hits, info.misses) for info in found] == [(calls, 1)] * 2
    assert process.captures == captures


DRAWING = """
import numpy
import random
import torch

def of_torch(x, generator):
    generator.manual_seed(7)
    noise = x.clone().uniform_(generator=generator) + torch.randint(0, 9, (4,), generator=generator)
    return x + torch.randn(4, generator=generator) + noise + torch.randperm(4, generator=generator)

def of_python(x, generator):
    random.seed(4)
    return x * random.random() + random.randint(1, 9) + generator.choice([1, 2, 3]) + generator.uniform(2, 3)

def of_numpy(x, generator):
    numpy.random.seed(4)
    return x * numpy.random.rand() + torch.from_numpy(generator.normal(size=4))

def of_new_generator(x, generator):
    made = torch.Generator().manual_seed(3)
    noise = torch.rand(4, generator=made)
    return x + noise + torch.randn(4, generator=made.manual_seed(4)) + torch.randn(4, generator=torch.Generator().manual_seed(4))

def of_no_generator(x, generator):
    kinds = list[torch.Tensor]
    return x + len(kinds.__args__)
"""
GENERATORS: dict[str, Callable[[], Any]] = {
    "of_torch": torch.Generator,
    "of_python": lambda: random.Random(3),
    "of_numpy": lambda: numpy.random.default_rng(3),
    "of_new_generator": lambda: None,
    "of_no_generator": lambda: None,
}


@pytest.mark.parametrize("name", GENERATORS)
def test_what_is_drawn_from_generators(process: Process, name: str) -> None:
    for captures in (1, 0):
        module, ours, theirs = process.start(DRAWING), GENERATORS[name](), GENERATORS[name]()
        run = capture.optimize(backend_of(process.store))(getattr(module, name))
        for _ in range(2):
            assert torch.equal(run(X, ours), getattr(module, name)(X, theirs))
        assert process.captures == captures
    if name == "of_torch":  # the default one, whose numbers the graph draws in another order
        process.start(DRAWING)
        process.call(sys.modules["stored_program"].of_torch, X, torch.default_generator)
        assert process.captures


TRANSFORMED = """
import torch

def doubled(x):
    return x.cumsum(0) * 2

def product(x, y):
    return (x * x * y * y * y).sum()

def made():
    return torch.func.vmap(lambda x: doubled(x), in_dims=0), torch.func.grad(lambda *given: product(*given), argnums=0)

class Held:
    each = torch.vmap(doubled, in_dims=0)
    of_one = torch.func.jacrev(product, argnums=0)
    second = torch.func.hessian(product)

def run(x, functions):
    each, gradient = functions
    held = Held.second(x, x)
    return each(x), gradient(x, x), Held.each(x), Held.of_one(x, x + 1), held
"""
TRANSFORMS = {
    # texts of the first process -> of the second, which captures unless they are the same
    "nothing": ("", ""),
    "dims": ("lambda x: doubled(x), in_dims=0", "lambda x: doubled(x), in_dims=1"),
    "dims of what a class holds": ("vmap(doubled, in_dims=0)", "vmap(doubled, in_dims=1)"),
    "which gradient": ("product(*given), argnums=0", "product(*given), argnums=1"),
    "which gradient of what a class holds": ("product, argnums=0", "product, argnums=1"),
    "what is transformed": ("lambda x: doubled(x)", "lambda x: doubled(x) + 1"),
    "what that calls": ("x.cumsum(0) * 2", "x.cumsum(0) * 3"),
    "another function": ("jacrev(product", "jacrev(lambda x, y: product(x, y) * 2"),
}


@pytest.mark.parametrize(("old", "new"), TRANSFORMS.values(), ids=TRANSFORMS)
def test_functions_that_were_transformed_before(process: Process, old: str, new: str) -> None:
    x = torch.arange(9.0).view(3, 3)
    for text in (TRANSFORMED, TRANSFORMED.replace(old, new)):
        module = process.start(text)
        functions = module.made()
        found, expected = process.call(module.run, x, functions), module.run(x, functions)
        assert all(map(torch.allclose, found, expected))
    assert bool(process.captures) == bool(old)


GETTING = """
import operator
ITEM, NAME, CALL = operator.itemgetter(0), operator.attrgetter("T"), operator.methodcaller("mul", 2)

def run(x):
    return CALL(NAME(x)) + ITEM([5, 9])
"""
GETTERS = {
    "nothing": ("", ""),
    "an item": ("(0)", "(1)"),
    "a name": ('"T"', '"mT"'),
    "an argument": (", 2", ", 3"),
    "a method": ("mul", "add"),
}


@pytest.mark.parametrize(("old", "new"), GETTERS.values(), ids=GETTERS)
def test_what_getters_get(process: Process, old: str, new: str) -> None:
    x = torch.arange(4.0).view(2, 2)
    for text in (GETTING, GETTING.replace(old, new) if old else GETTING):
        module = process.start(text)
        assert torch.equal(process.call(module.run, x), module.run(x))
    assert process.captures == bool(old)
