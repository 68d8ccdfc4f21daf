"""Containers: subclasses with operators of their own, comparisons that change what is searched, messages, identity."""

import collections
import inspect
import sys
import typing

import tracework_capture as capture
from cases import case


@capture.disable
def nothing(*anything):
    pass


def error_of(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), error.args


class Vector(typing.NamedTuple):
    x: int
    y: int = 1

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other):
        return 7

    def __eq__(self, other):
        return "equal"

    def __getitem__(self, index):
        return "item"


class Extended(collections.namedtuple("Extended", "a b")):
    def __init__(self, a, b):
        self.extra = a + b

    def __getattr__(self, name):
        return name + "!"


VECTOR = Vector(5, 6)


@case
def namedtuples_with_operators_of_their_own(x):
    made, found = Vector(1, 2), []
    for vector in (made, VECTOR):
        found += [vector + Vector(3), vector - 1, vector == 3, vector[0], list(vector), len(vector), vector.y]
        found += [vector._replace(y=5), vector._asdict()]
    return x + vector.x, [list(f) if isinstance(f, tuple) else f for f in found]


@case
def namedtuples_with_an_init(x):
    made = Extended(1, 2)
    return x + made.extra, made.other, list(made), type(made)


class Masked(list):
    def __getitem__(self, index):
        return "item"

    def __len__(self):
        return 5


class MaskedDeque(collections.deque):
    def __getitem__(self, index):
        return "item"


MASKED, MASKED_DEQUE = Masked([1, [2]]), MaskedDeque([1, [2]])


@case
def items_of_existing_lists_whose_class_says_otherwise(x):
    return x + 1, list(MASKED), MASKED[0], len(MASKED), list.__getitem__(MASKED, 1)


@case
def items_of_existing_deques_whose_class_says_otherwise(x):
    return x + 1, list(MASKED_DEQUE), MASKED_DEQUE[0], collections.deque.__getitem__(MASKED_DEQUE, 1)


class Emptying:
    """Empties what is searched when it is compared."""

    def __init__(self, container, answer):
        self.container, self.answer = container, answer

    def __eq__(self, other):
        self.container.clear()
        return self.answer


@case
def comparisons_that_change_what_is_searched(x):
    found = []
    for kind in (list, collections.deque):
        for answer in (False, True):
            for search in ("__contains__", "index", "count", "remove"):
                container = kind()
                container.extend([3, Emptying(container, answer), 5])
                outcome = error_of(getattr(container, search), 5)
                found.append((kind, search, outcome, len(container)))
    return x + 1, found


@case
def a_deque_that_is_filled_again_is_another(x):
    made = collections.deque([1, 2])
    iterator = iter(made)
    made.clear()
    made.extend([3, 4])
    return x + 1, error_of(next, iterator)


@case
def messages_of_sequences_that_cannot_be_joined(x):
    sequences = ([1], (1,), collections.deque([1]))
    joined = [error_of(lambda a, b: a + b, one, other) for one in sequences for other in (*sequences, "a", 3)]
    repeated = [error_of(lambda a, b: a * b, one, "a") for one in sequences]
    strange = [outcome for outcome in (*joined, *repeated) if isinstance(outcome, tuple) and outcome[0] is TypeError]
    return x + 1, strange


@case(graphs=2)
def what_object_does_with_a_list(x):
    made = [1]
    y = x + 1
    text = object.__repr__(made)
    nothing(text)
    return y * 2, object.__eq__(made, [1]), object.__ne__(made, made)


class Shadowed(dict):
    a = 3

    @property
    def __dict__(self):
        raise RuntimeError("asked for the dict")


@case
def instances_whose_class_has_its_own_dict(x):
    made = Shadowed()
    made.a, made.b = 4, 5
    nothing_is_asked = made.a + made.b
    return x + nothing_is_asked, inspect.getattr_static(Shadowed, "a")


class CallsDict(type):
    __call__ = dict


class Listed(metaclass=CallsDict):
    pass


@case
def metaclasses_whose_call_is_a_class(x):
    return x + 1, Listed(a=1), type(Listed(b=2))


@case(graphs=4)  # each call makes another class, of which the rest is compiled anew
def aliases_of_classes_made_inside_hold_the_class(x):
    class Made:
        value = 4

    alias = typing.Annotated[Made, "more"]
    y = x + alias.value
    nothing()
    alias.other = 5
    return y * 2, Made.other


def taken_out(kind, change):
    made = kind(a=1, b=2)
    change(made)
    return made


class Ordered(collections.OrderedDict):
    pass


TAKEN_OUT = [
    taken_out(kind, change)
    for kind in (collections.OrderedDict, Ordered)
    for change in (dict.clear, lambda made: dict.__delitem__(made, "a"))
]


@case(graphs=2 if sys.version_info < (3, 12) else 1)  # the comprehension is part of the frame since, which ends plainly
def ordered_dicts_that_methods_of_dict_changed(x):
    y = x + 1
    found = [error_of(lambda: list(made.items())) for made in TAKEN_OUT]
    return y * 2, found, [len(made) for made in TAKEN_OUT]


@case
def slices_without_a_step(x):
    made = [1, 2]
    slices = lambda sequence: error_of(lambda: sequence[::0])
    return x + 1, slices(made), slices((1, 2)), error_of(made.__delitem__, slice(0, 1, 0))


@case
def messages_of_operators_that_a_type_lacks(x):
    def power(value):
        value **= 2

    def sum_of(value):
        value += 2

    functions = (power, sum_of, lambda value: value**2, lambda value: 2 + value)
    return x + 1, [error_of(function, value) for value in (None, object(), [1]) for function in functions]


@case
def namedtuple_classes_made_inside(x):
    kind = collections.namedtuple("kind", "a b")
    y, made = x + 1, kind(1, 2)
    return y, error_of(lambda: made._replace(a=3, other=4)), kind[int].__origin__ is kind


class Odd:
    __match_args__ = (None,)


def matched(value):
    match value:
        case Odd(first):
            return first


@case
def match_args_that_are_no_texts(x):
    return x + 1, error_of(matched, Odd())


class Slotted:
    y = 0
    __slots__ = ("z",)


def without(name):
    delattr(Slotted(), name)


@case
def messages_of_odd_indices_and_names(x):
    indexed = [error_of(lambda s: s["a"], sequence) for sequence in ([1], (1,), collections.deque([1]))]
    return x + 1, indexed, error_of([1].pop, "a"), [error_of(without, name)[1] for name in ("x", "y", "z")]


def missing_attribute(holder):
    try:
        del holder.q
    except AttributeError as error:
        return str(error), error.name, error.obj


@case
def attributes_that_are_not_there_to_be_deleted(x):
    return x + 1, missing_attribute(Holder())


class Holder:
    pass


@case
def dicts_of_what_are_no_pairs(x):
    found = []
    for given in ([(1, 2, 3)], [1], ["abc"], [[]], 5, [None], [(1, 2), 3]):
        found += [error_of(dict, given), error_of({}.update, given)]
    return x + 1, found


@case
def ordered_dicts_from_keys(x):
    made = collections.OrderedDict.fromkeys(["a", "b"], value=x + 1)
    return made["b"], type(made), [*made]


@case
def orders_of_sets_of_constants(x):
    made = set(x.shape)
    made ^= {1, 9, 17, 33}
    found = [
        str({1, 9, 17, 33}),
        str({5} ^ {1, 9, 17, 33}),
        str({5} | {1, 9, 17, 33}),
        str(made),
        [*made],
        [*({1, 9, 17, 33} - made)],
    ]
    return x + 1, found, str({*x.shape, 1, 9, 17, 33, 65}), repr(frozenset({1, 9, 17, 33}))
