"""What CPython's own tests found in built-in types: views, unions, namespaces, files of the program, locals of threads, errors."""

import collections
import functools
import inspect
import io
import operator
import sys
import threading
import types
import weakref

import torch
from cases import case

SETTINGS = {"scale": 2}
VIEW = types.MappingProxyType(SETTINGS)


@case
def a_view_of_a_mapping(x):
    own = {"a": 1}
    view = types.MappingProxyType(own)
    own["b"] = 2
    try:
        view["a"] = 3
    except TypeError as error:
        text = str(error)
    return x * VIEW["scale"], dict(view | {"c": 3}), sorted(view), view == own, text, type(view), len(view)


@case
def texts_of_a_view(x):
    return x + 1, repr(VIEW), f"{VIEW!r} {VIEW}", str(VIEW)


def takes_two(first, *, second=2):
    return first


@case
def a_view_of_the_parameters_of_a_signature(x):
    parameters = inspect.signature(takes_two).parameters
    return x * len(parameters), list(parameters), "second" in parameters, parameters["second"].default


@case(graphs=3)  # the view is another one at each call
def a_view_over_a_break(x):
    own = {"a": 1}
    view = types.MappingProxyType(own)
    own["b"] = x + 1
    torch._dynamo.graph_break()
    own["c"] = view["b"] * 2
    return view["c"], sorted(view), "setdefault" in dir(view)


@case
def unions_of_the_relatives_of_dict(x):
    default = collections.defaultdict(int, {1: "one"})
    ordered = collections.OrderedDict(a=1)
    made = [{0: "zero"} | default, default | {0: "zero"}, {1: 2} | ordered, ordered | default, default | ordered]
    return x + 1, made, [type(m) for m in made], [getattr(m, "default_factory", None) for m in made]


class Spam(types.SimpleNamespace):
    pass


@case
def namespaces(x):
    spam = Spam(ham=8, eggs=x + 1)
    return spam.ham, spam.eggs, sorted(vars(spam)), type(spam).__name__


GIVEN = types.SimpleNamespace(ham=8, eggs=[1])


@case
def namespaces_are_compared_by_what_they_hold(x):
    spam, same = Spam(ham=8, eggs=[1]), types.SimpleNamespace(ham=8, eggs=[1])
    found = spam == same, same == spam, spam != same, GIVEN == spam, spam == GIVEN, spam in [3, GIVEN]
    return x + 1, found, spam == Spam(ham=8), spam != Spam(ham=8), spam == vars(spam), spam is same


@case
def a_namespace_that_refuses(x):
    y = x + 1
    try:
        types.SimpleNamespace(1, 2)
    except TypeError:
        return y * 2
    return y


class Lines:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


@case(graphs=2)
def printing_to_an_object_of_the_program(x):
    lines = Lines()
    y = x + 1
    print("a", 1, file=lines)
    return y * 2, lines.text


@case
def printing_to_a_text(x):
    lines = io.StringIO()
    y = x + 1
    print("a", 1, file=lines)
    return y * 2, lines.getvalue()


def twice_wrapped(function):
    return functools.wraps(function)(lambda *args: function(*args) * 2)


@twice_wrapped
@twice_wrapped
def in_wrappers(x):
    return x + 1


def in_a_ring():
    pass


in_a_ring.__wrapped__ = in_a_ring


@case()
def what_is_wrapped(x):
    inner = inspect.unwrap(in_wrappers)
    first = inspect.unwrap(in_wrappers, stop=lambda function: function is not in_wrappers)
    return inner(x) + first(x), first is in_wrappers.__wrapped__


@case(graphs=0)
def wrapped_in_a_ring(x):
    try:
        return x, inspect.unwrap(in_a_ring)
    except ValueError as error:
        return x + 1, str(error)


@case()
def identities(x):
    known = {id(in_wrappers): 1, id(torch.nn.Linear): 2}
    return x + known[id(torch.nn.Linear)], id(in_a_ring) in known, id(in_wrappers) == id(in_wrappers.__wrapped__)


@case()
def identities_of_what_is_new(x):
    def new():
        pass

    class New:
        pass

    return x + 1, id(new) == id(new), id(New) == id(New)


PER_THREAD = threading.local()


@case()
def an_attribute_of_a_thread_local(x):
    y = x + 1
    PER_THREAD.value = 3
    return y * PER_THREAD.value


def made_elsewhere():
    try:
        raise ValueError(1)
    except ValueError as error:
        return error


KEPT = made_elsewhere()


@case
def an_old_error_gets_a_new_context(x):
    y = x + 1
    KEPT.__context__ = None
    try:
        try:
            raise KeyError(2)
        except KeyError:
            raise KEPT  # noqa: B904
    except ValueError as error:
        return y * 2, type(error.__context__), error.__traceback__ is not None


@case
def relations_that_are_refused(x):
    found = []
    for kind in (3, "a"):
        try:
            found.append(issubclass(kind, int))
        except TypeError as error:
            found.append(str(error))
    return x + 1, found


@case
def sets_of_classes(x):
    kinds = {int}
    kinds.add(str)
    names = sorted(kind.__name__ for kind in kinds)
    kinds.discard(int)
    return x + 1, names, kinds.pop() is str, int in frozenset([int]), len({len, print} | {len})


Named = collections.namedtuple("Named", "self frame")


@case
def fields_named_as_parameters(x):
    made = Named(self=x, frame=2)._replace(frame=3)
    return x + 1, made.frame, made._asdict()["frame"]


class Secretive(type):
    @property
    def __dict__(self):
        return None


class Secret(metaclass=Secretive):
    def __init__(self):
        self.value = 3


class Refusing:
    def __get__(self, instance, owner):
        raise AttributeError("never")


class Refused:
    attribute = Refusing()


@case
def classes_that_refuse(x):
    return x + Secret().value, getattr(Refused, "attribute", "nothing")


def annotated_nowhere(x):
    return x


@case
def wraps_shares_annotations(x):
    made = functools.wraps(annotated_nowhere)(lambda x: x * 2)

    def here(x: int) -> int:
        return x

    again = functools.wraps(here)(lambda x: x)
    shared = again.__annotations__ is here.__annotations__
    return made(x), made.__annotations__ is annotated_nowhere.__annotations__, shared, again.__annotations__


@case
def ordered_dict_with_too_much(x):
    y = x + 1
    try:
        collections.OrderedDict([], 3)
    except TypeError:
        return y


TEXT = "not a name " * 2


@case(graphs=2)
def texts_stay_the_same_objects(x):
    y = x + 1
    text = TEXT
    torch._dynamo.graph_break()
    return y * 2, text is TEXT


class Held:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    def __hash__(self):
        return hash(self.value)


HELD = [Held(1), Held(2), Held(1)]
REFERENCES = [weakref.ref(held) for held in HELD]


def is_first(x, reference):
    return x + 1, reference in {REFERENCES[0]}, reference == REFERENCES[0]


def hands_round(x, given):
    return x + 1, [item for item in given]


def asks_for_an_attribute(x):
    try:
        return x + sys.tracework_number
    except AttributeError:
        return x


@case
def sums(x):
    told = []
    for given in (([], ""), ([], b""), (["a"], "b"), ([], bytearray()), (["a"],)):
        try:
            told.append(sum(*given))
        except TypeError as error:
            told.append(str(error))
    numbers = sum([0.1] * 10), sum([1, 10**30, 0.1, 10**30, 0.3]), sum([True, True]), sum([0.1, 0.2, True, 0.3], start=0)
    return sum([0.5, x, 0.1, 0.2]), told, numbers, str(sum([-0.0], -0.0)), sum([[1], [2]], [])


@case
def operators_name_types_as_c_does(x):
    seen = []
    for value in (collections.deque(), collections.OrderedDict()):
        try:
            value - 1
        except TypeError as error:
            seen.append(str(error))
    for augmented in (lambda value: operator.ipow(value, 2), lambda value: value**2):
        try:
            augmented(None)
        except TypeError as error:
            seen.append(str(error))
    try:
        seen += 1
    except TypeError as error:
        seen.append(str(error))
    try:
        missing = None
        missing **= 2
    except TypeError as error:
        seen.append(str(error))
    return x + 1, seen


@case
def what_cannot_be_unpacked(x):
    seen = []
    for value in (None, 3, sys):
        try:
            first, *rest = value
        except TypeError as error:
            seen.append(str(error))
        try:
            first, second = value
        except TypeError as error:
            seen.append(str(error))
    return x + 1, seen


@case
def numbers_out_of_tensors(x):
    y = x + 1
    place = operator.index((y[0, 0] * 0).long())
    y = y * 2
    try:
        divmod(y, 2)
    except TypeError as error:
        return y, place, type(place), str(error)
    return y


@case
def a_stream_to_the_right_of_print(x):
    texts = []
    for function in (print, max):
        try:
            function >> sys.stderr
        except TypeError as error:
            texts.append(str(error))
    try:
        print << sys.stderr
    except TypeError as error:
        texts.append(str(error))
    return x + 1, texts


class Slotted:
    __slots__ = ("held",)


SLOTTED = Slotted()


@case
def vars_of_what_has_none(x):
    said = []
    for value in (SLOTTED, 3, [1], (1, x)):
        try:
            vars(value)
        except TypeError as error:
            said.append(str(error))
    return x + 1, said


@case
def containers_that_refuse(x):
    said = []
    for make in (
        lambda: collections.deque([1], -1),
        lambda: collections.deque((), "three"),
        lambda: collections.defaultdict(5),
        lambda: collections.OrderedDict().popitem(),
        lambda: {}.popitem(),
    ):
        try:
            make()
        except (KeyError, TypeError, ValueError) as error:
            said.append((type(error).__name__, str(error)))
    return x + 1, said


def counts():
    yield 1


@case
def types_of_bound_methods(x):
    over = (n for n in [1])
    bound = [
        over.__iter__,
        over.__next__,
        over.send,
        over.throw,
        over.close,
        counts().__iter__,
        iter([1]).__next__,
        [].__len__,
        [].append,
    ]
    return x + 1, [type(method) for method in bound], [method.__name__ for method in bound], over.__iter__() is over
