"""Where Python's protocols have corners: what is looked up on the type, what runs code of the user, which object comes back."""

import abc
import sys
import types
import weakref

import tracework_capture as capture
from cases import case


@capture.disable
def aside(*values):
    return values


class Formatted:
    def __format__(self, spec):
        return "of the class"


@case
def format_is_looked_up_on_the_class(x):
    made = Formatted()
    made.__format__ = lambda spec: "of the instance"
    return x + 1, f"{made}"


@case
def enumerate_from_a_text(x):
    try:
        return x, list(enumerate("abc", "a"))
    except TypeError as error:
        return x + 1, str(error)


class Ordered(abc.ABC):  # noqa: B024
    def __eq__(self, other):
        return "ordered"

    __hash__ = None


@Ordered.register
class Registered:
    def __eq__(self, other):
        return "registered"

    __hash__ = None


@case
def a_registered_class_is_not_asked_first(x):
    return x + 1, Ordered() == Registered(), Registered() == Ordered()


@case(graphs=2)
def globals_without_builtins(x):
    """The function has other globals in each call, which what goes on behind it is compiled for."""
    function = types.FunctionType((lambda x, s: x + len(s)).__code__, {})
    return function(x, "abc")


@case(graphs=0)
def locals_after_a_break(x):
    first, second = 1, 2
    aside(first)
    names = sorted(locals())
    return x + 1, names, eval("second")


class OwnDict(dict):
    pass


@case
def fromkeys_of_a_subclass(x):
    made = OwnDict.fromkeys("ab")
    return x + 1, type(made).__name__, type(OwnDict().fromkeys("a")).__name__


class OwnFrozen(frozenset):
    pass


@case
def copy_of_a_frozen_subclass(x):
    first = OwnFrozen("ab")
    second = first.copy()
    return x + 1, first == second, first is second


@case
def instance_dict_with_a_number(x):
    made = Formatted()
    made.__dict__[1] = 1
    made.name = 2
    return x + 1, made.__dict__ == {1: 1, "name": 2}


@capture.disable
def size_of(thing):
    return sys.getsizeof(thing)


@case
def clear_gives_the_memory_back(x):
    filled = dict.fromkeys(range(1000))
    aside(filled)
    filled.clear()
    filled["a"] = 1
    aside(filled)
    return x + 1, size_of(filled) < 1000, filled


class Clears:
    def __init__(self, owner):
        self.owner = owner

    def __del__(self):
        self.owner.clear()


@case(graphs=0)
def an_item_with_del_is_dropped(x):
    owner = {}
    owner.update((key, Clears(owner)) for key in "abc")
    aside(owner)
    try:
        for key in owner:
            owner[key] = None
    except RuntimeError as error:
        return x + 1, str(error), dict(owner)
    return x


@case
def an_empty_cell(x):
    value = 1
    cell = (lambda: value).__closure__[0]
    aside(cell)
    del cell.cell_contents
    try:
        return x, cell.cell_contents
    except ValueError as error:
        return x + 1, str(error)


@case
def a_long_number_is_guarded(x, number=10**5000):
    return x + 1, number % 7


@case(graphs=0)
def a_dead_proxy(x):
    made = Formatted()
    proxy = weakref.proxy(made)
    aside(proxy)
    del made
    try:
        aside(proxy.name)
    except ReferenceError:
        return x + 1, "dead"
    return x


class Reversed(type):
    def mro(cls):
        return list(reversed(type.mro(cls)))[1:]


@case(graphs=2)
def an_order_of_bases_of_its_own(x):
    class Base:
        pass

    class Made(Base, metaclass=Reversed):
        pass

    return x + 1, [c.__name__ for c in Made.__mro__]


class OtherMeta(type):
    def mro(cls):
        return type.mro(cls)


class WithOtherMeta(metaclass=OtherMeta):
    pass


@case
def mro_by_hand(x):
    return x + 1, type.mro(WithOtherMeta) == WithOtherMeta.mro() == [WithOtherMeta, object]


class Raises:
    def __init__(self):
        self.asked = 0

    def __get__(self, instance, owner=None):
        def getter(name):
            self.asked += 1
            raise AttributeError(name)

        return getter


RAISES = Raises()


class LookedUpByADescriptor:
    __getattribute__ = RAISES


class MissedByADescriptor:
    __getattr__ = RAISES


@case(graphs=0)  # what raises after the break runs plainly, and so does what handles it
def hooks_that_are_descriptors(x):
    RAISES.asked = 0
    for cls in (LookedUpByADescriptor, MissedByADescriptor):
        try:
            return x, cls().name
        except AttributeError:
            x = x + 1
    return x + 1, RAISES.asked


class SetsItems(dict):
    __setattr__ = dict.__setitem__
    __getattr__ = dict.__getitem__


@case
def attributes_that_are_items(x):
    made = SetsItems()
    made.name = 1
    return x + 1, made.name, dict(made)


class Pretender:
    def __init__(self, other):
        self.other = other

    def __getattribute__(self, name):
        return object.__getattribute__(self, name) if name == "other" else getattr(self.other, name)


@case
def a_class_that_says_what_it_is(x):
    made = Pretender(Formatted())
    return x + 1, isinstance(made, Formatted), isinstance(made, Pretender)


class Chooses:
    def __new__(cls, value):
        return object.__new__(Chosen)


class Chosen(Chooses):
    def __init__(self, value):
        self.value = value


@case
def init_of_the_class_that_new_chose(x):
    return x + 1, Chooses(3).value


class StoresInTheDict:
    def __set__(self, instance, value):
        instance.__dict__["name"] = value


class WithAStore:
    name = StoresInTheDict()


@case
def a_descriptor_that_stores_in_the_dict(x):
    made = WithAStore()
    aside(made)
    made.name = 42
    aside(made)
    return x + 1, made.name, vars(made)


class Divides:
    def __floordiv__(self, other):
        return "left"

    def __rfloordiv__(self, other):
        return "right"


class DividesAlike(Divides):
    pass


class DividesOtherwise(Divides):
    def __rfloordiv__(self, other):
        return "otherwise"


@case
def only_a_reflected_method_of_its_own_goes_first(x):
    return x + 1, Divides() // DividesAlike(), Divides() // DividesOtherwise()


@case
def errors_say_which_name_is_missing(x):
    made = Formatted()
    found = []
    try:
        made.missing  # noqa: B018
    except AttributeError as error:
        found += [error.name, error.obj is made]
    try:
        missing  # noqa: B018
    except NameError as error:
        found.append(error.name)
    return x + 1, found


class Unsigned:
    pass


@case
def words_of_unary_operators(x):
    words = []
    for apply in (lambda: -Unsigned(), lambda: +Unsigned(), lambda: ~Unsigned()):
        try:
            apply()
        except TypeError as error:
            words.append(str(error))
    return x + 1, words
