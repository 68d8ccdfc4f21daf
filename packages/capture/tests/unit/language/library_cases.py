"""functools, itertools, operator, collections, contextlib, copy, math, inspect, strings and formatting, builtins."""

import bisect
import collections
import contextlib
import copy
import decimal
import fractions
import functools
import heapq
import inspect
import itertools
import math
import operator
import re
import types
import typing

import torch
import tracework_capture as capture
from cases import case


@functools.cache
def squared(n):
    return n * n


def add(a, b, *, c=0):
    return a + b + c


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@logged
def wrapped(x):
    """Doc."""
    return x * 2


@functools.singledispatch
def kind_of(value):
    return "object"


@kind_of.register
def _(value: int):
    return "int"


@kind_of.register(list)
def _(value):
    return "list"


@case
def functools_functions(x):
    part = functools.partial(add, x, c=2)
    return (
        part(1),
        functools.partial(part, 3)(),
        functools.reduce(operator.mul, [x, x, 2]),
        squared(4),
        wrapped(x),
        wrapped.__name__,
    )


@case
def singledispatch(x):
    return x + 1, kind_of(3), kind_of([]), kind_of("s")


@case
def cmp_to_key(x):
    return x + 1, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


@case
def itertools_infinite(x):
    def first(n, iterator):
        return list(itertools.islice(iterator, n))

    return (
        [x * i for i in first(2, itertools.count(1))],
        first(4, itertools.cycle("ab")),
        first(2, itertools.repeat(1)),
        first(3, itertools.accumulate(itertools.count())),
    )


@case
def itertools_finite(x):
    chained = list(itertools.chain([x], (1,), "a")) + list(itertools.chain.from_iterable([[1], [2]]))
    grouped = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 1], key=lambda v: v % 2)]
    a, b = itertools.tee([1, 2])
    return (
        x + 1,
        chained,
        grouped,
        list(a),
        list(b),
        list(itertools.accumulate([1, 2, 3], operator.mul, initial=2)),
        list(itertools.compress("abc", [1, 0, 1])),
        list(itertools.dropwhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.takewhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.filterfalse(lambda v: v % 2, range(4))),
        list(itertools.pairwise("abc")),
        list(itertools.starmap(pow, [(2, 3), (3, 2)])),
        list(itertools.zip_longest("ab", "c", fillvalue="-")),
    )


@case
def itertools_combinatoric(x):
    return (
        [x * a * b for a, b in itertools.product([1, 2], repeat=2)],
        list(itertools.permutations("abc", 2)),
        list(itertools.combinations([1, 2, 3], 2)),
        list(itertools.combinations_with_replacement("ab", 2)),
    )


@case
def operator_functions(x):
    get, attr = operator.itemgetter(1, 0), operator.attrgetter("shape")
    call = operator.methodcaller("upper")
    return (
        operator.add(x, 1),
        operator.matmul(x, x.t()),
        get([1, 2]),
        attr(x),
        call("a"),
        operator.index(3),
        operator.truth([]),
        operator.contains("ab", "a"),
        operator.concat([1], [2]),
    )


@case
def counter(x):
    count = collections.Counter("abca")
    count.update("b")
    return x + 1, dict(count), count["a"], count["missing"], count.most_common(1)


@functools.total_ordering
class Ranked:
    def __init__(self, rank):
        self.rank = rank

    def __eq__(self, other):
        return self.rank == other.rank

    def __lt__(self, other):
        return self.rank < other.rank


@case
def heaps(x):
    heap = [5, 1, 4]
    heapq.heapify(heap)
    heapq.heappush(heap, 2)
    taken = heapq.heappop(heap), heapq.heapreplace(heap, 9), heapq.heappushpop(heap, 0)
    try:
        heapq.heappop([])
    except IndexError as error:
        taken += (str(error),)
    extremes = heapq.nlargest(2, [3, 1, 2]), heapq.nsmallest(2, [3, 1, 2], key=lambda v: -v), list(heapq.merge([1, 4], [2]))
    beams = [(1.5, 2, x)]
    heapq.heappush(beams, (0.5, 1, x + 1))
    return heapq.heappop(beams)[2], heap, taken, extremes, collections.Counter("abracadabra").most_common(2)


@case
def bisections(x):
    found = [1, 3, 5]
    bisect.insort(found, 4)
    bisect.insort_left(found, 3, 1)
    ranks = [Ranked(1), Ranked(2)]
    places = bisect.bisect(found, 3), bisect.bisect_left(found, 3, lo=2), bisect.bisect([3, 2, 1], -2, key=lambda v: -v)
    return x + 1, found, places, bisect.bisect_right(ranks, Ranked(1))


@case
def chain_map(x):
    chain = collections.ChainMap({"a": x + 1}, {"a": 1, "b": 2})
    return chain["a"], chain["b"], len(chain), "c" in chain


@case
def ordered_and_default_dict(x):
    ordered = collections.OrderedDict(a=x + 1, b=2)
    ordered.move_to_end("a")
    default = collections.defaultdict(list)
    default["k"].append(x)
    return (
        list(ordered),
        ordered.popitem(last=False)[0],
        default["k"],
        "z" in default,
        collections.OrderedDict(a=1, b=2) == collections.OrderedDict(b=2, a=1),
    )


@case
def deque(x):
    made = collections.deque([1, 2, 3], maxlen=3)
    made.append(x + 1)
    made.appendleft(0)
    made.rotate(1)
    made.extendleft([7])
    return list(made), made.maxlen, made[0], made.pop(), made.popleft(), len(made)


@case
def dict_methods(x):
    d = {"a": 1, "b": x}
    d.update([("c", 3)], e=5)
    d |= {"f": 6}
    return (
        x + 1,
        d.get("z", 0),
        d.setdefault("a", 9),
        d.pop("c"),
        d.popitem(),
        list(d),
        list(d.items())[0],
        d.keys() & {"a", "q"},
        dict.fromkeys("ab", 1),
        {**d} == d,
        list(reversed(d)),
    )


@case
def views_and_what_is_gone_through_once(x):
    d = {1: 2, 3: 4}
    keys, items = d.keys(), d.items()
    return (
        x + 1,
        [keys & iter([1, 2]), keys | iter([1, 2]), keys ^ iter([1, 2]), keys - iter([1, 2])],
        [items & iter([(1, 2)]), items | iter([(1, 2)]), items ^ iter([(1, 2)]), items - iter([(1, 2)])],
        [keys & (n for n in (3, 5)), iter([1, 2]) & keys, keys & d.values(), keys & [1], keys & map(abs, [-1])],
        keys.isdisjoint(iter([5])),
    )


@case
def dict_changes_while_iterated(x):
    d = {"a": 1}
    try:
        for key in d:
            d[key + "b"] = x
    except RuntimeError as error:
        return x + 1, str(error)
    return x


@case
def set_methods(x):
    s = {3, 1, 2}
    s.add(40)
    s.discard(9)
    s |= {5}
    s -= {1}
    t = frozenset("ab")
    return (
        x + 1,
        list(s),
        s & {2, 3},
        s ^ {2},
        s <= {2, 3, 5, 40},
        s.isdisjoint({9}),
        sorted(t | {"c"}),
        len(s),
        3 in s,
        [i * 2 for i in {30, 10, 20}],
        list({-1, 10**10, 5} - {5}),
    )


@case
def list_methods(x):
    items = [3, 1, 2]
    items.extend([x.shape[0]])
    items.insert(1, 9)
    items.sort(reverse=True)
    items.remove(9)
    items.reverse()
    return (
        x + 1,
        items,
        items.index(3),
        items.count(2),
        items.pop(),
        items.copy(),
        [1, 2] < [1, 3],
        [0] * 2 + items,
        sorted("bca", key=str.upper),
    )


@case
def contextlib_managers(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "callback")
        stack.enter_context(contextlib.nullcontext(3))
        y = x + 1
    with contextlib.suppress(KeyError, ValueError):
        {}["k"]
    with contextlib.nullcontext(5) as five:
        y = y + five
    return y, log


class Closes:
    closed = False

    def close(self):
        self.closed = True


@case
def contextlib_closing(x):
    thing = Closes()
    with contextlib.closing(thing) as held:
        y = x + held.closed
    return y, thing.closed


@case
def copies(x):
    nested = {"a": [1, [2]], "b": (x.shape[0],)}
    shallow, deep = copy.copy(nested), copy.deepcopy(nested)
    nested["a"][1].append(3)
    return x + 1, shallow, deep, copy.copy([1, 2]), copy.deepcopy((1, [2]))


@case
def math_functions(x):
    n = x.shape[0]
    return (
        x * math.sqrt(n) * math.pi,
        math.ceil(n / 3),
        math.floor(-1.5),
        math.prod([1, 2, 3]),
        math.gcd(4, 6),
        math.log2(8),
        math.isclose(1.0, 1.0 + 1e-12),
        math.inf > n,
        math.comb(5, 2),
        math.isnan(math.nan),
    )


@case
def inspect_signature(x):
    signature = inspect.signature(add)
    return (
        x + 1,
        list(signature.parameters),
        signature.parameters["c"].default,
        len(inspect.signature(lambda a, *b: a).parameters),
    )


@case
def string_methods(x):
    s = "Hello, World"
    return (
        x + 1,
        s.upper(), s.split(", "), s.replace("l", "L", 1), s.find("World"), s.partition(","), s.startswith(("He", "x")),
        "-".join(str(i) for i in range(3)), " a ".strip(), "abc".center(7, "*"), "1".zfill(3), "a\tb".expandtabs(2), s[::-1],
        "ab" * 2, "a" in s, s.encode(), b"xy".decode(), "x".isalpha(), "abc".translate({97: "z"}), s.removeprefix("Hello"), "A".casefold(),
    )  # fmt: skip


@case
def string_formatting(x):
    n, pi, name = 42, 3.14159, "w"
    return (
        x + 1,
        "%d %s %.2f %r %5d|%-5d|%x" % (n, name, pi, name, n, n, n),  # noqa: UP031
        "{} {0}".replace("{0}", "{}").format(n, name),
        "{0:>{width}} {name!r:^7} {pi:.3e}".format(n, width=6, name=name, pi=pi),
        f"{n:08b} {n:#x} {pi:+.1f} {1234567:,} {0.25:%} {name:*^9} {n!s:>5}",
        format(n, "05"),
        str(x.dtype),
        f"{x.shape[0]:03d} {tuple(x.shape)}",
        "{:>10}".format("r"),
        "%(a)s-%(b)03d" % {"a": 1, "b": 2},  # noqa: UP031
    )


class Kept:
    v = 3


def error_of_format(template, *args):
    try:
        return template.format(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@case
def templates_that_look_things_up(x):
    broken = ("{} {0.ndim}", "{3.ndim}", "{a.ndim}", "{0.ndim", "{0.missing}", "{.ndim}{.ndim}")
    return (
        x + 1,
        "{1.ndim} {0.dtype}".format(x, x[None]),  # noqa: UP030, UP032
        "{.ndim} {:>{w.ndim}} {m[k]:.2f} {o.v!r:>5} {{}}".format(x, 3, w=x[None], m={"k": 1.234}, o=Kept()),
        [error_of_format(template, x) for template in broken],
    )


@case
def partials_are_asked_for_their_call(x):
    function = functools.partial(torch.add, x)
    return function.__call__(1), hasattr(function, "__call__"), callable(function)  # noqa: B004


@case
def names_of_types(x):
    return x + 1, torch.typename(x), torch.typename(3)


@case
def builtin_functions(x):
    return (
        x + 1,
        abs(-3), all([1, 0]), any([0, 1]), bin(5), bool(""), chr(97), divmod(7, 2), list(enumerate("ab", 1)), list(filter(None, [0, 1])),
        float("2.5"), hex(255), int("ff", 16), isinstance(True, int), len("abc"), list(map(add, [1], [2])), max(3, 1), max([1, 5], key=lambda v: -v),
        min([], default=0), oct(8), ord("a"), pow(2, 5, 7), list(range(5, 0, -2)), repr([1, "a"]), list(reversed([1, 2])), round(2.567, 2),
        sorted([3, 1], reverse=True), str(1.0), sum([1, 2], 10), tuple("ab"), list(zip("ab", [1, 2])), int is int, slice(1, 2).indices(5), hash(5),
    )  # fmt: skip


@case
def builtin_errors(x):
    seen, n = [], 5
    for action in (
        lambda: [].pop(), lambda: {}["k"], lambda: [1][n], lambda: int("x"), lambda: 1 // 0, lambda: "a" + 1, lambda: None.a, lambda: {[]: 1},
        lambda: next(iter([])), lambda: (1, 2)[0:1].index(9), lambda: math.sqrt(-1), lambda: max([]), lambda: collections.deque().pop(), lambda: min(),
    ):  # fmt: skip
        try:
            action()
        except Exception as error:
            seen.append(type(error).__name__)
    return x + 1, seen


@case  # the exception ends the graph: what follows runs plainly
def deque_pop_takes_no_index(x):
    y = x + 1
    try:
        collections.deque([1]).pop(0)
    except TypeError:
        return y * 2
    return y


@case
def bytes_and_numbers(x):
    return (
        x + 1,
        b"ab" + b"c",
        b"abc"[1],
        bytes([1, 2]),
        (3).bit_length(),
        (2.5).is_integer(),
        1e3,
        0x1F,
        7 // -2,
        -7 % 3,
        2**-1,
        True + True,
        complex(1, 2).real,
    )


@case
def torch_and_python(x):
    sizes = [t.shape[0] for t in torch.split(x, 1)]
    return torch.stack([x * s for s in sizes]), {k: v.sum() for k, v in zip("ab", x)}


def marked(x):
    return x + 1


marked.mark = "kept"


@case
def wraps_keeps_attributes(x):
    made = logged(marked)
    return made(x), made.mark, made.__name__, made.__wrapped__ is marked


class Wraps:
    """Gives a wrapper of what it holds when it is asked for, as functools.singledispatchmethod does."""

    def __init__(self, held):
        self.held = held

    def __get__(self, instance, owner=None):
        @functools.wraps(self.held)
        def wrapper(value):
            return value

        return wrapper


class ClassWithAWrappedMethod:
    @Wraps
    @classmethod
    def method(cls, value: int) -> int:
        """Doc."""

    factor = 3


@case(graphs=2)
def wraps_keeps_what_a_classmethod_has(x):
    y, method = x + 1, ClassWithAWrappedMethod.method
    return y * 2, method.__annotations__, method.__name__, method.__doc__, sorted(vars(method))


@case
def wraps_a_class(x):
    y, made = x + 1, functools.wraps(ClassWithAWrappedMethod)(lambda a: a * 2)
    return made(y), made.factor, made.__name__


@capture.disable
def aside(value):
    return value


@case(graphs=2)
def break_in_a_loop_over_a_deque(x):
    total = x
    for item in collections.deque([1, 2, 3]):
        total = total + item
        aside(item)
    return total


@case
def deque_changed_while_iterated(x):
    made = collections.deque([1, 2])
    try:
        for item in made:
            made.append(item)
    except RuntimeError as error:
        return x + 1, str(error)
    return x


PARAMETERS, PACK = typing.ParamSpec("PARAMETERS"), typing.TypeVarTuple("PACK")


@case
def type_parameters_know_their_module(x):
    return x + 1, PARAMETERS.__module__, PACK.__module__, PARAMETERS.__name__, PARAMETERS.args is PARAMETERS.args, str(PACK)


@case
def signature_of_a_function_made_inside(x):
    y = x + 1

    def made(a, b=(1, "x"), *, c: int = 2, d) -> str:
        return a

    def wrapper(*args, **kwargs):
        return made(*args, **kwargs)

    wrapper.__wrapped__ = made
    bound = inspect.signature(made).bind(y, d=3)
    bound.apply_defaults()
    method = inspect.signature(types.MethodType(made, x))
    return (
        bound.arguments["b"],
        bound.arguments["c"],
        bound.kwargs["d"],
        bound.args[0],
        str(inspect.signature(wrapper)),
        str(method),
    )


@case()
def deque_with_a_longest_length(x):
    made = collections.deque("abc", maxlen=4)
    joined, repeated, seen = made + collections.deque("gh"), made * 2, []
    for use in (lambda: (made + joined).insert(1, "x"), lambda: made[0:1]):
        try:
            use()
        except (IndexError, TypeError) as error:
            seen.append(str(error))
    return x + 1, joined, joined.maxlen, repeated, made.copy(), seen


@case(graphs=0)  # a frame that cannot take the iterator along runs plainly
def iterator_over_a_deque_that_is_changed_before_a_break(x):
    made = collections.deque([1, 2])
    left = iter(made)
    made.append(3)
    y = x + 1
    capture.graph_break()
    try:
        next(left)
    except RuntimeError as error:
        return y * 2, str(error)


class Turn(complex):
    def __rpow__(self, other):
        return "turn", other

    def __radd__(self, other):
        return "sum", other


THREE_HALVES, TURN = fractions.Fraction(3, 2), Turn(2)


@case
def fractions_and_objects(x):
    """The methods of a Fraction are Python code, and are asked before those of the other number."""
    try:
        divmod(THREE_HALVES, 1j)
    except TypeError as error:
        said = str(error)
    return x + 1, THREE_HALVES**TURN, THREE_HALVES + TURN, THREE_HALVES == TURN, divmod(7, THREE_HALVES), said


CONTEXT = decimal.Context(prec=5)


@case(graphs=2)
def attributes_that_a_type_of_c_looks_up_itself(x):
    y = x + 1
    trapped = CONTEXT.traps[decimal.Inexact]
    with decimal.localcontext(CONTEXT) as context:
        context.prec = 3
        return y * 2, trapped, decimal.Decimal(1) / 3, context.flags[decimal.Inexact]


ASSIGNED = re.compile(r"(\w)=(\d)")


@case
def matches_one_by_one(x, text="a=1 b=2"):
    found = ASSIGNED.finditer(text)
    first = next(found)
    numbers = [int(m.group()) for m in re.finditer(r"\d+", "a12b3")]
    return x * len(first[1]), [m[0] for m in found], {m[1]: m.span() for m in ASSIGNED.finditer(text)}, numbers, list(found)


def scaled(a, b=1):
    """a * b"""
    return a * b


renamed = functools.update_wrapper(functools.partial(scaled, b=3), scaled)
bare = functools.partial(scaled, b=4)


@case
def partials_have_attributes(x):
    made = functools.partial(scaled, b=x)
    made.label = "by x"
    made.keywords["more"] = 1
    del made.keywords["more"]
    nested, flat = functools.partial(made), functools.partial(bare, 2)
    return (
        renamed(x),
        (renamed.__name__, renamed.__doc__, renamed.__wrapped__ is scaled, hasattr(renamed, "__module__")),
        [hasattr(bare, name) for name in ("__name__", "__wrapped__", "func", "lable")],
        (made, made(x), made.label, made.keywords is made.keywords, made.args),
        (nested.func is made, flat.func is scaled, flat.args, flat.keywords),
        functools.partial(bare, x).__call__(),
    )


@case
def keywords_of_a_partial_are_a_dict_of_its_own(x):
    made = functools.partial(scaled, x)
    named = made.keywords
    named["b"] = 7
    return made(), made, named


class Doubling:
    def __init__(self):
        self.factor = 2

    def __call__(self, a):
        return a * self.factor


doubling = Doubling()


@case
def wrappers_of_what_is_no_function(x):
    made = functools.partial(scaled, b=3)
    made.label = "by three"

    @functools.wraps(made)
    def outer(a):
        return made(a)

    @functools.wraps(doubling)
    def twice(a):
        return doubling(a)

    def other(a):
        return a

    updated = functools.update_wrapper(other, scaled)
    return (
        (outer(x), outer.__name__, outer.label, outer.__wrapped__ is made),
        (twice(x), twice.__name__, twice.factor),
        (updated(x), updated.__name__, updated is other, updated.__doc__),
    )


@case
def factories_are_called(x):
    return x + 1, collections.defaultdict(lambda: 5).default_factory(), collections.defaultdict(list).default_factory()


class Wrapping:
    """An object in the place of a function."""

    def __init__(self, function, **names):
        self.function = function
        functools.update_wrapper(self, function, **names)

    def __call__(self, a):
        return self.function(a)


class CountingWrapping(Wrapping):
    def __setattr__(self, name, value):
        self.__dict__[name] = value
        self.__dict__["sets"] = self.__dict__.get("sets", 0) + 1


@case
def wrappers_that_are_objects(x):
    def plus(a):
        return a + 1

    plus.label = "one more"
    chosen = {"all": {}, "assigned": {"updated": ()}, "updated": {"assigned": ()}, "name": {"assigned": ("__name__",)}}
    made = {name: Wrapping(plus, **names) for name, names in chosen.items()}
    named = functools.wraps(plus, updated=())(lambda a: a)
    given = functools.update_wrapper(wrapped=plus, wrapper=CountingWrapping(scaled))
    return (
        {name: (wrapping(x), [getattr(wrapping, n, None) for n in ("__name__", "label")]) for name, wrapping in made.items()},
        (named(x), named.__name__, hasattr(named, "label"), named.__wrapped__ is plus),
        (given(x), given.__doc__, given.label, given.sets),
    )
