"""What CPython's own tests found: small programs whose results were not those of plain Python."""

import contextlib
import copy
import enum
import functools
import itertools
import operator
import random
import sys
import types
import typing
import weakref

import tracework_capture as capture
from cases import case


class Seeded(random.Random):
    def seed(self, a=None, version=2):
        super().seed(a)


SEEDED = Seeded()


@case(graphs=2)
def break_at_a_method_of_a_native_base(x):
    y = x + 1
    SEEDED.seed(3)
    return y * SEEDED.random()


def error_of(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), error.args


@case
def key_errors_hold_the_key(x):
    return x + 1, error_of({}.pop, (1, 2)), error_of(set().remove, (3,)), error_of({}.__getitem__, ("a", 4))


@case
def islice_takes_what_comes_before_its_end(x):
    first, second = iter(range(10)), iter(range(10))
    taken = list(itertools.islice(first, 3, 3)), list(itertools.islice(second, 1, 6, 3))
    return x + 1, taken, list(first), list(second)


@capture.disable
def drained(iterator):
    return list(iterator)


@case(graphs=2)
def starmap_over_a_break(x):
    made = itertools.starmap(pow, [(2, 3), (3, 2)])
    y = x + 1
    return drained(made), y * 2


@case(graphs=2)
def exhausted_iterator_over_a_break(x):
    items = [1, 2]
    iterator = iter(items)
    list(iterator)
    y = x + 1
    items.append(3)
    return drained(iterator), y * 2


@case(graphs=2)
def empty_zip_over_a_break(x):
    y = x + 1
    return drained(zip()), y * 2


@case
def iterator_of_a_text(x):
    iterator = iter("abc")
    return x + 1, next(iterator), type(iterator).__name__, list(iterator), list(iter(b"ab"))


@case
def list_changed_while_it_is_sorted(x):
    items = [3, 1, 2]

    def key(item):
        items.append(item)
        return item

    def sort():
        items.sort(key=key)

    return x + 1, error_of(sort), items


@case
def sort_compares_as_python_does(x):
    asked = []

    @functools.cmp_to_key
    def key(left, right):
        asked.append((left, right))
        return left - right

    return x + 1, sorted([3, 1, 2, 5, 4], key=key), asked


class Letters(set):
    pass


class Deep(Letters):
    __hash__ = None


@case
def copy_of_a_set_of_a_subclass(x):
    made = Letters("ab")
    y = x + 1
    return y, type(made.copy()).__name__, type(made | {"c"}).__name__


@case
def set_of_a_subclass_as_a_member(x):
    made = {frozenset("ab"), 1}
    made.discard(Deep("ab"))
    return x + 1, made


class Wrong:
    __init__ = lambda self: 5


class Greedy:
    def __new__(cls, *args):
        return object.__new__(cls, *args)


class Hidden:
    __init__ = property(lambda self: self.nothing)


@case
def init_that_returns_something(x):
    return x + 1, error_of(Wrong)


@case(graphs=2)
def arguments_that_object_does_not_take(x):
    y = x + 1
    return error_of(Greedy, 3), y * 2


@case(graphs=2)
def init_that_is_a_property(x):
    y = x + 1
    return error_of(Hidden), y * 2


class Reduced:
    def __reduce__(self):
        return "REDUCED"


REDUCED = Reduced()


@case(graphs=2)
def copies_by_reduce(x):
    y = x + 1
    return copy.copy(REDUCED) is REDUCED, y * 2


BIG = 1 << 100


@case(graphs=2)
def big_numbers_stay_one_object(x):
    y = x + 1
    big = BIG
    drained(())
    return big is BIG, y * 2


@case
def unknown_keyword_of_a_number(x):
    y = x + 1
    try:
        int(x=3)
    except TypeError as error:
        return str(error), y * 2


@case
def proxy_of_a_dict(x):
    return x + 1, dict(PROXY)


PROXY = types.MappingProxyType({"a": 1})


class Node:
    scale = 2


NODE = Node()
REFERENCE = weakref.ref(NODE)


@case
def weak_reference(x):
    return x * REFERENCE().scale


class Sent:
    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(42)

    def send(self, value):
        raise StopIteration(value)


@case
def values_sent_through_yield_from(x):
    got = []

    def inner():
        got.append((yield 1))
        got.append((yield 2))
        return 3

    def outer():
        got.append((yield from inner()))
        got.append((yield from Sent()))

    made = outer()
    next(made)
    made.send("a")
    return x + 1, next(made, "end"), got


@case
def stop_iteration_inside_a_generator(x):
    stop = StopIteration("spam")

    def made():
        yield 1
        raise stop

    try:
        list(made())
    except RuntimeError as error:
        return x + 1, error.__cause__ is stop, error.__context__ is stop
    return x


class Index:
    def __index__(self):
        return -2


@case
def index_of_an_object(x):
    return x + 1, operator.index(Index()), operator.index(True)


class Clearing:
    def __init__(self, items):
        self.items = items

    def __eq__(self, other):
        self.items.clear()
        return True

    __hash__ = None


@case(graphs=2)
def list_changed_while_it_is_compared(x):
    items = [1]
    first = [Clearing(items)]
    y = x + 1
    return first == items, y * 2


@case
def ranges_backwards(x):
    return x + 1, next(reversed(range(1 << 40))), type(reversed(range(3))).__name__, list(reversed(range(3)))


@case(graphs=2)
def complex_numbers_by_keyword(x):
    y = x + 1
    made = complex(real=17, imag=23)
    drained(())
    return made, slice(1, 2).__reduce__(), y * 2


class Formatted:
    def __format__(self, spec):
        return f"<{spec}>"


@case
def format_with_an_empty_specification(x):
    return x + 1, f"{Formatted()}", f"{Formatted():a}", format(Formatted())


def annotated(value: int) -> str:
    return str(value)


@case
def wraps_copies_annotations(x):
    @functools.wraps(annotated)
    def made(*args):
        return annotated(*args)

    return x + 1, made(3), made.__annotations__["value"] is int


class Colour(enum.IntEnum):
    RED = 1


@case
def containers_of_an_enumeration_are_its_own(x):
    Colour._member_names_.append("BLUE")
    found = list(Colour._member_names_)
    Colour._member_names_.pop()
    return x + 1, found, Colour._member_names_ is Colour.__dict__["_member_names_"], Colour.RED


class Plainly(frozenset):
    pass


class Named(frozenset):
    def __init__(self, items, name=None):
        self.name = name


@case
def keywords_of_a_frozenset(x):
    return x + 1, error_of(lambda: Plainly(sequence=())), Named([1], name=3).name


@case
def a_list_that_is_filled_and_emptied_while_it_is_sorted(x):
    items = [2, 1]

    def key(item):
        items.append(3)
        items.pop()
        return item

    return x + 1, error_of(lambda: items.sort(key=key))


def link(name, value):
    setattr(ValueError("a"), name, value)


@case
def links_of_an_exception_are_exceptions(x):
    return (
        x + 1,
        *(error_of(link, name, 5) for name in ("__traceback__", "__cause__", "__context__")),
        error_of(link, "__cause__", None),
    )


@case
def a_global_made_and_deleted(x):
    global MADE_AND_DELETED
    MADE_AND_DELETED = 1
    del MADE_AND_DELETED
    return x + 1, "MADE_AND_DELETED" in globals(), error_of(lambda: MADE_AND_DELETED)[0]  # noqa: F821


@case(graphs=2)
def an_empty_cell_after_a_break(x):
    held = 1

    def read():
        return held  # noqa: F821

    y = x + 1
    drained(())
    del held
    try:
        return held
    except NameError as error:
        return type(error), error.args, error_of(read), y * 2


@contextlib.contextmanager
def leaving_with(error):
    try:
        yield
    finally:
        raise error


@case
def what_is_thrown_into_a_generator_keeps_its_context(x):
    errors = [ValueError(i) for i in range(4)]
    found = []
    try:
        with contextlib.ExitStack() as stack:
            for error in errors[:0:-1]:
                stack.enter_context(leaving_with(error))
            raise errors[0]
    except ValueError as error:
        while error is not None:
            found.append(error.args)
            error = error.__context__
    return x + 1, found


class Incomparable:
    def __eq__(self, other):
        raise RuntimeError("compared")


@case
def views_of_dicts_are_compared_by_looking_up(x):
    left, right = {1: [2], 3: [4]}, {3: [4], 1: [2]}
    found = [left.items() == right.items(), left.items() < {**right, 5: 6}.items(), right.items() >= {1: [2]}.items()]
    found += [left.items() != {1: [2], 3: [5]}.items(), (1, [2]) in left.items(), (1, 2, 3) in left.items()]
    found += [{1: 3}.keys() == {1: 3}.values(), {1, 3} == left.keys(), left.keys() == {1, 3}, left.keys() > {1}]
    return x + 1, found


@case(graphs=2)
def a_view_whose_values_refuse_to_be_compared(x):
    y = x + 1
    left, right = {1: Incomparable()}, {1: Incomparable()}
    drained(())
    return y * 2, error_of(lambda: left.items() == right.items())


class Empty:
    pass


@case
def keys_of_an_instance_that_are_no_names(x):
    made = Empty()
    made.__dict__[1] = 2
    made.a = 3
    return x + 1, made.__dict__


def times(items, count):
    items *= count


@case(graphs=2)
def a_list_that_would_be_too_long(x):
    y = x + 1
    drained(())
    return y * 2, error_of(times, [1, 2], 1 << 61), error_of(times, [1, 2], 1 << 70)[0], error_of(times, [1], "a")[0]


@case(graphs=2)
def an_int_that_is_too_long_to_be_shown(x):
    y = x + 1
    drained(())
    return y * 2, error_of(str, 10**5000), error_of(repr, 10**5000)


def bare_super():
    return super()


@case(graphs=2)
def super_where_there_is_no_argument(x):
    y = x + 1
    drained(())
    return y * 2, error_of(bare_super)


class Ordering(type):
    def mro(cls):
        return super().mro() if cls.__mro__ is None else type.mro(cls)


@case(graphs=3)
def super_of_a_class_that_has_no_order_yet(x):
    y = x + 1
    made = Ordering("Made", (), {})
    return y * 2, [base.__name__ for base in made.__mro__]


@case
def keywords_of_str(x):
    return x + 1, str(errors="strict"), str(object=1.5), str(b"foo", errors="strict"), str(object=b"foo", encoding="utf8")


@case
def iterators_have_no_length(x):
    return x + 1, error_of(len, iter([1, 2])), error_of(len, iter((1, 2)))


def which_exception_is_handled(x):
    found = []
    try:
        try:
            raise KeyError("a")
        except KeyError as error:
            found.append((sys.exception() is error, sys.exc_info()[1] is error))
            raise ValueError("b") from error
    except ValueError:
        found.append(repr(sys.exception()))
    return x + 1, found


class OnlySlots:
    __slots__ = ("a",)


class RefusesOthers(OnlySlots):
    __slots__ = ()

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


def text_and_name(function):
    try:
        function()
    except AttributeError as error:
        return str(error), error.name
    return None


@case
def attributes_without_a_place(x):
    def put(thing):
        thing.other = 1

    def drop(thing):
        del thing.other

    found = [text_and_name(lambda: change(kind())) for kind in (OnlySlots, RefusesOthers) for change in (put, drop)]
    return x + 1, found


def answers(log):
    try:
        yield 1
    except GeneratorExit:
        log.append("closed")
        return 5


def goes_on(log):
    try:
        yield 1
    except GeneratorExit:
        yield 2
    yield 3


@case
def what_closing_a_generator_gives(x):
    log = []
    found = [answers(log).close()]
    for function in (answers, goes_on):
        made = function(log)
        next(made)
        try:
            found.append(made.close())
            found.append(made.close())
        except RuntimeError as error:
            found.append((str(error), next(made)))
    return x + 1, found, log


class Counting(property):
    def __set__(self, owner, value):
        owner.stored = value + 1

    def __delete__(self, owner):
        owner.stored = None


class Refusing:
    named = property()
    half = property(lambda self: 1)
    counting = Counting(lambda self: self.stored)

    class Inner:
        named = property()


Refusing.nameless = Refusing.Inner.nameless = property()


@case
def properties_that_refuse(x):
    messages = []
    for owner in (Refusing(), Refusing.Inner()):
        for name in ("named", "nameless"):
            messages += [error_of(getattr, owner, name), error_of(setattr, owner, name, 1), error_of(delattr, owner, name)]
    return x + 1, messages, error_of(setattr, Refusing(), "half", 1), error_of(delattr, Refusing(), "half")


@case
def properties_of_a_class_that_sets_and_deletes_by_itself(x):
    owner = Refusing()
    owner.counting = x
    first = owner.counting
    del owner.counting
    return first, owner.stored


class Failing:
    def __getattr__(self, name):
        raise RuntimeError("fail")


@case
def attributes_of_known_objects_that_raise(x):
    return x + 1, error_of(lambda: property(Failing()).__name__)


class ByName(type):
    def __eq__(self, other):
        return self.__name__ == other.__name__

    def __hash__(self):
        return hash(self.__name__)


class Unhashable(type):
    __hash__ = None


NAMESAKES = [ByName("Namesake", (), {}) for _ in range(2)]
NOT_A_KEY = Unhashable("NOT_A_KEY", (), {})


@case(graphs=2)
def classes_whose_metaclass_hashes_them(x):
    first, second = NAMESAKES
    y = x + 1
    found = {first: 1}.get(second)
    return y * 2, found, len({second, first})


@case
def classes_that_cannot_be_hashed(x):
    return x + 1, error_of(lambda: {NOT_A_KEY}), error_of(lambda: {NOT_A_KEY: 1}), error_of(lambda: hash(NOT_A_KEY))


@case
def aliases_of_classes_are_called(x):
    made = []
    for alias in (list[int], typing.List[int], dict[str, int]):  # noqa: UP006
        try:
            made.append(alias())
        except TypeError:
            made.append("none")
    return x + 1, made


async def nothing_to_await():
    pass


def delegates(to):
    yield from to


@case
def coroutines_are_not_yielded_from(x):
    to = nothing_to_await()
    refused = error_of(list, delegates(to))
    to.close()
    return x + 1, refused


LAZY = types.ModuleType("LAZY")
LAZY.ASKED = []


def made_when_asked(name):
    LAZY.ASKED.append(name)
    if name == "absent":
        raise AttributeError("there is none")
    return name * 2


LAZY.__getattr__ = made_when_asked


@case
def attributes_that_a_module_makes(x):
    LAZY.ASKED.clear()
    return x + 1, LAZY.one, error_of(lambda: LAZY.absent), LAZY.__class__ is types.ModuleType, list(LAZY.ASKED)


@case
def what_all_functions_have(x):
    def made():
        """Doc."""

    kind = made.__class__
    found = [made.__doc__, made.__closure__, made.__repr__.__name__, callable(made.__call__), error_of(lambda: made.absent)]
    return x + 1, kind is types.FunctionType, found


@case
def what_max_and_round_refuse(x):
    refused = [
        error_of(max),
        error_of(min, []),
        error_of(lambda: max(1, 2, default=3)),
        error_of(lambda: max([1], kee=3)),
        error_of(round),
    ]
    return x + 1, refused, round(number=-8.0, ndigits=-1), max((), default=2)


@case(graphs=0)
def references_are_counted_from_the_programs_own_frame(x):
    held = [object()]
    first = sys.getrefcount(held[0])
    other = held[0]
    y = x + 1
    return y, first, sys.getrefcount(other)


async def coroutine():
    pass


COROUTINE = coroutine()
COROUTINE.close()


@case(graphs=1)
def what_has_no_attributes_is_copied_by_plain_python(x):
    y = x + 1
    return y * 2, error_of(copy.copy, COROUTINE)
