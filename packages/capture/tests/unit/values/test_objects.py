"""User objects, classes, modules, exceptions and contexts against plain Python."""

import collections.abc
import contextlib
import copy
import dataclasses
import enum
import functools
import logging
import operator
import types
import typing

import pytest
import torch
from harness import capture, check
from torch import nn
from tracework_capture import optimize


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Base:
    scale = 2

    def __init__(self, value):
        self.value = value

    def twice(self):
        return self.value * self.scale

    @property
    def half(self):
        return self.value / 2

    @half.setter
    def half(self, new):
        self.value = new * 2

    @classmethod
    def make(cls, value):
        return cls(value)

    @staticmethod
    def add(a, b):
        return a + b

    @functools.cached_property
    def cached(self):
        return self.value + 100

    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i >= 3:
            raise IndexError(i)
        return self.value + i

    def __call__(self, v):
        return v + self.value

    def __add__(self, other):
        return Base(self.value + (other.value if isinstance(other, Base) else other))

    __radd__ = __add__

    def __eq__(self, other):
        return isinstance(other, Base) and self.value is other.value

    __hash__ = None


class Child(Base):
    def __init__(self, value, extra=1):
        super().__init__(value)
        self.extra = extra

    def twice(self):
        return super().twice() + self.extra

    def __getattr__(self, name):
        if name.startswith("magic_"):
            return len(name)
        raise AttributeError(name)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@dataclasses.dataclass
class Record:
    x: object
    y: int = 3
    items: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.items.append(self.y)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: str = "b"


class Table(dict):
    def __missing__(self, key):
        return key

    def __setitem__(self, key, value):
        super().__setitem__(key, ("wrapped", value))


class MyList(list):
    def last(self):
        return self[-1]


class Descriptor:
    def __get__(self, owner, kind):
        return 7 if owner is not None else self

    def __set__(self, owner, value):
        owner.__dict__["stored"] = value


class WithDescriptor:
    d = Descriptor()


def new_objects(x):
    c = Child(x, extra=2)
    c.half = x * 3
    d = c + 1
    return (
        c.twice(),
        c.half,
        c.cached,
        c.magic_abc,
        len(c),
        c[1],
        c(x),
        Base.make(x).value,
        Base.add(1, 2),
        d.value,
        (1 + c).value,
        hasattr(c, "nope"),
        getattr(c, "nope", 5),
        isinstance(c, Base),
        type(c) is Child,
        list(c)[0],
        bool(c),
        c.scale,
        issubclass(Child, Base),
    )


def returned_objects(x):
    c = Child(x)
    c.me = [c.extra]
    s = Slotted(x + 1)
    return c, s.a, Record(x, items=[1]), Frozen(1), types.SimpleNamespace(k=x)


def dataclass_queries(x):
    r = Record(x)
    names = [f.name for f in dataclasses.fields(r)]
    return names, dataclasses.is_dataclass(Record), dataclasses.replace(Frozen(1), b="c"), Frozen(1) == Frozen(1), r.y + x


def subclass_of_dict(x):
    t = Table(a=1)
    t["b"] = x
    return t, x + 1, t["a"], t["b"][1], list(t.items()), len(t), "b" in t, isinstance(t, dict)


def subclass_of_list(x):
    m = MyList([1, 2])
    m.append(x)
    return m, x + 1, m.last(), len(m), m[0]


def descriptors(x):
    w = WithDescriptor()
    w.d = x
    return w.d, x + 1, w.stored, WithDescriptor.d is WithDescriptor.__dict__["d"]


def enums(x):
    c = Color(2)
    return (
        x + c.value,
        c is Color.BLUE,
        c.name,
        Color["RED"],
        [m.name for m in Color],
        c == Color.RED,
        Color.RED in (Color.RED,),
        c,
    )


def closures(x):
    n = 1

    def bump():
        nonlocal n
        n += 1
        return n

    bump()
    add = functools.partial(lambda a, b, c=0: a + b + c, 1, c=x)
    return bump(), n, add(2), bump


def exceptions(x):
    out = []
    try:
        try:
            raise ValueError("bad", 3)
        except (KeyError, ValueError) as error:
            out.append(error.args)
            raise RuntimeError("next") from error
        finally:
            out.append("finally")
    except RuntimeError as error:
        out.append(str(error))
        out.append(type(error.__cause__).__name__)
    else:
        out.append("no")
    return x + 1, out


class Boom(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


def user_exception(x):
    try:
        raise Boom(4)
    except Boom as error:
        return x + error.code, str(error), error.args


@contextlib.contextmanager
def managed(log):
    log.append("in")
    try:
        yield 5
    finally:
        log.append("out")


class Manager:
    def __init__(self):
        self.log = []

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(kind.__name__ if kind else None)
        return True


def contexts(x):
    log = []
    with managed(log) as five, Manager() as m:
        y = x + five
        raise ValueError
    with contextlib.nullcontext(3) as three:
        y = y + three
    with torch.no_grad():
        off = torch.is_grad_enabled()
        z = y * x
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False), torch.profiler.record_function("r"):
        z = z + 1
    return y, z, log, m.log, off, torch.is_grad_enabled()


@torch.no_grad()
def decorated(x):
    return x * 2, torch.is_grad_enabled()


def grad_modes(x):
    a = decorated(x)
    with torch.enable_grad():
        b = x * 3
    with torch.set_grad_enabled(False):
        c = x * 4
    with torch.inference_mode(False):
        d = x * 5
    return a, b, c, d


def copies(x):
    a = {"k": [1, [2]]}
    b = copy.deepcopy(a)
    b["k"][1].append(3)
    c = copy.copy(a)
    r = copy.copy(Record(x))
    return a, b, c, r.x + 1


class Renaming:
    """Reads one attribute under another name, as configurations of transformers do."""

    names = {"width": "size"}

    def __init__(self):
        self.size, self.parts = 2, [1, 2]

    def __getattribute__(self, name):
        names = super().__getattribute__("names")
        return super().__getattribute__(names.get(name, name))


def copies_with_own_lookup(x):
    first = Renaming()
    shallow, deep = copy.copy(first), copy.deepcopy(first)
    deep.size = 5
    deep.parts.append(3)
    return x * deep.width + shallow.width, shallow.parts is first.parts, deep.parts, first.parts


def queries(x):
    return (
        torch.is_tensor(x),
        torch.is_floating_point(x),
        x.is_floating_point(),
        x.dim(),
        x.ndim,
        x.device.type,
        x.dtype == torch.float32,
        torch.finfo(x.dtype).max,
        isinstance(x, torch.Tensor),
        isinstance(x, nn.Parameter),
        x.requires_grad,
        x.is_contiguous(),
        x.stride(),
        x.numel(),
        torch.get_default_dtype(),
        x.element_size(),
        torch.device("cpu"),
        x.is_cuda,
        callable(x.add),
        len(x),
        x.shape[0] // 2,
        x.layout,
        torch.Size([1, 2]),
        torch.jit.is_tracing(),
        x + 1,
    )


FUNCTIONS = [
    new_objects,
    returned_objects,
    dataclass_queries,
    subclass_of_dict,
    subclass_of_list,
    descriptors,
    enums,
    exceptions,
    user_exception,
    contexts,
    grad_modes,
    copies,
    copies_with_own_lookup,
    queries,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_same_as_plain(function):
    check(function, torch.randn(4, 4))


def test_closures():
    from harness import capture

    x = torch.randn(2)
    expected = closures(x)
    actual = capture(closures, x)[0]()
    assert actual[:2] == expected[:2] and actual[3]() == expected[3]()
    torch.testing.assert_close(actual[2], expected[2])


def existing_object(x, o):
    o.value = o.value + x
    o.count = getattr(o, "count", 0) + 1
    o.half = x
    del o.extra
    return o.value, o.cached


def test_existing_object():
    check(existing_object, torch.ones(2), Child(torch.ones(2)))


COUNTER = 0


def counts(x):
    global COUNTER
    COUNTER += 1
    return x + COUNTER


def test_global_counter():
    from harness import capture

    global COUNTER
    COUNTER = 5
    run, captured = capture(counts, torch.ones(2))
    assert COUNTER == 5
    torch.testing.assert_close(run(), torch.full((2,), 7.0))
    assert COUNTER == 6


def test_print_happens_once_and_after(capsys):
    from harness import capture

    def f(x):
        print("a", x.shape[0], sep="-")
        return x + 1

    run, _ = capture(f, torch.ones(2))
    assert capsys.readouterr().out == ""
    run()
    assert capsys.readouterr().out == "a-2\n"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])
        self.table = nn.ModuleDict({"n": nn.LayerNorm(4)})
        self.bn = nn.BatchNorm1d(4)
        self.register_buffer("steps", torch.zeros(()))
        self.calls = 0
        self.opt = None

    def forward(self, x, names=False):
        for layer in self.layers:
            x = layer(x)
        for name, module in self.table.items():  # noqa: B007
            x = module(x)
        x = self.bn(x) + sum(p.sum() for p in self.parameters()) + self.steps
        x = self.layers[0](x) + len(self.layers) + self.layers[:1][0].weight.sum()
        self.calls += 1
        self.steps = self.steps + 1
        return (
            x,
            [n for n, _ in self.named_parameters()],
            [n for n, _ in self.named_modules()],
            self.training,
            hasattr(self, "nope"),
            self.opt is None,
            [type(m).__name__ for m in self.children()],
            "n" in self.table,
        )


@pytest.mark.parametrize("training", [True, False])
def test_module(training):
    net = Net().train(training)
    twin = copy.deepcopy(net)
    x = torch.randn(3, 4)
    from harness import assert_same, capture

    run, _ = capture(Net.forward, net, x)
    assert_same(run(), twin(x))
    assert_same(dict(net.state_dict()), dict(twin.state_dict()))
    assert net.calls == twin.calls == 1


def test_hooks():
    def build():
        torch.manual_seed(0)
        net = nn.Linear(4, 4)
        seen = []
        net.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        net.register_forward_hook(lambda m, args, out: out * 2)
        net.register_forward_hook(lambda m, args, kwargs, out: seen.append(len(args)), with_kwargs=True)
        return nn.Sequential(net), seen

    from harness import assert_same, capture

    (a, seen_a), (b, seen_b) = build(), build()
    x = torch.randn(2, 4)
    run, _ = capture(nn.Sequential.forward, a, x)
    assert_same(run(), b(x))
    assert seen_a == seen_b == [1]


def existing_subclasses(x, table, items):
    table["b"] = x
    items.append(3)
    items[0] = 9
    return x + len(items), table["b"][1]


def test_changes_of_existing_subclasses():
    check(existing_subclasses, torch.ones(2), Table(), MyList([1, 2]))


def test_modules_without_state_are_made_in_the_captured_part():
    def fn(x, target):
        loss = nn.CrossEntropyLoss(ignore_index=-1, label_smoothing=0.1)
        return loss(nn.GELU(approximate="tanh")(x), target), loss.reduction, loss.training, loss.weight is None

    check(fn, torch.randn(4, 5), torch.tensor([0, 1, -1, 4]))


def test_a_module_that_was_made_leaves_as_a_new_one():
    def fn(x):
        act = nn.Softplus(beta=2)
        return act(x), act

    first, second = capture(fn, torch.randn(3))[0](), fn(torch.randn(3))
    assert type(first[1]) is nn.Softplus and first[1].beta == second[1].beta == 2


def test_a_module_with_weights_draws_its_numbers_when_the_graph_runs():
    state, x = torch.get_rng_state(), torch.randn(2, 3, generator=torch.Generator())
    run, _ = capture(lambda x: nn.Linear(3, 4)(x), x)
    assert torch.equal(state, torch.get_rng_state())
    found = run()
    torch.set_rng_state(state)
    torch.testing.assert_close(found, nn.Linear(3, 4)(x))


class Swish(nn.SiLU.__base__):
    """No __init__ of its own."""

    def forward(self, x):
        return x * torch.sigmoid(x)


def test_a_users_module_without_its_own_init_is_made_in_the_captured_part():
    check(lambda x: Swish()(x) + 1, torch.randn(3))


def test_a_generator_dropped_inside_an_except_clause_that_lets_it_close():
    class Steps(collections.abc.Sequence):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            if index > 2:
                raise IndexError
            return index

    steps = Steps()

    def fn(x):
        return [x + s for s in steps], 1 in steps, x * next(iter(steps))

    check(fn, torch.randn(2))


def test_python_functions_that_torch_merely_imports_are_no_nodes():
    from tracework_capture.values.torch.graph_functions import is_graph_function

    assert not is_graph_function(typing.get_origin)
    assert is_graph_function(torch.nn.functional.linear) and is_graph_function(torch.stft)


def test_a_comprehension_starts_no_graph_of_its_own():
    from tracework_capture.hook.policy import frame_is_captured

    def fn(xs):
        return [x + 1 for x in xs]

    inner = [c for c in fn.__code__.co_consts if isinstance(c, types.CodeType)]
    assert frame_is_captured(fn.__code__) and not any(frame_is_captured(c) for c in inner)


def test_methods_that_wait_for_their_arguments_over_a_break_fit_again():
    compiled_graphs = []

    def backend(gm, inputs):
        compiled_graphs.append(gm)
        return gm.forward

    def fn(x, out):
        out.append(x.sum().item())
        return x.view(int(x.size(0) * x.max().item() * 0) - 1) + len(out)

    compiled = optimize(backend)(fn)
    made = []
    for _ in range(3):
        given, expected = [], []
        x = torch.ones(2, 2)
        assert torch.equal(compiled(x, given), fn(x, expected)) and given == expected
        made.append(len(compiled_graphs))
    assert made[0] == made[2]


class OnceLogger(logging.Logger):
    said = []

    @functools.lru_cache(None)  # noqa: B019
    def warning_once(self, text):
        OnceLogger.said.append(text)


def test_a_cached_method_of_a_logger_speaks_once():
    logger = OnceLogger("once")

    def fn(x):
        logger.warning_once("slow path")
        return x + 1

    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert OnceLogger.said == ["slow path"]


def test_code_of_libraries_is_no_frame_to_capture_wherever_they_are_installed():
    import numpy
    from tracework_capture.hook.policy import frame_is_captured

    assert not frame_is_captured(numpy.diff.__wrapped__.__code__)
    assert frame_is_captured(test_code_of_libraries_is_no_frame_to_capture_wherever_they_are_installed.__code__)


def test_id_of_existing_objects_and_modules():
    """As keys of a table of states by object; another object is another entry."""
    first, second, layer = Plain(), Plain(), nn.Linear(2, 2)
    table = {id(first): 2.0, id(second): 3.0}

    def fn(x, thing):
        return x * table[id(thing)] + (id(layer) in table)

    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)
    for thing in (first, second, first):
        assert torch.equal(compiled(torch.ones(2), thing), fn(torch.ones(2), thing))


class Plain:
    """An object."""


class Place:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number

    def __hash__(self):
        return hash((Place, (self.number, "text")))


def test_objects_are_indices():
    def program(x, n):
        items, one = [2, 3, 4], Place(n)
        items[Place(0)] = 9
        del items[Place(2)]
        x = x * items[one] + items[one:][0] + range(10)[Place(4)] + (5, 6)[one] + len("abc"[one]) + sum(range(Place(3)))
        x[Place(0)] = 7.0
        return x[one], hash(one) == hash(Place(n))

    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    for n in (1, 1, -1, 0):
        assert str(compiled(torch.arange(3.0), n)) == str(program(torch.arange(3.0), n))


class Unhashable:
    def __eq__(self, other):
        return True


def test_objects_without_a_hash_are_no_keys():
    def program(x):
        try:
            return x * len({Unhashable(): 1})
        except TypeError as error:
            return x, str(error)

    compiled = optimize(lambda gm, inputs: gm.forward)(program)
    assert str(compiled(torch.ones(2))) == str(program(torch.ones(2)))


class Twice(nn.Module):
    """Has a module and a parameter under two names each."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2)] * 2)
        self.out = nn.Linear(2, 2, bias=False)
        self.out.weight = self.layers[0].weight


def test_what_a_module_holds_under_several_names():
    module = Twice()

    def f(x):
        listed = [
            module.named_parameters(),
            module.named_parameters(remove_duplicate=False),
            module.named_parameters("p", True, False),
        ]
        listed += [module.named_modules(), module.named_modules(prefix="m", remove_duplicate=False), module.named_children()]
        return x + 1, [[name for name, _ in pairs] for pairs in listed], len([*module.parameters()]), len([*module.modules()])

    graphs = []
    assert optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1])(f)(torch.ones(2))[1:] == f(torch.ones(2))[1:]
    assert len(graphs) == 1


def test_the_parameters_of_a_scripted_module_are_asked_of_torch(caplog):
    scripted = torch.jit.script(torch.nn.Linear(2, 2))

    def f(x):
        return scripted(x) + 1, [name for name, _ in scripted.named_parameters()]

    x = torch.ones(1, 2)
    (found, names), (expected, plain) = optimize(lambda gm, inputs: gm.forward)(f)(x), f(x)
    torch.testing.assert_close(found, expected)
    assert names == plain == ["weight", "bias"] and not caplog.messages


class Word(str):
    def __eq__(self, other):
        return super().__eq__(other)

    def __ne__(self, other):
        return super().__ne__(other)

    def __repr__(self):
        return "Word " + super().__repr__()

    __hash__ = str.__hash__


class Number(int):
    def __eq__(self, other):
        return super().__eq__(other)

    def __ne__(self, other):
        return int.__ne__(self, other)

    __hash__ = int.__hash__


class Weight(float):
    def __eq__(self, other):
        return super().__eq__(other)

    __hash__ = float.__hash__


WORD, NUMBER, WEIGHT = Word("a"), Number(3), Weight(2.5)


@pytest.mark.parametrize(
    "asked",
    [
        lambda: (WORD == "a", "a" == WORD, WORD == "b"),
        lambda: WORD != "a",
        lambda: WORD == Word("a"),
        lambda: repr(WORD),
        lambda: (NUMBER == 3, 3 == NUMBER, NUMBER == 4),
        lambda: NUMBER != 3,
        lambda: (WEIGHT == 2.5, WEIGHT != 2.5, WEIGHT == 3),
    ],
)
def test_equality_of_words_and_numbers_that_ask_their_base(asked):
    def f(x):
        return (x + 1).sin() * 2, asked()

    x = torch.ones(2)
    assert str(optimize(lambda gm, inputs: gm.forward)(f)(x)) == str(f(x))


class Steps:
    """An iterator of the program: what was taken from it is seen."""

    def __init__(self, end):
        self.taken, self.end = 0, end

    def __iter__(self):
        return self

    def __next__(self):
        if self.taken == self.end:
            raise StopIteration
        self.taken += 1
        return self.taken


@pytest.mark.parametrize("end", [3, float("inf")])
@pytest.mark.parametrize(
    "search", [lambda steps: 2 in steps, lambda steps: 2 not in steps, lambda steps: operator.contains(steps, 2)]
)
def test_a_search_takes_no_more_items_than_it_needs(search, end):
    def step(x, steps):
        return x + 1, search(steps), steps.taken, next(steps)

    check(step, torch.arange(3.0), Steps(end))


@pytest.mark.parametrize("name", ["tracework_experiments/run.py", "tracework_run.py", "packages/tracework_own/part.py"])
def test_programs_with_the_compilers_name_in_their_path_are_captured(name, tmp_path):
    from tracework_capture.hook.policy import frame_is_captured

    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("def fn(x):\n    return x.sin()\n")
    scope = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    assert frame_is_captured(scope["fn"].__code__)


def test_the_compiler_is_not_captured():
    from tracework_capture.hook.policy import frame_is_captured
    from tracework_primops import decompose

    assert not any(frame_is_captured(function.__code__) for function in (optimize, decompose))


def test_methods_that_are_made_of_texts_belong_to_the_file_of_their_class():
    from torch.utils.benchmark.utils.common import TaskSpec
    from tracework_capture.hook.policy import frame_is_captured

    @dataclasses.dataclass
    class Own:
        x: int

    assert frame_is_captured(Own.__init__.__code__, globals())
    assert not frame_is_captured(TaskSpec.__init__.__code__, TaskSpec.__init__.__globals__)


def test_what_torch_does_around_modules_and_between_processes_is_no_frame_to_capture():
    from tracework_capture.hook.policy import frame_is_captured

    plain = [
        torch.nn.Module.__getattr__,
        type(torch.nn.Parameter).__instancecheck__,
        torch.nn.parallel.DistributedDataParallel.forward,
    ]
    assert not any(frame_is_captured(function.__code__) for function in plain)
    assert frame_is_captured(torch.nn.Linear.forward.__code__)
