"""Classes: statements, construction, attributes, descriptors, metaclasses, super(), operators, protocols."""

import abc
import collections
import dataclasses
import enum
import functools
import operator
import typing

import torch
import tracework_capture as capture
from cases import case


class Meta(type):
    registry = []

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.called = True
        return made

    @property
    def label(cls):
        return cls.__name__.lower()

    def __len__(cls):
        return 3


class WithMeta(metaclass=Meta):
    def __init__(self, value):
        self.value = value


@case
def metaclass(x):
    made = WithMeta(x + 1)
    return made.value, made.called, WithMeta.label, type(WithMeta).__name__


class Size(typing.TypedDict):
    height: int


@case
def typed_dicts(x):
    size = Size(height=x.shape[0])
    size["height"] += 1
    return x * size["height"], type(size), size


class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__[self.name] * 2

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value


class Lazy:
    def __get__(self, instance, owner=None):
        return "class" if instance is None else "instance"


class Described:
    weight = Typed()
    lazy = Lazy()

    def __init__(self, weight):
        self.weight = weight

    @property
    def half(self):
        return self.weight / 2

    @half.setter
    def half(self, value):
        self.weight = value * 2

    @half.deleter
    def half(self):
        self.weight = 0

    @functools.cached_property
    def cached(self):
        return self.weight + 1

    @classmethod
    def make(cls, value):
        return cls(value)

    @staticmethod
    def plain(value):
        return value + 1


@case
def descriptors(x):
    made = Described.make(x)
    before = made.half
    made.half = x + 1
    found = made.half, made.cached, made.cached, Described.plain(x), made.lazy, Described.lazy
    del made.half
    return before, found, made.weight


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@case
def slots(x):
    made = Slots(x + 1)
    made.b = 2
    del made.b
    try:
        made.c = 1
    except AttributeError:
        return made.a, hasattr(made, "b")
    return None


class Dynamic:
    known = 1

    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        if name.startswith("x_"):
            return len(name)
        raise AttributeError(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        if name != "log":
            self.log.append(name)


@case
def attribute_hooks(x):
    made = Dynamic()
    made.y = x + 1
    return made.y, made.x_abc, hasattr(made, "z"), getattr(made, "z", 3), made.known, made.log


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: int = 2
    c: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.c.append(self.b)


@dataclasses.dataclass(order=True, slots=True)
class Ordered:
    rank: int
    name: str = dataclasses.field(default="n", compare=False)


@case
def dataclass_kinds(x):
    made = Frozen(x + 1)
    try:
        made.a = 1
    except dataclasses.FrozenInstanceError:
        refused = True
    changed = dataclasses.replace(made, b=5)
    low, high = sorted([Ordered(2, "b"), Ordered(1, "a")])
    names = [f.name for f in dataclasses.fields(made)]
    return made.a, made.c, refused, changed.b, low.name, low < high, low == Ordered(1), names


Pair = collections.namedtuple("Pair", "left right", defaults=(7,))


class Named(typing.NamedTuple):
    a: int
    b: int = 3

    def total(self):
        return self.a + self.b


@case
def namedtuples(x):
    pair, named = Pair(x + 1), Named(2)
    left, right = pair
    return (
        left,
        pair.right,
        pair._replace(right=0)[1],
        pair._asdict()["right"],
        named.total(),
        Pair._fields,
        named == (2, 3),
        Named(a=1, b=1),
    )


class Colour(enum.Enum):
    RED = 1
    GREEN = 2

    @property
    def lower(self):
        return self.name.lower()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Bits(enum.Flag):
    A = 1
    B = 2


@case
def enums(x):
    found = Colour(2), Colour["RED"], [c.name for c in Colour], Colour.RED.lower, Colour.RED is Colour(1)
    return x * Level.HIGH, Level.LOW < 2, found, len(Colour), Bits.A | Bits.B, Bits.A in (Bits.A | Bits.B)


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    def double(self):
        return self.area() * 2


class Stands(Shape):
    @abc.abstractmethod
    def height(self): ...

    def __new__(cls, made=None):
        return super().__new__(cls) if made is None else made


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


@case
def abstract_classes(x):
    refused = []
    for shape in (Shape, Stands):
        try:
            shape()
        except TypeError as error:
            refused.append(str(error))
    square = Stands(Square(x))
    return (
        square.double(),
        refused,
        isinstance(square, Shape),
        issubclass(Square, Shape),
        isinstance([], collections.abc.Sequence),
    )


class Base:
    def __init__(self, value):
        self.value = value
        self.order = ["Base"]

    def step(self):
        return self.value + 1

    @classmethod
    def build(cls, value):
        return cls(value)

    @property
    def shown(self):
        return "base"

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__()
        cls.tag = kwargs.get("tag")


class Left(Base):
    def __init__(self, value):
        super().__init__(value)
        self.order.append("Left")

    def step(self):
        return super().step() * 2


class Right(Base, tag="right"):
    def __init__(self, value):
        super().__init__(value)
        self.order.append("Right")

    def step(self):
        return Base.step(self) - 3

    @classmethod
    def build(cls, value):
        return super().build(value + 1)

    @property
    def shown(self):
        return super().shown + " right"


class Both(Left, Right):
    def step(self):
        def inner():
            return super(Both, self).step()

        return inner() + (lambda: super(Left, self).step())()


@case
def super_forms(x):
    both = Both.build(x)
    return both.step(), both.order, both.shown, Right.tag, Both.__mro__[1].__name__


class Leading:
    def __add__(self, other):
        return "Leading.__add__"

    def __lt__(self, other):
        return "Leading.__lt__"

    def __eq__(self, other):
        return "Leading.__eq__"

    __hash__ = None


class Following(Leading):
    def __radd__(self, other):
        return "Following.__radd__"

    def __gt__(self, other):
        return "Following.__gt__"

    def __eq__(self, other):
        return "Following.__eq__"

    __hash__ = None


@case
def subclass_on_the_right_is_asked_first(x):
    left, right = Leading(), Following()
    total = Leading()
    total += right
    compared = left < right, left == right, left != right, right > left, 3 == right
    return x + 1, left + right, right + left, operator.add(left, right), total, compared


class Number:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return NotImplemented if isinstance(other, str) else Number(self.value + getattr(other, "value", other))

    __radd__ = __add__

    def __iadd__(self, other):
        self.value = self.value + other
        return self

    def __matmul__(self, other):
        return self.value @ other

    def __neg__(self):
        return Number(-self.value)

    def __invert__(self):
        return "inverted"

    def __eq__(self, other):
        return isinstance(other, Number) and self.value is other.value

    def __lt__(self, other):
        return True

    def __hash__(self):
        return 3

    def __bool__(self):
        return False

    def __len__(self):
        return 4

    def __call__(self, *args, k=0):
        return len(args) + k

    def __contains__(self, item):
        return item == 5

    def __getitem__(self, key):
        return key

    def __iter__(self):
        return iter((1, 2))

    def __index__(self):
        return 1

    def __float__(self):
        return 2.5

    def __round__(self, digits=None):
        return "rounded"

    def __format__(self, spec):
        return f"<{spec}>"

    def __repr__(self):
        return "Number"


@case
def operators(x):
    a = Number(x + 1)
    b = a + 2
    c = 3 + a
    a += 1
    try:
        a + "s"
    except TypeError as error:
        refused = str(error)
    values = b.value, c.value, a.value, (-a).value, a @ x.t()
    rest = (
        ~a,
        a == Number(1),
        a != 2,
        a < b,
        bool(a),
        len(a),
        a(1, k=2),
        5 in a,
        a[1:2],
        a[1, 2],
        list(a),
        [1, 2][a],
        float(a),
        round(a),
    )
    return values, rest, refused, f"{a:>3}", str(a), f"{a!r}"


class Iterates:
    def __init__(self, stop):
        self.stop = stop
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at > self.stop:
            raise StopIteration
        return self.at


class OnlyItems:
    def __getitem__(self, index):
        if index > 2:
            raise IndexError
        return index * 10

    def __len__(self):
        return 3


@case
def iteration_protocols(x):
    return (
        [x * i for i in Iterates(3)],
        list(OnlyItems()),
        list(reversed(OnlyItems())),
        20 in OnlyItems(),
        next(iter(Iterates(1))),
        max(Iterates(4)),
    )


class Grows(dict):
    def __missing__(self, key):
        self[key] = key * 2
        return self[key]


class Listed(list):
    def doubled(self):
        return [item * 2 for item in self]


@case
def subclasses_of_containers(x):
    grows, listed = Grows(a=1), Listed([1, 2])
    listed.append(x + 1)
    return grows[3], len(grows), listed.doubled(), listed[0], isinstance(listed, list), listed[-1]


class Root:
    def __new__(cls, kind):
        made = super().__new__(cls if kind == "root" else Other)
        made.kind = kind
        return made

    def __init__(self, kind):
        self.ready = True


class Other:
    ready = False


@case
def new_that_gives_another_class(x):
    return x + 1, Root("root").ready, Root("other").ready, Root("other").kind


class Custom(Exception):
    def __init__(self, code, text="t"):
        super().__init__(text)
        self.code = code

    def __str__(self):
        return f"custom {self.code}"


@case
def exception_classes(x):
    try:
        raise Custom(3)
    except Custom as error:
        return x + error.code, str(error), error.args


@case
def class_statement(x):
    y = x + 1

    class Local:
        scale = 2

        def __init__(self, value):
            self.value = value

        def step(self):
            return self.value * self.scale + y

    return Local(y).step()


class Childless:
    pass


@case
def type_call(x):
    y = x + 1
    made = type("Made", (Childless,), {"scale": 3, "own": lambda self, t: t * self.scale})
    return made().own(y), made.__module__, made.__mro__[1] is Childless


@case
def made_class_is_changed(x):
    class Changed:
        count = 0

    Changed.count += 2
    Changed.step = lambda self, t: t + self.count
    return Changed().step(x), Changed


class Generic(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, value):
        self.value = value


@case
def generics(x):
    return Generic(x + 1).value, typing.cast(int, 3), isinstance(3, int | str)


@case
def attribute_functions(x):
    made = Base(x)
    made.extra = x + 1
    found = made.extra, hasattr(made, "nothing"), "value" in vars(made), callable(made), callable(made.step)
    delattr(made, "extra")
    return found, hasattr(made, "extra"), type(made).__name__, made.__class__ is Base, isinstance(made, (int, Base))


@capture.disable
def aside(value):
    return value


class AfterBreak(Base):
    def step(self, extra=2):
        y = self.value * extra
        aside(y)
        return super().step() + y


@case(graphs=2)
def super_after_a_break(x):
    return AfterBreak(x).step(3)


class Deleted:
    def __del__(self):
        DELETED.append(1)


DELETED = []


def make_and_drop(y):
    Deleted()
    return y


@case(graphs=2)
def instances_that_notice_their_end(x):
    y = x + 1
    DELETED.clear()
    y = make_and_drop(y) * 2
    return y, list(DELETED)


class NoInPlace(Number):
    __iadd__ = None


class OwnClass:
    __class__ = 413


@case  # the exception ends the graph: what follows runs plainly
def special_method_that_is_none(x):
    y = x + 1
    made = NoInPlace(1)
    try:
        made += 1
    except TypeError as error:
        text = str(error)
    return y * 2, text


@case
def class_attribute_named_class(x):
    return x + 1, OwnClass().__class__, Base(1).__class__ is Base


@case
def class_statement_with_all_kinds_of_members(x):
    class Scaled:
        """What it does."""

        factor: int = 2
        __slots__ = ("shift",)

        def __init__(self, shift):
            self.shift = shift

        def __call__(self, t):
            return t * self.factor + self.shift

        @property
        def twice(self):
            return self.shift * 2

        @twice.setter
        def twice(self, value):
            self.shift = value / 2

        @staticmethod
        def plus(a, b=1):
            return a + b

        @classmethod
        def make(cls, shift):
            return cls(shift)

    class Further(Scaled):
        def __call__(self, t):
            return super().__call__(t) + self.twice + self.plus(1) + Further.factor

    made = Further.make(3)
    made.twice = 10
    return made(x), isinstance(made, Scaled), Further.__mro__[1] is Scaled, Scaled.__doc__, type(made).__name__


@case
def class_statement_that_closes_over_tensors(x):
    doubled = x * 2

    class Near:
        def get(self):
            return doubled + self.near

        near = 3

    return Near().get()


@case
def made_class_leaves_with_its_objects(x):
    doubled = x * 2

    class Left:
        scale = 5

        def __init__(self, a):
            self.a = a

        def get(self):
            return self.a + doubled * self.scale

        def own(self):
            return __class__

    made = Left(x)
    return made.get(), type(made) is Left, made.own() is Left, Left.get(Left(x)), Left.__qualname__, Left.__module__


def holder(x):
    class Held:
        def __init__(self, a):
            self.a = a

        def again(self):
            return Held(self.a + 1)

    return Held(x * 2), Held


def use_holder(x):
    made, cls = holder(x)
    return made.again().a, type(made.again()) is cls


@case
def made_class_returned_by_a_helper(x):
    return use_holder(x)


@case(graphs=3)  # two, and one more for each new class
def made_class_over_a_break(x):
    class Kept:
        def __init__(self, a):
            self.a = a

    made = Kept(x + 1)
    capture.graph_break()
    return made.a * 2, isinstance(made, Kept), type(made) is Kept


@case
def made_exception(x):
    class Own(ValueError):
        def __init__(self, number):
            super().__init__("text", number)

    try:
        if x.shape[0] == 2:
            raise Own(3)
    except LookupError:
        return x
    except Own as error:
        return x + error.args[1], error.args


@case
def class_body_that_computes(x):
    numbers = [1, 2, 3]

    class Computed:
        first, *_ = numbers
        total = sum(numbers)
        label = f"{first}/{total}"

        def value(self, t):
            return t + self.total

    return Computed().value(x), Computed.label


@case
def class_with_objects(x):
    y = x + 1

    class Listed:
        items = [1, 2]
        shifted = y

        def double(self):
            return self.shifted * 2

    Listed.items.append(3)
    return y * len(Listed.items), Listed.items, Listed().double(), Listed().items is Listed.items, Listed


@case(graphs=3)  # two, and one more for each new class
def class_that_asks_to_be_told(x):
    y = x + 1

    class Told:
        field = Typed()

    made = Told()
    made.field = 3
    return y * made.field


@case
def recursive_function_leaves(x):
    def count(n):
        return 0 if n == 0 else 1 + count(n - 1)

    return x + count(2), [count][0](3)


class Asked(type):
    asked: list = []

    def __instancecheck__(cls, instance):
        Asked.asked.append(type(instance).__name__)
        return cls.accepts(instance)

    def __subclasscheck__(cls, other):
        Asked.asked.append(other.__name__)
        return other in (int, cls)


class Open(metaclass=Asked):
    taken: list = [str]

    @classmethod
    def accepts(cls, instance):
        return type(instance) in cls.taken


@case
def metaclass_that_answers_isinstance(x):
    Asked.asked.clear()
    Open.taken[:] = [str]
    first = isinstance(3, Open)
    Open.taken.append(int)
    second = (
        isinstance(3, Open),
        isinstance("a", Open),
        isinstance(Open(), (int, Open)),
        issubclass(int, Open),
        issubclass(str, Open),
    )
    return x + 1, first, second, list(Asked.asked)


class OfBase:
    def number(self):
        return 1


class AsksSuper(OfBase):
    def number(self):
        found = super()
        return found.number(), found.__thisclass__, found.__self__ is self, found.__self_class__, super().__class__

    def nothing():
        super()

    def deleted(self):
        del self
        super()

    def unfitting(self):
        return super()

    def lacking(self):
        return super().lacking_too


@case
def super_has_attributes_of_its_own(x):
    return x + 1, AsksSuper().number()


@case
def super_says_what_it_misses(x):
    told = []
    attempts = (
        AsksSuper.nothing,
        lambda: AsksSuper().deleted(),
        lambda: AsksSuper().lacking(),
    )
    for attempt in attempts:
        try:
            attempt()
        except (RuntimeError, AttributeError) as error:
            told.append((type(error), str(error)))
    return x + 1, told


@case(graphs=0)  # the frame that is left would be asked for another first argument
def super_of_what_does_not_fit(x):
    try:
        AsksSuper.unfitting([0])
    except TypeError as error:
        return x + 1, str(error)
    return x


def another_super(*args):
    return AsksSuper if not args else OfBase


class UsesAnotherSuper(OfBase):
    def number(self):
        return super().number, super(OfBase, self).number


UsesAnotherSuper.number = type(UsesAnotherSuper.number)(
    UsesAnotherSuper.number.__code__,
    {"super": another_super, "OfBase": OfBase},
    "number",
    None,
    UsesAnotherSuper.number.__closure__,
)


@case
def another_function_called_super(x):
    return x + 1, UsesAnotherSuper().number()


class AsksForItsOrder(type):
    def mro(cls):
        return super().mro()


@case
def metaclass_that_orders_bases(x):
    y = x + 1

    class Ordered(OfBase, metaclass=AsksForItsOrder):
        pass

    return y, [base.__name__ for base in Ordered.__mro__]


class Tagged:
    def __init__(self, tag):
        self.tag = tag

    def told(self):
        return self.tag


class AsksAfterABreak(Tagged):
    def told(self, another):
        doubled = another.tag * 2
        capture.graph_break()
        return super().told(), doubled  # nothing to capture: the rest runs plainly


@case(graphs=2)
def super_in_what_runs_plainly_after_a_break(x):
    return AsksAfterABreak(x + 1).told(AsksAfterABreak(x))


@case
def a_class_body_with_two_objects_of_one_name(x):
    name = "outer"

    class Both:
        def name(self):
            return "method"

        def read(self):
            return name

    return x + 1, Both().read(), Both().name()


class Ancestor:
    factor = 2

    def scaled(self, x):
        return x * self.factor

    @classmethod
    def label(cls):
        return cls.__name__


class AbstractAncestor(abc.ABC):
    @abc.abstractmethod
    def scaled(self, x): ...


@case
def a_class_derived_from_an_existing_one(x):
    class First(Ancestor):
        def scaled(self, x):
            return super().scaled(x) + 1

    class Second(First):
        factor = 5

    made = Second()
    made.kept = x + 1
    return made.scaled(x), made.kept, Second.label(), isinstance(made, Ancestor), [c.__name__ for c in Second.__mro__]


@case
def a_class_derived_from_an_abstract_one(x):
    class Concrete(AbstractAncestor):
        def scaled(self, x):
            return x * 3

    try:
        AbstractAncestor()
    except TypeError:
        x = x + 1
    return Concrete().scaled(x)


@case
def a_module_class_made_inside(x):
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((3,), 2.0))

        def forward(self, x):
            return x * self.weight

    made = Scale()
    return made(x).detach(), list(made.state_dict())


@case
def a_namedtuple_class_made_inside(x):
    Pair = collections.namedtuple("Pair", "first second", defaults=(3,))
    pair = Pair(x)
    try:
        collections.namedtuple("Wrong", ["same", "same"])
    except ValueError:
        x = x + 1
    return pair.first * pair.second, pair._replace(first=1).first, Pair.__module__, Pair._fields, x


class Bound:
    def itself(self):
        return self


@case
def a_bound_method_is_bound_again(x):
    first, second = Bound(), Bound()
    first.itself_of_second = second.itself.__get__(first, Bound)
    return x + 1, first.itself_of_second() is second


@case(graphs=2)  # what replace refuses breaks, and it says so itself
def replaced_fields_that_are_refused(x):
    @dataclasses.dataclass
    class Scaled:
        scale: float
        shown: str = dataclasses.field(init=False, default="")
        first: dataclasses.InitVar[int] = 0

    y = x + 1
    seen = [dataclasses.replace(Scaled(2.0), scale=3.0).scale]
    try:
        dataclasses.replace(Scaled(2.0), shown="s")
    except (TypeError, ValueError) as error:
        seen += [type(error), str(error)]
    return y * 2, seen


class Joins(type):
    __call__ = ":".join


class Joined(metaclass=Joins):
    pass


class Answers:
    __new__ = str.__subclasscheck__


class Doubled:
    @classmethod
    def __new__(cls, same, value):
        return value * 2


@case(graphs=2)  # each breaks
def classes_that_make_something_else(x):
    y = x + 1
    made = Joined(["a", "b"]), Answers(), Doubled(3)
    return y * 2, made


@case
def a_builtin_is_not_its_call(x):
    return x + 1, min.__call__ is min, min.__call__(3, 2)


@dataclasses.dataclass(frozen=True)
class Key:
    size: int
    name: str = "a"


class Hashed:
    def __hash__(self):
        return -1


@case
def hashes_of_objects(x):
    return x + hash(Hashed()), hash(Key(3)) == hash(Key(4)), hash(dataclasses.replace(Key(1), size=3)) == hash(Key(3))


class TakesNothing:
    def __init__(self, value):
        self.value = value


TakesNothing.__init__ = object.__init__  # as typing does with what derives from a Protocol


@case
def an_init_that_is_that_of_object(x):
    y = x + 1
    made = TakesNothing()
    try:
        TakesNothing(3)
    except TypeError as error:
        return y, type(made), str(error)
    return y, None


class Sized(type):
    """Its classes are containers and numbers."""

    def __len__(cls):
        return cls.size

    def __getitem__(cls, index):
        return cls.size * index

    def __setitem__(cls, index, value):
        cls.kept = [index, value]

    def __iter__(cls):
        return iter(range(cls.size))

    def __reversed__(cls):
        return iter("ba")

    def __contains__(cls, value):
        return value == cls.size

    def __eq__(cls, other):
        return isinstance(other, Sized) and cls.size == other.size

    def __hash__(cls):
        return cls.size

    def __lt__(cls, other):
        return cls.size < other.size

    def __add__(cls, other):
        return cls.size + (other.size if isinstance(other, Sized) else other)

    def __radd__(cls, other):
        return other - cls.size

    def __or__(cls, other):
        return "or", cls.size

    def __neg__(cls):
        return -cls.size


class Empty(metaclass=Sized):
    size = 0


class Two(Empty):
    size = 2


class Also(Empty):
    size = 2


@case
def classes_whose_metaclass_makes_them_containers(x):
    y = x * len(Two) + Two[3] + sum(Two)
    return y, list(Two), list(reversed(Two)), 2 in Two, 3 in Two, [*Also], bool(Empty), 1 if Two else 2, not Empty


@case
def classes_whose_metaclass_has_operators(x):
    same = Two == Also, Two == Empty, Two != Also, Two != 3, Empty < Two, Empty > Two
    return x * (Two + Also), Two + 1, 1 + Two, Two | int, -Two, same


class Placed(ValueError):
    def __init__(self, text, place):
        ValueError.__init__(self, f"{text} at {place}")
        self.place = place


class Leaving(SystemExit):
    def __init__(self, code, why):
        super().__init__(code)
        self.why = why


class LeavingSilently(SystemExit):
    def __init__(self, code):
        pass


@case
def init_of_a_builtin_exception_by_its_class(x):
    try:
        raise Placed("wrong", 3)
    except TypeError:
        return x - 1
    except Placed as error:
        return x + 1, error.args, error.place


@case
def exceptions_whose_builtin_class_keeps_fields(x):
    y, leaving, silently = x + 1, Leaving(3, "done"), LeavingSilently(4)
    capture.graph_break()
    return y, leaving.code, leaving.args, leaving.why, silently.code, silently.args


class Held:
    __slots__ = ("count", "weight")

    def __init__(self, weight):
        self.count, self.weight = 3, weight


class Doubling(Held):
    __slots__ = ("count",)

    @property
    def weight(self):
        return super().weight * 2

    @weight.setter
    def weight(self, value):
        Held.weight.__set__(self, value)


DOUBLING = Doubling(torch.ones(3))
Held.count.__set__(DOUBLING, 5)


@case
def slots_that_a_property_and_another_slot_hide(x):
    before = super(Doubling, DOUBLING).count
    DOUBLING.count = 7
    found = x + DOUBLING.weight, before, DOUBLING.count, super(Doubling, DOUBLING).count
    DOUBLING.count = 3
    return found


class Renamed(BaseException):
    @property
    def args(self):
        return ("told", *super().args)


RENAMED = Renamed(1.5, 2)


@case
def members_of_a_builtin_base_that_a_property_hides(x):
    return x * RENAMED.args[1], RENAMED.args, super(Renamed, RENAMED).args


@case
def constants_of_code_are_the_same_objects(x):
    first, second = lambda: (1.5, "text"), lambda: (1.5, "text")
    return x + 1, first.__code__.co_consts is second.__code__.co_consts, first() is second()


class Priced:
    def __init__(self, price):
        self.price = price

    def __eq__(self, other):
        return NotImplemented if isinstance(other, str) else self.price == other


class Asking(Priced):
    def __ne__(self, other):
        return super().__ne__(other)


@case
def object_takes_the_opposite_of_equality(x):
    priced, asking = Priced(5), Asking(5)
    differs = priced.__ne__
    found = [differs(other) for other in (5, 7, "text", priced)] + [asking != 5, asking != 7, asking != "text"]
    bases = object.__ne__(priced, 5), object.__ne__([1], [1]), object.__ne__([1], 1), object().__ne__(3)
    return x + 1, found, bases, priced != 5, priced != 6, priced != priced


class Guarded:
    def __init__(self):
        self.kept, self.other = 1, 2

    def __delattr__(self, name):
        if name != "kept":
            super().__delattr__(name)


@case
def deleting_past_the_hook_of_the_class(x):
    made = Guarded()
    del made.kept
    del made.other
    found = made.kept, hasattr(made, "other")
    object.__delattr__(made, "kept")
    try:
        object.__delattr__(made, "kept")
    except AttributeError as error:
        return x + 1, found, hasattr(made, "kept"), str(error)


@case
def relations_to_generics_of_typing(x):
    found = isinstance({}, typing.Mapping), isinstance([], (typing.Mapping, typing.Sequence)), isinstance(x, typing.Hashable)
    return x + 1, found, issubclass(dict, typing.Mapping), issubclass(type(x), typing.Mapping)


class Falls:
    def __init__(self):
        self.inner = 5

    def __getattr__(self, name):
        raise AttributeError("own text")


@case
def what_an_attribute_error_says_was_asked_for(x):
    found = []
    for ask in (
        lambda: x.absent,
        lambda: x.absent(),
        lambda: Falls.absent,
        lambda: Falls().absent,
        lambda: Falls().inner.absent,
        lambda: super(Falls, Falls()).absent,
        lambda: [].absent,
        lambda: getattr("text", "".join(["ab", "sent"])),
        lambda: slice(1).absent,
    ):
        try:
            ask()
        except AttributeError as error:
            found.append((error.name, error.args))
    return x + 1, found


@case
def notes_of_an_exception(x):
    try:
        try:
            raise ValueError("text")
        except ValueError as error:
            error.add_note("first")
            error.add_note("second")
            noted = error
            error.add_note(3)
    except TypeError as refused:
        return x + 1, noted.__notes__, str(refused), noted.args


class OwnLookup(type):
    def __getattribute__(cls, name):
        return 42 if name == "magic" else type.__getattribute__(cls, name)

    def __setattr__(cls, name, value):
        type.__setattr__(cls, name, value)

    def __repr__(cls):
        return "own " + type.__repr__(cls)[:6]

    def __eq__(cls, other):
        return type.__eq__(cls, other)

    def __hash__(cls):
        return type.__hash__(cls)


class LookedUp(metaclass=OwnLookup):
    stored = 0

    def __call__(self):
        return "called"

    def __repr__(self):
        return "an instance"

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


def asked(ask):
    try:
        return ask()
    except Exception as error:
        return type(error).__name__, str(error)


@case
def metaclasses_that_look_attributes_up_themselves(x):
    questions = (
        lambda: LookedUp.magic,
        lambda: getattr(LookedUp, "magic", 1),
        lambda: (hasattr(LookedUp, "magic"), hasattr(LookedUp, "absent")),
        lambda: LookedUp.absent,
    )
    return x + 1, [asked(ask) for ask in questions]


@case
def methods_of_type_beside_those_of_the_class(x):
    try:
        LookedUp.stored = 5
    except TypeError:
        return x
    found = repr(LookedUp), repr(LookedUp()), type.__repr__(LookedUp)[:6], LookedUp == WithMeta, LookedUp != WithMeta
    return x + LookedUp.stored, found, type.__call__(LookedUp)(), type.mro(LookedUp)[0] is LookedUp


@case
def slots_that_are_empty(x):
    class Empty:
        __slots__ = ("a", "b")

    found = []
    for ask in (lambda: Empty().b, lambda: Empty().c, lambda: delattr(Empty(), "b")):
        try:
            ask()
        except AttributeError as error:
            found.append((str(error), error.name))
    return x + 1, found


@case
def special_methods_with_too_few_arguments(x):
    return x + 1, [asked(ask) for ask in (lambda: object.__setattr__(x), lambda: x.__add__(), lambda: [].__len__(1))]


class Divided:
    def __init__(self, value, log, reflected=True):
        self.value, self.log, self.reflected = value, log, reflected

    def __divmod__(self, other):
        self.log.append("divmod")
        return (self.value, other) if not isinstance(other, Divided) else NotImplemented

    def __rdivmod__(self, other):
        self.log.append("rdivmod")
        return (other, self.value) if self.reflected else NotImplemented

    def __sub__(self, other):
        self.log.append("sub")
        return NotImplemented

    def __rsub__(self, other):
        self.log.append("rsub")
        return self.value


class DividedFirst(Divided):
    def __rdivmod__(self, other):
        return "first"


class OnlyFloorAndRest:
    def __floordiv__(self, other):
        return 1

    def __mod__(self, other):
        return 2


def tried(function):
    try:
        return function()
    except TypeError as error:
        return str(error)


@case
def divmod_of_objects(x):
    log = []
    made, refusing = Divided(x + 1, log), Divided(x, log, reflected=False)
    found = [
        divmod(made, 3),
        divmod(3, made),
        divmod(2.5, made)[0],
        divmod("a", made)[0],
        divmod(made, DividedFirst(2, log)),
        *map(tried, (lambda: divmod(3, refusing), lambda: divmod(OnlyFloorAndRest(), 2), lambda: divmod(2, OnlyFloorAndRest()))),
    ]
    return found, log


@case
def operands_of_one_class(x):
    log = []
    made, other = Divided(x + 1, log), Divided(x, log)
    return tried(lambda: divmod(made, other)), tried(lambda: made - other), 2 - made, log


class OneSlot:
    __slots__ = ("kept",)


held_in_a_slot = OneSlot()


@case
def a_slot_that_was_emptied(x):
    held_in_a_slot.kept = x
    del held_in_a_slot.kept
    try:
        return held_in_a_slot.kept
    except AttributeError as error:
        return x + 1, str(error), error.name
