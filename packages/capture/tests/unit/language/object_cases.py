"""Enumerations, what classes say of themselves, containers and subclasses of them."""

import collections
import copy
import enum
import types

import tracework_capture as capture
from cases import case


class Planet(enum.Enum):
    EARTH = (6.0, 6.4)
    MARS = (0.64, 3.4)

    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius
        self.visits = 0

    def __str__(self):
        return self.name.title()

    def __format__(self, spec):
        return f"{spec}{self.mass}"

    def __add__(self, other):
        return self.mass + (other.mass if isinstance(other, Planet) else other)

    def __bool__(self):
        return self is Planet.EARTH

    @property
    def density(self):
        return self.mass / self.radius


@case
def members_with_attributes_and_methods(x):
    earth, mars = Planet.EARTH, Planet["MARS"]
    texts = str(earth), f"{mars:>}", f"{earth:<}", repr(mars)
    return x * earth.mass + earth.density, earth + mars, earth + 1, bool(earth), bool(mars), texts, earth.value


@case
def an_attribute_of_a_member_is_written(x):
    Planet.MARS.visits = 3
    y = x * Planet.MARS.visits
    Planet.MARS.visits += 1
    return y, Planet.MARS.visits


class Pair(collections.namedtuple("Pair", "low high")):
    __slots__ = ()

    def __new__(cls, low):
        return super().__new__(cls, low, low + 1)


class Interval(Pair, enum.Enum):
    SMALL = 1
    LARGE = 20


@case
def members_that_are_named_tuples(x, given=Interval.SMALL):
    low, high = given
    found = given == Interval.SMALL, given is Interval.SMALL, given == Interval.LARGE, Interval.SMALL is Interval.SMALL
    return x * given.high, low, high, given[0], found, {Interval.SMALL: 3}[given], isinstance(given, Pair)


class Loud(enum.StrEnum):
    ONE = "one"

    def __format__(self, spec):
        return self.value.upper()

    @classmethod
    def _missing_(cls, value):
        MISSED.append(value)
        return cls.ONE


MISSED = []


@case
def a_member_that_is_a_str(x):
    return x + 1, f"{Loud.ONE}", Loud.ONE.title(), Loud.ONE == "one", Loud.ONE + "!", len(Loud.ONE), {"one": 1}[Loud.ONE]


@case(graphs=2)
def a_member_for_a_value_that_no_member_has(x):
    MISSED.clear()
    y = x + 1
    found = Loud("two")
    return y * 2, found, list(MISSED)


class Rights(enum.IntFlag):
    A = 1
    B = 2
    C = 4


@case
def flags_of_several_bits(x):
    both = Rights.A | Rights.B
    return (
        x * both.value,
        both & Rights.A is Rights.A,
        Rights.C in both,
        ~both,
        bool(both & Rights.C),
        list(Rights),
        len(Rights),
        both,
    )


@case(graphs=3)  # two, and one more for each new class
def a_new_enumeration_each_time(x):
    y = x + 1
    made = enum.Enum("Made", "a b")
    return y * made.b.value, made.__name__


class ByMeta(type):
    def __getattr__(cls, name):
        return f"{cls.__name__}.{name}"


class NamedByMeta(metaclass=ByMeta):
    there = 1


@case
def attributes_that_the_metaclass_makes(x):
    return x + NamedByMeta.there, NamedByMeta.missing


class SetOnly:
    def __set__(self, instance, value):
        raise AttributeError


class WithSetOnly(type):
    attribute = SetOnly()


class HasAttribute(metaclass=WithSetOnly):
    pass


@case
def a_metaclass_descriptor_that_only_sets(x):
    return x + 1, type(HasAttribute.attribute) is SetOnly


@case
def class_cell_that_is_none(x):
    y = x + 1
    try:

        class Wrong:
            __classcell__ = 42

    except TypeError as error:
        return y * 2, type(error)
    return y


class Odd:
    def __hash__(self):
        return hash("attribute")

    def __eq__(self, other):
        ASKED.append(other)
        return False


ASKED = []


class AlwaysOne:
    def __get__(self, instance, owner=None):
        return 1


class WithOddKey:
    attribute = AlwaysOne()


@case
def an_instance_dict_with_a_key_that_is_no_text(x):
    made = WithOddKey()
    made.__dict__[Odd()] = 0
    capture.graph_break()
    y = x + 1
    ASKED.clear()
    return y * 2, made.attribute, len(ASKED)


class Known:
    pass


@case(graphs=3)  # two, and one more for each new class
def a_class_knows_the_classes_derived_from_it(x):
    class Base:
        pass

    class Derived(Base):
        pass

    y = x + 1
    found = Base.__subclasses__()
    return y * 2, found == [Derived]


@case
def an_existing_class_has_no_subclasses_of_the_trace(x):
    y = x + 1

    class Further(Known):
        pass

    return (
        y * 2,
        [found.__name__ for found in Known.__subclasses__()] == ["Further"] * len(Known.__subclasses__()),
        Further.__name__,
    )


class Unknown:
    pass


class Renamed(Unknown):
    pass


def describe_class(x):
    return x + 1, Renamed.__name__, Renamed.__bases__[0].__name__


def rename_class(name, base):
    Renamed.__name__, Renamed.__bases__ = name, (base,)


@case(graphs=2)
def what_a_class_says_of_itself(x):
    capture.disable(rename_class)("Other", Known)
    first = describe_class(x)
    capture.disable(rename_class)("Renamed", Unknown)
    return first, describe_class(x)


@case
def a_sort_that_fails_leaves_the_items(x):
    mixed = [3, 1, "text", 2]
    try:
        mixed.sort()
    except TypeError:
        mixed.append(0)
    ordered = sorted(mixed, key=str)
    try:
        mixed.sort(key=lambda item: item + 1, reverse=True)
    except TypeError:
        return x + len(mixed), mixed, ordered
    return x


class Mapped(dict):
    def __eq__(self, other):
        return dict.__eq__(self, other) and True


class Listed(list):
    pass


@case
def containers_and_subclasses_of_them_compared(x):
    texts = Mapped(a=1) == Mapped(), Mapped(a=1) == {"a": 1}, Mapped() != Mapped(b=1)
    return x + 1, texts, [1] == Listed([1]), Listed([1]) == [1], [1] < Listed([2]), (1,) == Listed([1])


@case(graphs=2)
def a_method_of_dict_on_a_dict_with_its_own(x):
    ordered = collections.OrderedDict(a=1, b=2)
    y = x + 1
    copied = dict.copy(ordered)
    return y * 2, type(copied), copied, collections.OrderedDict.fromkeys("ab", value=4)


@case(graphs=2)
def an_ordered_dict_with_attributes(x):
    ordered = collections.OrderedDict(a=1)
    ordered.extra = [1]
    y = x + 1
    copied = copy.copy(ordered)
    return y * 2, copied.extra is ordered.extra, copied


QUEUE = collections.deque(range(5000))


@case(graphs=2)
def a_change_inside_of_a_long_container(x):
    y = x + 1
    QUEUE.rotate(1)
    QUEUE.append(7)
    return y * 2, QUEUE.pop(), QUEUE.rotate(-1), len(QUEUE), QUEUE[0]


@case(graphs=2)
def a_cell_that_somebody_emptied(x):
    inside = 1

    def get():
        return inside

    y = x + 1
    capture.disable(empty)(get.__closure__[0])
    try:
        return y * inside
    except UnboundLocalError as error:
        return y * 2, type(error), str(error)


def empty(cell):
    del cell.cell_contents


def one_that_is_filled_late():
    def get(x):
        try:
            return x + inside
        except NameError:
            return x * 100

    def fill(value):
        nonlocal inside
        inside = value

    if ASKED is None:
        inside = 0
    return get, fill


@case(graphs=2)
def a_cell_that_is_filled_later(x):
    get, fill = one_that_is_filled_late()
    first = get(x)
    fill(2)
    capture.graph_break()
    return first, get(x)


class Plain:
    pass


@case()
def bound_functions_of_c_compared(x):
    made, again = Plain.__init_subclass__, getattr(Plain, "__init_subclass__")  # noqa: B009
    return x + 1, made == again, made != again, "a".join != "a".join, dict.get != dict.get, [].append == [].append


@case(graphs=3)  # a break, and one where the object is read after its dict was written to
def a_dict_that_is_the_one_of_an_object(x):
    y = x + 1
    made = Plain()
    attributes = made.__dict__
    capture.graph_break()
    attributes["value"] = y * 2
    y = made.value + 1
    made.other = y
    return y, attributes["other"], sorted(attributes)


class Settings(dict):
    """The common dict with attributes."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Lenient(dict):
    __getattr__ = dict.get


SETTINGS = Settings(scale=2, inner=Settings(sizes=[3]))


@case
def items_as_attributes(x):
    SETTINGS.calls = SETTINGS.get("calls", 0) + 1
    made = Settings(weight=x)
    made.extra = 5
    del made.extra
    told = []
    for ask in (lambda: made.missing, lambda: hasattr(made, "other")):
        try:
            told.append(ask())
        except KeyError as error:
            told.append(repr(error))
    calls = SETTINGS.calls
    del SETTINGS.calls
    return x * SETTINGS.scale + SETTINGS.inner.sizes[0], calls, made.weight, list(made), told, Lenient(a=1).b, list(SETTINGS)


class Bare:
    unreachable = property()


@case
def properties_without_functions(x):
    bare, told = Bare(), []

    def read():
        return bare.unreachable

    def write():
        bare.unreachable = 1

    def delete():
        del bare.unreachable

    for use in (read, write, delete):
        try:
            use()
        except AttributeError as error:
            told.append(str(error))
    return x + 1, told


@case(graphs=2)
def an_alias_that_is_called(x):
    y = x + 1
    made = list[int]((1, 2))
    return y * 2, made


def placeholder():
    return ...


NAMES = types.FunctionType(placeholder.__code__, {"Ellipsis": "a name of the module's own", "__builtins__": __builtins__})


@case
def a_constant_whose_name_the_module_has_for_something_else(x):
    return x + 1, NAMES()


class Unhashable(type):
    __hash__ = None

    def __eq__(cls, other):
        return isinstance(other, Unhashable)


class OfAnUnhashableClass(metaclass=Unhashable):
    scale = 3

    def scaled(self, x):
        return x * self.scale


@case(graphs=1)
def a_class_that_refuses_to_hash(x):
    y = x + 1
    return OfAnUnhashableClass().scaled(y), OfAnUnhashableClass == OfAnUnhashableClass


class Doubling(Exception):
    @property
    def args(self):
        return super().args

    @args.setter
    def args(self, value):
        super(Doubling, Doubling).args.__set__(self, (value, value))


def set_above(made, x):
    y = x + 1
    Doubling.args.fset(made, 5)
    return y * 2, made.args


@case(graphs=2)
def a_descriptor_above_a_property(x):
    return set_above(Doubling(1), x)


def refused(cls, value):
    try:
        return cls(value)
    except ValueError as error:
        return str(error)


@case
def values_that_no_member_has(x):
    return x + 1, [refused(cls, 99) for cls in (Planet, Loud)], refused(int, "x")
