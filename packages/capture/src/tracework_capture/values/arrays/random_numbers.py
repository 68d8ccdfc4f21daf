"""random.random(), rng.randint(1, 6), np.random.rand() and their like: numbers drawn when the compiled code runs, before its graph, in the
program's order, from the generator that is where the program found it.

A draw is an input of the graph.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from ...arrays import NUMPY_DTYPES
from ...errors import NotPlain
from ...graph.changed_inputs import Draw
from ...guards.classes import NO_ATTRIBUTE, lookup_class
from ...signals import let_through
from ...sources import Const, Source
from ..number.drawn import EXACT, DrawnInt, DrawnValue
from ..plain.sequence import NONE, ListValue, SequenceValue, TupleValue
from ..protocol.binding import BoundBuiltin
from ..protocol.calls import CALLS, Handler, call, calls
from ..protocol.constant import ConstantValue, fold_literal, fold_plain, force_plain, plain
from ..protocol.keys import IdentityKey
from ..protocol.value import NEW, Emitter, Frame, Value
from .array import ArrayValue
from .nodes import call_method


def draw(
    frame: Frame, function: Callable[..., Any], generator: Any, source: Source, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """function(generator, *args, **kwargs), to be called for each run; the generator is at `source` then."""
    name = function.__name__
    try:
        given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
    except NotPlain:
        return frame.break_graph("random_state", f"{name} of values that are not known")
    numbers = [*given, *named.values()]
    fit = {*map(type, numbers)} <= {int, float} or type(generator) in NUMPY_KINDS and all(map(is_numpys, numbers))
    try:
        example = function(new_generator(UNTOUCHED[type(generator)]), *given, **named) if fit else None
    except Exception as error:  # the program's own
        let_through(error)
        return frame.break_graph("random_state", f"{name}, which raises {type(error).__name__}")
    if type(example).__name__ == "ndarray":
        return drawn_array(frame, Draw("array", function, (*given,), (*named.items(),)), source, example)
    counted = type(example) is int and {*map(type, numbers)} <= {int, float}
    most: Any = max([abs(number) for number in numbers], default=0) if counted else None
    if type(example) is not float and not (type(example) is int and type(most) is int and most <= EXACT):
        return frame.break_graph("random_state", f"{name} with these arguments")
    drawn = Draw(type(example).__name__, function, (*given,), (*named.items(),))
    node = frame.graph.drawn_input(source, type(example), drawn)
    frame.mutations.changes += 1
    return DrawnValue(node) if type(example) is float else DrawnInt(node, most)


def is_numpys(number: Any) -> bool:
    """Whether it is a number, sizes, a list of numbers, or nothing: what NumPy's generators draw arrays from."""
    if type(number) in (tuple, list):
        return all(map(is_numpys, number))
    return type(number) in (int, float, bool, str, type, type(None))


def drawn_array(frame: Frame, draw: Draw, source: Source, example: Any) -> ArrayValue:
    """An array of random numbers, drawn for each run."""
    if example.dtype not in NUMPY_DTYPES.values():
        return frame.break_graph("random_state", f"an array of {example.dtype} of random numbers")
    node = frame.graph.drawn_tensor(source, torch.from_numpy(example), draw)
    frame.mutations.changes += 1
    made = frame.graph.wrap_result(frame, node, node.meta["example_value"])
    return ArrayValue(call_method(frame, "clone", made))  # which the program may write to


def method_row(kind: Any, name: str) -> Handler:
    """The row of a method of this class of generators."""
    function = getattr(kind, name)

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        generator = args[0]
        if generator.source is None or generator.python_type() is not kind:
            return frame.break_graph("random_state", f"{name} of {generator.describe()}")
        if name == "shuffle" and not (len(args) > 1 and isinstance(args[1], ArrayValue)):
            return frame.break_graph("random_state", "shuffle of something else than an array")
        if name in OF_ITEMS and len(args) > 1 and isinstance(args[1], ArrayValue):
            return of_items(frame, function, generator, args[1], args[2:], kwargs)
        known: Any = generator
        return draw(frame, function, known.obj, generator.source, args[1:], kwargs)

    return row


def of_items(
    frame: Frame, function: Callable[..., Any], generator: Any, array: ArrayValue, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Items of an array, or all of them in another order: what is drawn are places along its first dim."""
    count = array.example.shape[0] if array.example.ndim else None
    in_place = function.__name__ == "shuffle"
    taken = function.__name__ != "choice" or array.example.ndim == 1
    if (
        type(count) is not int
        or {"axis", "p"} & kwargs.keys()
        or in_place
        and (args or kwargs or not array.writeable)
        or not taken
    ):
        return frame.break_graph("random_state", f"{function.__name__} of an array with these arguments")
    draws = shuffled if in_place else function
    places = draw(frame, draws, generator.obj, generator.source, [ConstantValue(count), *args], kwargs)
    if not isinstance(places, ArrayValue):
        return frame.break_graph("random_state", f"{function.__name__} of one item of an array")
    found = array.getitem(frame, places)
    if not in_place:
        return found
    assert isinstance(found, ArrayValue)
    array.write(frame, found.tensor)
    return NONE


def shuffled(generator: Any, count: int) -> Any:
    """Places in the order that the generator's shuffle gives to as many items."""
    places = numpy.arange(count)
    generator.shuffle(places)
    return places


class NewGenerator(Value):
    """random.Random(seed) that the traced program made: what it gives is known."""

    cls = random.Random
    is_unique = True
    mutability = NEW

    def __init__(self, generator: Any) -> None:
        super().__init__(None)
        self.generator = generator

    def hash_key(self, frame: Frame) -> Any:
        return IdentityKey(self)

    def getattr(self, frame: Frame, name: str) -> Value:
        if lookup_class(random.Random, name)[0] is FUNCTIONS.get(name, NO_ATTRIBUTE):
            return BoundBuiltin(self, name)
        return frame.break_graph("random_state", f"{name} of {self.describe()}")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if lookup_class(random.Random, name)[0] is not FUNCTIONS.get(name):
            return frame.break_graph("random_state", f"{name} of {self.describe()}")
        if name in FROM_SEQUENCES and args and isinstance(args[0], (ListValue, TupleValue)) and "counts" not in kwargs:
            return self.take(frame, name, args, kwargs)
        given, named = [force_plain(frame, a) for a in args], {k: force_plain(frame, v) for k, v in kwargs.items()}
        if name == "seed" and not is_seed(given, named):
            return frame.break_graph("random_state", "a seed that is not known")
        return fold_literal(frame, FUNCTIONS[name], self.generator, *given, **named)

    def take(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Items out of a list or tuple, or the list in another order: what is drawn are places in it."""
        given, named = [force_plain(frame, a) for a in args[1:]], {k: force_plain(frame, v) for k, v in kwargs.items()}
        sequence = args[0]
        assert isinstance(sequence, SequenceValue)
        items = sequence.all_items(frame)
        if name == "shuffle":
            if not isinstance(sequence, ListValue):
                return frame.break_graph("random_state", f"shuffle of {sequence.describe()}")
            order = list(range(len(items)))
            fold_plain(frame, FUNCTIONS[name], self.generator, order, *given, **named)
            for place, taken in enumerate(order):
                sequence.setitem(frame, ConstantValue(place), items[taken])
            return NONE
        places = (list if isinstance(sequence, ListValue) else tuple)(range(len(items)))  # messages name the kind
        found = fold_plain(frame, FUNCTIONS[name], self.generator, places, *given, **named)
        return items[found] if name == "choice" else ListValue([items[place] for place in found])

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(with_state)}({emit.const(self.generator.getstate())})"


def is_seed(given: list[Any], named: dict[str, Any]) -> bool:
    """Whether these arguments leave nothing to the operating system."""
    return bool(given) and type(given[0]) in (int, float, str, bytes) or type(named.get("a")) in (int, float, str, bytes)


def with_state(state: Any) -> Any:
    """A generator in this state."""
    made = random.Random(0)
    made.setstate(state)
    return made


def make_generator(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """random.Random(seed)"""
    given = [force_plain(frame, a) for a in args]
    if kwargs or len(given) != 1 or not is_seed(given, {}):
        return frame.break_graph("random_state", "random.Random() without a seed that is known")
    return NewGenerator(UNTOUCHED[random.Random](*given))


def module_row(row: Handler) -> Handler:
    """The row of a function of numpy.random: the method's for the generator that the module has."""

    def of_module(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        generator = numpy.random.mtrand._rand
        return row(frame, [frame.wrap(generator, Const(generator)), *args], kwargs)

    return of_module


def seed_row(kind: Any, function: Callable[..., Any]) -> Handler:
    """The row of seed() of a generator of this class that was there before: done in the program's order of draws, as one of them."""

    def seed(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        generator = args[0]
        if generator.source is None or generator.python_type() is not kind:
            return frame.break_graph("random_state", f"seed of {generator.describe()}")
        try:
            given, named = [plain(a) for a in args[1:]], {k: plain(v) for k, v in kwargs.items()}
            function(UNTOUCHED[kind](0), *given, **named)
        except NotPlain:
            return frame.break_graph("random_state", "a seed that is not known")
        except Exception as error:  # the program's own
            let_through(error)
            return frame.break_graph("random_state", f"seed, which raises {type(error).__name__}")
        frame.graph.drawn_input(generator.source, float, Draw("done", function, (*given,), (*named.items(),)))
        frame.mutations.changes += 1
        return NONE

    return seed


class SavedState(threading.local):
    """Where the state that a generator had in a run is kept, between the draws of that run."""

    state = None


class StateValue(Value):
    """What getstate() gave of a generator that was there before: another state in each run."""

    cls = tuple

    def __init__(self, kind: Any, kept: Any) -> None:
        super().__init__(None)
        self.kind, self.saved = kind, kept

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(self.saved)}.state"


def state_rows(kind: Any, take: str, put: str) -> dict[Any, Any]:
    """The rows of the methods that give and set the state of generators of this class, in the program's order of draws."""
    take_state, put_state = getattr(kind, take), getattr(kind, put)

    def check(frame: Frame, args: list[Value], kwargs: dict[str, Value], count: int, name: str) -> None:
        if kwargs or len(args) != count or args[0].source is None or args[0].python_type() is not kind:
            frame.break_graph("random_state", f"{name} of {args[0].describe()} with these arguments")

    def taken(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        check(frame, args, kwargs, 1, take)
        kept = SavedState()

        def keep(generator: Any) -> float:
            kept.state = take_state(generator)
            return 0.0

        frame.graph.drawn_input(args[0].source, float, keep)
        frame.mutations.changes += 1
        return StateValue(kind, kept)

    def restores_state(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        check(frame, args, kwargs, 2, put)
        if not isinstance(args[1], StateValue) or args[1].kind is not kind:
            return frame.break_graph("random_state", f"{put} of a state that is not of this call")
        kept = args[1].saved
        frame.graph.drawn_input(args[0].source, float, lambda generator: put_state(generator, kept.state) or 0.0)
        frame.mutations.changes += 1
        return NONE

    return {take_state: taken, put_state: restores_state}


def choose(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """random.Random.choice of ints, or of floats, that are known."""
    generator, *given = [*args, *kwargs.values()]
    try:
        (items,) = map(plain, given)
    except (NotPlain, ValueError):
        return frame.break_graph("random_state", "choice of values that are not known")
    kinds = {*map(type, items)} if type(items) in (list, tuple) else set()
    if generator.source is None or generator.python_type() is not random.Random or kinds not in ({int}, {float}):
        return frame.break_graph("random_state", "choice of something else than ints or floats")
    most = max(map(abs, items))
    if kinds == {int} and most > EXACT:
        return frame.break_graph("random_state", "choice of large ints")
    (kind,) = kinds
    node = frame.graph.drawn_input(generator.source, kind, Draw(kind.__name__, FUNCTIONS["choice"], (items,)))
    frame.mutations.changes += 1
    return DrawnValue(node) if kind is float else DrawnInt(node, most)


PYTHON = (
    "random uniform triangular gauss normalvariate lognormvariate expovariate betavariate gammavariate paretovariate weibullvariate"
    " vonmisesvariate randint randrange"
).split()
KNOWN_WITH_THE_SEED = "choice choices sample shuffle getrandbits randbytes seed".split()
FROM_SEQUENCES = ("choice", "choices", "sample", "shuffle")
OF_ARRAYS = (
    "beta binomial chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric laplace logistic lognormal logseries"
    " multinomial multivariate_normal negative_binomial noncentral_chisquare normal pareto permutation poisson power random rayleigh"
    " standard_cauchy standard_exponential standard_gamma standard_normal standard_t triangular uniform vonmises wald weibull zipf"
).split()
NUMPY = {
    "RandomState": [*OF_ARRAYS, "noncentral_f", "rand", "randn", "random_sample", "randint", "shuffle"],
    "Generator": [*OF_ARRAYS, "integers", "multivariate_hypergeometric", "noncentral_f", "permuted", "shuffle"],
}
OF_ITEMS = ("choice", "permutation", "shuffle")
"""Methods that take an array of the program's."""
numpy: Any = sys.modules.get("numpy")  # torch loads it where it is installed
NUMPY_KINDS = {} if numpy is None else {getattr(numpy.random, name): names for name, names in NUMPY.items()}


def generators() -> dict[Any, Any]:
    """Class of generators -> names of the methods that are modelled."""
    return {random.Random: PYTHON, **NUMPY_KINDS}


def new_generator(kind: Any) -> Any:
    """A generator of this class."""
    return kind(numpy.random.PCG64(0)) if numpy is not None and issubclass(kind, numpy.random.Generator) else kind(0)


def untouched(kind: Any) -> Any:
    """The class as it is now, whatever the program puts in the place of its methods."""
    return type(kind.__name__, (kind,), {name: getattr(kind, name) for name in dir(kind) if not name.startswith("__")})


UNTOUCHED = {kind: untouched(kind) for kind in generators()}
"""Class of generators -> what is asked which kind of number is drawn."""
for _kind, _names in generators().items():  # the functions of the modules are methods, too, of a generator that the module has
    calls({getattr(_kind, _name): method_row(_kind, _name) for _name in _names})
    if hasattr(_kind, "seed"):
        call(_kind.seed)(seed_row(_kind, _kind.seed))
calls({random.Random: make_generator, random.Random.choice: choose} | state_rows(random.Random, "getstate", "setstate"))
if numpy is not None:
    _sample = module_row(CALLS[numpy.random.RandomState.random_sample].handler)
    calls({getattr(numpy.random, name): _sample for name in ("ranf", "sample")})
    call(numpy.random.seed)(module_row(CALLS[numpy.random.RandomState.seed].handler))
    calls(state_rows(numpy.random.RandomState, "get_state", "set_state"))
FUNCTIONS = {name: getattr(random.Random, name) for name in (*PYTHON, *KNOWN_WITH_THE_SEED)}
"""Methods of generators whose seed is known."""
