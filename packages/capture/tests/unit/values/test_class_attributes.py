"""Assignments to attributes of classes: seen by what follows in the frame, in place when the call is over, or after a break."""

import functools
import inspect
import re
import types

import pytest
import torch
from torch import nn
from tracework_capture.hook.context import optimize


class Settings:
    """Switches of a library, as gpytorch has them."""

    flag = False
    count = 0
    items = ()

    @classmethod
    def set_flag(cls, value):
        cls.flag = value


class Narrow(Settings):
    pass


class Switched:
    """Sets what it inherits on the class itself."""

    def __init__(self, cls, value):
        self.cls, self.value = cls, value

    def __enter__(self):
        self.before = self.cls.flag
        self.cls.set_flag(self.value)

    def __exit__(self, *args):
        self.cls.set_flag(self.before)
        return False


class Counted:
    made = 0

    def __init__(self):
        type(self).made += 1


class CountedModule(nn.Module):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return x * 2


class Doubling(type):
    def __setattr__(cls, name, value):
        super().__setattr__(name, value * 2)


class Doubled(metaclass=Doubling):
    size = 1


class Readable(type):
    @property
    def flag(cls):
        return "of the metaclass"

    @flag.setter
    def flag(cls, value):
        type.__setattr__(cls, "kept", value)


class Read(metaclass=Readable):
    kept = None


module, instance, narrow = CountedModule(), Settings(), Narrow()
CLASSES = (Settings, Narrow, Counted, CountedModule, Doubled, Read)


@pytest.fixture(autouse=True)
def as_they_were():
    """The classes get back what they had."""
    kept = [(cls, dict(vars(cls))) for cls in CLASSES]
    restore = functools.partial(put_back, kept)
    yield restore
    restore()


def put_back(kept):
    for cls, attributes in kept:
        for name in [n for n in vars(cls) if n not in attributes]:
            type.__delattr__(cls, name)
        for name, value in attributes.items():
            if not name.startswith("__"):
                type.__setattr__(cls, name, value)


def state():
    """What the classes hold, in their order."""
    return [{n: repr(v) for n, v in vars(cls).items() if type(v) is not types.FunctionType} for cls in CLASSES]


def same_as_plain(f, restore, breaks=0, calls=3):
    """Calls of f give what they give in plain Python, and leave the classes as those do. Gives how many graphs there were."""
    x, plain = torch.arange(3.0), []
    for _ in range(calls):
        plain.append((f(x), state(), [list(vars(cls)) for cls in CLASSES]))
    restore()
    graphs = []
    compiled = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=not breaks)(f)
    for expected, held, order in plain:
        actual = compiled(x)
        torch.testing.assert_close(actual[0], expected[0])
        assert actual[1:] == expected[1:]
        assert state() == held
        assert [list(vars(cls)) for cls in CLASSES] == order
    return len(graphs)


def assigned(x):
    Settings.flag = True
    return x + 1, Settings.flag, instance.flag, Narrow.flag, narrow.flag


def by_class_method(x):
    Narrow.set_flag(4)
    return x + Narrow.flag, narrow.flag, Settings.flag


def in_the_middle_of_an_order(x):
    Narrow.flag = 1
    Settings.flag = 2
    Settings.other, Narrow.another = 3, 4
    Settings.other = 5
    return x + 1, Settings.flag, Narrow.flag, Narrow().other, hasattr(instance, "another")


def managed(x):
    with Switched(Settings, True):
        inside = x * 2 if Settings.flag else x
    with Switched(Narrow, 3):
        inside = inside * Narrow.flag
    return inside, Settings.flag, Narrow.flag


def with_a_tensor(x):
    Settings.kept = x * 2
    Settings.items = [x]
    Settings.items.append(x + 1)
    return Settings.kept + instance.items[1], len(Settings.items)


def of_its_instance(x):
    Settings.itself = instance
    return x + 1, instance.itself.itself is instance, Settings.itself.flag


def by_the_metaclass(x):
    Doubled.size = 5
    return x + Doubled.size, Doubled.size


def of_an_exception(x):
    class Refusal(Exception):
        reason = "none"

    try:
        Settings.flag = 7
        raise Refusal
    except Refusal as refusal:
        return x + 1, refusal.reason, Settings.flag


def with_names_given(x):
    setattr(Settings, "na" + "me", x.shape[0])
    return x + getattr(Settings, "name"), hasattr(Narrow, "name")  # noqa: B009


WHOLE = [
    assigned,
    by_class_method,
    in_the_middle_of_an_order,
    managed,
    with_a_tensor,
    of_its_instance,
    by_the_metaclass,
    of_an_exception,
    with_names_given,
]


@pytest.mark.parametrize("f", WHOLE, ids=lambda f: f.__name__)
def test_an_assignment(f, as_they_were):
    assert same_as_plain(f, as_they_were) <= 2


def counted(x):
    Counted(), Counted()
    return x * Counted.made, Counted.made


def counted_calls(x):
    return module(x), CountedModule.calls, module.calls


def summed(x):
    Settings.count += 0.5
    return x * Settings.count + Settings.count, instance.count


@pytest.mark.parametrize("f", [counted, counted_calls, summed], ids=lambda f: f.__name__)
def test_a_counter(f, as_they_were):
    assert same_as_plain(f, as_they_were, calls=8) <= 3


@functools.lru_cache
def remembered():
    return Settings.flag


@functools.lru_cache
def remembered_of(settings):
    return settings.flag


def read_by_what_remembers(x):
    Settings.flag = 7
    return x + 1, remembered(), remembered_of(narrow)


def read_past_the_class(x):
    Settings.flag = 7
    return x + 1, vars(Settings)["flag"], inspect.getattr_static(Narrow, "flag"), sorted(vars(Narrow))


def a_method(x):
    Settings.set_flag = lambda value: value * 2
    return x + 1, Settings.set_flag(3)


always_four = property(lambda self: 4)


def of_a_descriptor(x):
    Settings.flag = always_four
    return x + 1, instance.flag


def special(x):
    Counted.__len__ = lambda self: 3
    return x + 1, len(Counted())


def set_by_the_metaclass(x):
    Read.flag = 3
    return x + 1, Read.flag, Read.kept


def called_with_no_object(x):
    try:
        Settings.__setattr__("flag", 3)
    except TypeError:
        return x + 1, Settings.flag
    return x + 1, None


def of_a_type_in_c(x):
    try:
        int.flag = 3
    except TypeError as refusal:
        return x + 1, str(refusal)
    return x + 1, None


def deleted(x):
    Narrow.flag = 3
    before = narrow.flag
    del Narrow.flag
    return x + 1, before, narrow.flag


def before_a_break(x):
    Narrow.flag = 3
    print(end="")
    return x + 1, sorted(vars(Narrow)), narrow.flag


BROKEN = [
    read_by_what_remembers,
    read_past_the_class,
    a_method,
    of_a_descriptor,
    special,
    set_by_the_metaclass,
    called_with_no_object,
    of_a_type_in_c,
    deleted,
    before_a_break,
]


@pytest.mark.parametrize("f", BROKEN, ids=lambda f: f.__name__)
def test_what_is_left_to_plain_python(f, as_they_were):
    def restore():
        as_they_were()
        remembered.cache_clear()
        remembered_of.cache_clear()

    restore()
    same_as_plain(f, restore, breaks=1)


def test_what_the_class_had_is_noticed_where_the_program_stores():
    """A descriptor in its place, another class that has it, and none."""

    class Base:
        pass

    class Kind(Base):
        flag = 1

    def f(x):
        Kind.flag = 2
        return x + Kind.flag + Kind().flag

    x = torch.ones(2)
    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    stored = []
    changes = [
        lambda: None,
        lambda: setattr(Kind, "flag", property(lambda self: 5, lambda self, value: stored.append(value))),
        lambda: delattr(Kind, "flag"),
        lambda: setattr(Base, "flag", 3),
    ]
    for change in changes:
        change()
        assert compiled(x).tolist() == [5.0, 5.0]
        assert vars(Kind)["flag"] == 2
    assert not stored


HOLDER = Settings()
TABLE = {"scale": 2.0}
SCALE = 2.0


@torch.library.custom_op("tracework_class_attributes::scaled", mutates_args=())
def scaled(x: torch.Tensor, of: str) -> torch.Tensor:
    return x * {"class": Settings.count, "object": HOLDER.count, "dict": TABLE["scale"], "global": SCALE}[of]


scaled.register_fake(lambda x, of: torch.empty_like(x))


def write(of, value):
    global SCALE
    if of == "class":
        Settings.count = value
    elif of == "object":
        HOLDER.count = value
    elif of == "dict":
        TABLE["scale"] = value
    else:
        SCALE = value


@pytest.mark.parametrize("call", [scaled, torch.ops.tracework_class_attributes.scaled], ids=["definition", "operator"])
@pytest.mark.parametrize("of", ["class", "object", "dict", "global"])
def test_a_custom_operator_sees_what_was_written_before_its_call(call, of):
    def f(x):
        write(of, 3.0)
        first = call(x, of)
        write(of, 5.0)
        return first, call(x, of)

    def reads_only(x):
        return call(x, of) + call(x, of)

    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    for _ in range(2):
        assert [r.tolist() for r in compiled(torch.ones(2))] == [[3.0, 3.0], [5.0, 5.0]]
    whole = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(reads_only)
    assert whole(torch.ones(2)).tolist() == [10.0, 10.0]


def test_a_class_that_nothing_can_be_stored_in_raises_at_the_assignment():
    def program(x):
        try:
            re.Pattern.flags = None
        except TypeError as error:
            return x + 1, str(error)

    assert optimize(lambda gm, inputs: gm.forward)(program)(torch.ones(2))[1] == program(torch.ones(2))[1]


class Described:
    """Has descriptors of the library that are written in Python, which give a new object, or themselves, when they are read of the class."""

    def scaled(self, factor, x):
        return factor * x

    by_three = functools.partialmethod(scaled, 3)
    of_class = functools.partialmethod(classmethod(lambda cls, factor, x: factor * x), 3)
    of_partial = functools.partialmethod(functools.partial(lambda number, self, x: number * x, 3))

    @functools.singledispatchmethod
    def dispatched(self, x):
        return x * 2

    @dispatched.register
    def _(self, x: list):
        return x[0] * 4

    @functools.cached_property
    def kept(self):
        return 3


def of_dispatched(x):
    return Described.dispatched(Described(), x), Described.dispatched(Described(), [x])


def of_partial_method(x):
    return Described.by_three(Described(), x), Described.of_class(x), Described.of_partial(Described(), x)


def of_cached(x):
    return Described.kept.func(Described()) * x, Described.kept is Described.kept


def of_names(x):
    return x + 1, Described.dispatched.__name__, Described.dispatched.__doc__, Described.by_three.__name__


def of_identity(x):
    return x + 1, Described.dispatched is Described.dispatched, Described.by_three is Described.by_three


@pytest.mark.parametrize("function", [of_dispatched, of_partial_method, of_cached, of_names, of_identity])
def test_descriptors_of_the_library_read_of_the_class(function):
    x = torch.ones(2)
    compiled = optimize(lambda gm, _: gm.forward)(function)
    for _ in range(2):
        assert compare_equal(compiled(x), function(x))


@pytest.mark.parametrize("name", ["dispatched", "by_three", "of_class", "of_partial"])
def test_what_a_descriptor_gives_of_the_class_lives_on(name):
    def give(x):
        return getattr(Described, name), x + 1

    compiled = optimize(lambda gm, _: gm.forward)(give)
    x = torch.ones(2)
    given = [() if name == "of_class" else (Described(),) for _ in range(2)]
    found = [compiled(x)[0] for _ in range(2)]
    assert [f(*args, x).tolist() for f, args in zip(found, given)] == [
        getattr(Described, name)(*args, x).tolist() for args in given
    ]
    assert found[0] is not found[1]


def compare_equal(found, wanted):
    """Whether tensors have the same elements and the rest is equal."""
    return [f.tolist() if isinstance(f, torch.Tensor) else f for f in found] == [
        w.tolist() if isinstance(w, torch.Tensor) else w for w in wanted
    ]


def test_a_class_whose_order_of_bases_is_not_there_yet():
    """A metaclass's `mro` is called with a class that has none: what was compiled there is for such a class alone."""
    seen, graphs = [], []

    def known_of(cls, x):
        return x + cls.known, cls.__mro__

    compiled = optimize(lambda gm, _: graphs.append(gm) or gm.forward)(known_of)

    class Ordering(type):
        known = 1

        def mro(cls):
            x, order = compiled(cls, torch.ones(2))
            seen.append((x.tolist(), order))
            return super().mro()

    class First(metaclass=Ordering):
        pass

    class Second(First):
        known = 4

    assert seen == [([2.0, 2.0], None)] * 2
    assert len(graphs) == 2
    for cls in First, Second:
        assert compare_equal(compiled(cls, torch.ones(2)), known_of(cls, torch.ones(2)))


def annotated(x):
    return x * len(Annotated.__annotations__), Annotated.__annotations__ is Annotated.__annotations__


class Annotated:
    first: int


def test_annotations_change(monkeypatch):
    compiled = optimize(lambda gm, _: gm.forward)(annotated)
    for added in ({}, {"second": int}):
        monkeypatch.setattr(Annotated, "__annotations__", {"first": int, **added})
        assert compare_equal(compiled(torch.ones(2)), annotated(torch.ones(2)))
