"""Every kind of guard: the native leaf, the Python check and the report agree, on what passes and on what does not."""

import collections
import math
import operator
import types
import weakref

import numpy
import pytest
import torch
from tracework_capture import _C
from tracework_capture.errors import GuardBuildError
from tracework_capture.guards.access import ACCESS, Scope
from tracework_capture.guards.classes import ClassLookups, lookup_class, recorded_lookups
from tracework_capture.guards.guard import Guard, GuardSet, TensorFacts
from tracework_capture.guards.kinds import GUARD_KINDS, STATES, record_ambient
from tracework_capture.guards.program import Failure, build_program
from tracework_capture.guards.report import explain_failure, recompile_reason
from tracework_capture.sources import (
    ArrayTensor,
    Attr,
    CellContents,
    ClassAttr,
    ComputedInt,
    Const,
    DefaultArg,
    DictItem,
    DictKeyAt,
    DictValueAt,
    FrameGlobals,
    FunctionGlobals,
    GeneratorLocal,
    Global,
    InstanceAttr,
    InstanceDict,
    Item,
    ItemAhead,
    IteratedList,
    KwDefaultArg,
    Local,
    Member,
    ModuleEntry,
    NewlyCreated,
    PartItem,
    PlainPart,
    Referent,
    TensorOffset,
    TensorSize,
    TensorStride,
    TypeOf,
)

X = Local("x")
NAN = float("nan")
MOVED = collections.OrderedDict(a=1, b=2)
MOVED.move_to_end("a")


def frame(x):
    return x


def other(a, b=3, *, c=4):
    return a


class Masked(list):
    def __getitem__(self, index):
        return "masked"


class Plain:
    label = "class"

    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)


def outcomes(guards, value, collect=(), globals_=None):
    """(native answer, Python answer) for frame(value)."""
    program = build_program(guards, collect, frame.__code__)
    globals_ = globals_ if globals_ is not None else {}
    native = [program.native.run((value,), globals_, None) for _ in range(6)]
    assert all(type(n) is type(native[0]) for n in native)
    python = program.run(Scope({"x": value}, globals_))
    return native[-1], python, program


def agree(kind, payload, value):
    """Whether the guard holds, after checking that both ways say so."""
    native, python, program = outcomes([Guard(kind, X, payload)], value)
    holds = isinstance(native, tuple)
    assert holds == (not isinstance(python, Failure))
    reason = recompile_reason(program, Scope({"x": value}, {}))
    assert (reason is None) == holds
    assert holds or "x" in reason
    return holds


class Near(Plain):
    pass


def looked_up(*pairs, before=None):
    """Lookups as a capture records them; `before` is what the class held then."""
    lookups = ClassLookups()
    with recorded_lookups(lookups):
        for cls, name in pairs:
            lookup_class(cls, name)
    if before is not None:
        cls, name = pairs[0]
        lookups.found[id(cls), name] = cls, *before
    return lookups.sealed()


class Told:
    def __del__(self):
        pass


class Watched:
    seen, unseen = Plain(a=1), Plain(a=1)
    references = weakref.ref(seen, lambda dead: None), weakref.ref(unseen)


LEFT, RIGHT = Plain(a=1), Plain(a=1)
DENSE = torch.zeros(3, 4)
PLACED = torch.ones(3)
CASES = {
    "TYPE": [(int, 1, True), (int, True, False), (Plain, LEFT, True)],
    "IDENTITY": [(LEFT, LEFT, True), (LEFT, RIGHT, False), (int, int, True), (int, str, False)],
    "NOT_IDENTITY": [(LEFT, LEFT, False), (LEFT, RIGHT, True)],
    "IS_NONE": [(None, None, True), (None, 0, False)],
    "NOT_NONE": [(None, None, False), (None, 0, True)],
    "CONSTANT": [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (NAN, float("nan"), True),
        (0.0, -0.0, False),
        (1j, complex(-0.0, 1.0), False),
        ("ab", "a" + "b", True),
        ((1, (2.0, "x")), (1, (2.0, "x")), True),
        ((1, 2), (1, 2.0), False),
        (None, None, True),
        (torch.float32, torch.float32, True),
        (torch.float32, torch.float64, False),
        (torch.device("cpu"), torch.device("cpu"), True),
        (10**30, 10**30, True),
        (b"a", b"b", False),
    ],
    "STATE": [],
    "TENSOR": [
        (TensorFacts.of(DENSE), torch.ones(3, 4), True),
        (TensorFacts.of(DENSE), torch.ones(3, 5), False),
        (TensorFacts.of(DENSE), torch.ones(3, 4, dtype=torch.float64), False),
        (TensorFacts.of(DENSE), torch.ones(4, 3).t(), False),
        (TensorFacts.of(DENSE), torch.ones(3, 4, requires_grad=True), False),
        (TensorFacts.of(DENSE), torch.nn.Parameter(DENSE), False),
        (TensorFacts.of(DENSE), torch.ones(3, 4, 1), False),
        (TensorFacts.of(DENSE, dynamic=[1]), torch.ones(3, 9), True),
        (TensorFacts.of(DENSE, dynamic=[1]), torch.ones(2, 9), False),
        (TensorFacts.of(DENSE), 3, False),
        (TensorFacts.of(DENSE), torch.zeros(3, 4, device="meta"), False),
        (TensorFacts.of(DENSE.to("meta")), DENSE.to("meta"), True),
        (TensorFacts.of(DENSE.to("meta")), DENSE, False),
        (TensorFacts.of(DENSE.to_sparse()), DENSE.to_sparse(), True),
        (TensorFacts.of(DENSE), DENSE.to_sparse(), False),
        (TensorFacts.of(torch.tensor(1 + 2j).conj()), torch.tensor(1 + 2j).conj(), True),
        (TensorFacts.of(torch.tensor(1 + 2j)), torch.tensor(1 + 2j).conj(), False),
        (TensorFacts.of(torch.tensor(1 + 2j).conj()), torch.tensor(1 + 2j), False),
        (TensorFacts.of(torch.tensor([1 + 2j]).conj().imag), torch.tensor([1 + 2j]).conj().imag, True),
        (TensorFacts.of(torch.zeros(1)), torch.tensor([1 + 2j]).conj().imag, False),
        (TensorFacts.of(torch.zeros(2, dtype=torch.bool)), torch.ones(2, dtype=torch.bool), True),
    ],
    "DATA": [
        (torch.tensor([1, 2]).numpy().tobytes(), torch.tensor([1, 2]), True),
        (torch.tensor([1, 2]).numpy().tobytes(), torch.tensor([1, 3]), False),
        (torch.tensor([1, 2]).numpy().tobytes(), torch.tensor([[1, 5], [2, 5]])[:, 0], True),
        (torch.tensor([1, 2]).numpy().tobytes(), torch.tensor([1, 2, 3]), False),
        (torch.tensor([1, 2, 3, 4]).numpy().tobytes(), torch.tensor([[1, 3], [2, 4]]).t(), True),
        (torch.tensor([1, 2, 3, 4]).numpy().tobytes(), torch.tensor([[1, 2], [3, 4]]).t(), False),
        (torch.tensor([9, 4]).numpy().tobytes(), torch.tensor([7, 9, 4])[1:], True),
        (torch.tensor([4, 4]).numpy().tobytes(), torch.tensor(4).expand(2), True),
        (torch.tensor(5, dtype=torch.uint8).numpy().tobytes(), torch.tensor(5, dtype=torch.uint8), True),
        (torch.tensor(True).numpy().tobytes(), torch.tensor(False), False),
        (b"", torch.zeros(0, dtype=torch.int64), True),
        (torch.tensor(5).numpy().tobytes(), torch.zeros((), dtype=torch.int64, device="meta"), False),
        (torch.tensor(5).numpy().tobytes(), 5, False),
    ],
    "LENGTH": [(2, [1, 2], True), (2, (1,), False), (1, {"a": 1}, True), (0, 5, False)],
    "DICT_KEYS": [
        (("a", "b"), {"a": 1, "b": 2}, True),
        (("a", "b"), {"b": 1, "a": 2}, False),
        (("a",), {"a": 1, "b": 2}, False),
        ((1, 2), {1: 1, 2: 2}, True),
        ((1,), {True: 1}, False),
        ((), {}, True),
        (("b", "a"), MOVED, True),
        (("a", "b"), MOVED, False),
        (("b", "c"), MOVED, False),
    ],
    "DICT_HAS": [("a", {"a": 1}, True), ("a", {}, False)],
    "DICT_LACKS": [("a", {"a": 1}, False), ("a", {}, True)],
    "TRUTH": [(True, [1], True), (True, [], False), (False, 0, True)],
    "HAS_ATTR": [("a", LEFT, True), ("zz", LEFT, False)],
    "LACKS_ATTR": [("a", LEFT, False), ("zz", LEFT, True)],
    "CODE": [(other.__code__, other, True), (other.__code__, frame, False), (other.__code__, 3, False)],
    "SET_MEMBERS": [(frozenset({1, 2}), {2, 1}, True), (frozenset({1, 2}), {1}, False), (frozenset({1}), [1], False)],
    "TEXT": [
        (("==", "a", True), "a", True),
        (("!=", "a", True), "a", False),
        (("startswith", "a", False), "ba", True),
        (("endswith", "a", True), "ba", True),
        (("contains", "z", True), "ba", False),
        (("==", "a", True), 3, False),
    ],
    "DATA_PTR": [(PLACED.data_ptr(), PLACED, True), (PLACED.data_ptr(), PLACED[1:], False), (PLACED.data_ptr(), 3, False)],
    "DIES_UNSEEN": [
        (None, Watched.seen, False),
        (None, Watched.unseen, True),
        (True, [Watched.seen], False),
        ("a", {"a": Watched.seen}, False),
        ("a", {"a": [Watched.unseen, 1]}, True),
        ("b", {"a": Watched.seen}, True),
        (None, [[Told()]], False),
    ],
    "ORDER": [
        ((">", 0.5, True), 0.75, True),
        ((">", 0.5, True), 0.25, False),
        (("!=", 0, False), 0.0, True),
        (("<", 1, True), 0, False),
    ],
    "NOT_SUBCLASS": [(int, collections.abc.Sequence, True), (list, collections.abc.Sequence, False)],
    "CONSTANT_RANGE": [((0, 4, 1), range(4), True), ((0, 4, 1), range(5), False)],
    "CLASSES": [
        (looked_up((Near, "label"), (Near, "__init__"), (Near, "zz")), 0, True),
        (looked_up((Near, "label"), before=(Near, 1)), 0, False),
    ],
    "PREDICATE": [(lambda v: v > 3, 5, True), (lambda v: v > 3, 2, False), (lambda v: v > 3, "a", False)],
}


def test_every_kind_has_cases():
    assert CASES.keys() == GUARD_KINDS.keys()


def test_leaves_and_kinds_are_complete():
    used = {row.leaf for row in GUARD_KINDS.values()}
    assert used == set(_C.LEAVES)


@pytest.mark.parametrize(
    "kind,payload,value,expected",
    [(k, *row) for k, rows in CASES.items() for row in rows],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_native_and_python_agree(kind, payload, value, expected):
    assert agree(kind, payload, value) is expected


@pytest.mark.parametrize("name", STATES)
def test_states(name):
    guards = GuardSet()
    guards.state(name, STATES[name]())
    native, python, _ = outcomes(guards, 1)
    assert native == () and python == ()
    wrong = GuardSet([Guard("STATE", next(iter(guards)).source, "something else")])
    native, python, _ = outcomes(wrong, 1)
    assert native == 0 and isinstance(python, Failure)


def test_grad_mode_is_seen():
    guards = GuardSet()
    record_ambient(guards)
    program = build_program(guards, (), frame.__code__)
    assert program.native.run((1,), {}, None) == ()
    with torch.no_grad():
        failed = program.native.run((1,), {}, None)
        assert program.labels[failed].source.name == "grad_mode"
    with torch.autocast("cpu"):
        assert isinstance(program.native.run((1,), {}, None), int)
    with torch.device("meta"):
        assert isinstance(program.native.run((1,), {}, None), int)


def closure_of(value):
    def inner():
        return value

    return inner


def generator_of(value):
    yield value


MODULE = torch.nn.Linear(2, 2)
ITEMS = [4, 5]


def reordered():
    """An OrderedDict in another order than the dict below it."""
    made = collections.OrderedDict(a=1, b=2)
    made.move_to_end("b", last=False)
    return made


class Slotted:
    __slots__ = ("items",)


class Hiding(Slotted):
    items = "hidden"


HIDING = Hiding()
Slotted.items.__set__(HIDING, ITEMS)


class Doubled(int):
    def __int__(self):
        return 2 * super().__int__()


class Reversed(str):
    def __getitem__(self, key):
        return super().__getitem__(slice(None, None, -1))


SOURCES = [
    (Attr(X, "a"), LEFT, 1),
    (Member(X, Slotted.items), HIDING, ITEMS),
    (InstanceDict(X), LEFT, LEFT.__dict__),
    (InstanceAttr(X, "a"), LEFT, 1),
    (ClassAttr(TypeOf(X), "label"), LEFT, "class"),
    (Attr(TypeOf(X), "label"), LEFT, "class"),
    (TypeOf(X), LEFT, Plain),
    (Referent(X), weakref.ref(LEFT), LEFT),
    (GeneratorLocal(X, "value"), generator_of(LEFT), LEFT),
    (IteratedList(X), iter(ITEMS), ITEMS),
    (ItemAhead(X, 1), iter(range(3, 9, 2)), 5),
    (ArrayTensor(X), numpy.arange(3), torch.arange(3)),
    (Item(X, 1), [4, 5], 5),
    (Item(X, -1), (4, 5), 5),
    (PartItem(X, 1), Masked([4, 5]), 5),
    (PlainPart(X), Doubled(5), 5),
    (PlainPart(X), Reversed("ab"), "ab"),
    (DictItem(X, "k"), {"k": 7}, 7),
    (DictItem(X, int), {int: 7}, 7),
    (DictKeyAt(X, 1), {"a": 1, "b": 2}, "b"),
    (DictValueAt(X, 1), reordered(), 1),
    (ModuleEntry(X, "_parameters", "weight"), MODULE, MODULE.weight),
    (DefaultArg(X, 0), other, 3),
    (KwDefaultArg(X, "c"), other, 4),
    (FunctionGlobals(X), other, other.__globals__),
    (CellContents(X, 0), closure_of("cell"), "cell"),
    (Global("g"), None, 11),
    (DictItem(FrameGlobals(), "g"), None, 11),
    (Const(LEFT), None, LEFT),
    (TensorSize(X, 1), DENSE, 4),
    (TensorStride(X, 0), DENSE, 4),
    (ComputedInt(X, "(1 << (n))", "n"), 3, 8),
    (DictItem(Const(globals(), "globals"), "NAN"), None, NAN),
    (TensorOffset(X), torch.ones(4)[1:], 1),
    (X, 3, 3),
]


@pytest.mark.parametrize(
    "source,value,expected", SOURCES, ids=[str(type(row[0]).__name__) + str(i) for i, row in enumerate(SOURCES)]
)
def test_every_source_is_fetched(source, value, expected):
    native, python, _ = outcomes([], value, [source], {"g": 11})
    (found,), (fetched,) = native, python
    if isinstance(source, ArrayTensor):
        assert torch.equal(found, expected) and torch.equal(fetched, expected) and found.data_ptr() == value.ctypes.data
        return
    constructor_text = isinstance(expected, int) or isinstance(source, PlainPart)
    assert found is fetched or (found == fetched and constructor_text)
    assert found is expected or (found == expected and constructor_text)


def test_sources_have_rows():
    tried = {type(row[0]) for row in SOURCES} | {type(row[0].base) for row in SOURCES if row[0].base is not None}
    assert {t.__name__ for t in ACCESS} - {t.__name__ for t in tried} == {"Ambient", "Closure", "ClosureCell"}


def test_missing_values_fail_and_leave_no_exception():
    for source in (Attr(X, "nope"), Item(X, 9), DictItem(X, "nope"), Global("nope"), CellContents(X, 0), DefaultArg(X, 0)):
        native, python, _ = outcomes([Guard("NOT_NONE", source)], [1])
        assert native == 0 and isinstance(python, Failure)


def test_what_cannot_be_fetched_is_refused():
    for source in (NewlyCreated(1), Local("not_an_argument")):
        with pytest.raises(GuardBuildError):
            build_program([Guard("TYPE", source, int)], (), frame.__code__)
    with pytest.raises(GuardBuildError, match="NO_SUCH_KIND"):
        build_program([Guard("NO_SUCH_KIND", X)], (), frame.__code__)


def test_interrupts_are_not_swallowed():
    def interrupt(value):
        raise KeyboardInterrupt

    program = build_program([Guard("PREDICATE", X, interrupt)], (), frame.__code__)
    with pytest.raises(KeyboardInterrupt):
        program.native.run((1,), {}, None)


def test_same_and_distinct_objects():
    a, b = Item(X, 0), Item(X, 1)
    one = torch.ones(2)
    for kind, payload, value, expected in [
        ("SAME", b, [one, one], True),
        ("SAME", b, [one, one + 1], False),
        ("DISTINCT", (a, b), [one, one], False),
        ("DISTINCT", (a, b), [one, one + 1], True),
    ]:
        native, python, _ = outcomes([Guard(kind, a, payload)], value)
        assert isinstance(native, tuple) is expected
        assert (not isinstance(python, Failure)) is expected
    for count in (60, 2000):
        many = [torch.ones(1) for _ in range(count)]
        sources = tuple(Item(X, i) for i in range(count))
        assert outcomes([Guard("DISTINCT", sources[0], sources)], many)[0] == ()
        native, python, _ = outcomes([Guard("DISTINCT", sources[0], sources)], many[:-1] + many[7:8])
        assert native == 0
        assert explain_failure(python) == f"x[7] and x[{count - 1}] are now the same object"


def test_relations_between_several_values():
    sources = Item(X, 0), Item(X, 1)
    guard = Guard("RELATION", sources[0], (operator.lt, sources))
    for value, expected in ([1, 2], True), ([2, 1], False), ([1, "a"], False), ([math.nan, 1.0], False):
        native, python, _ = outcomes([guard], value)
        assert isinstance(native, tuple) is expected
        assert (not isinstance(python, Failure)) is expected
    assert explain_failure(outcomes([guard], [2, 1])[1]).startswith("x[0] is 2, x[1] is 1: ")

    def interrupt(*values):
        raise KeyboardInterrupt

    program = build_program([Guard("RELATION", X, (interrupt, sources))], (), frame.__code__)
    with pytest.raises(KeyboardInterrupt):
        program.native.run(([1, 2],), {}, None)


def test_relations_are_checked_where_nothing_else_changed():
    held = [1.5, 2.5]
    sources = Item(X, 0), Item(X, 1)
    program = build_program([Guard("TYPE", X, list), Guard("RELATION", X, (operator.lt, sources))], (), frame.__code__)
    for _ in range(20):
        assert program.native.run((held,), {}, None) == ()
    for numbers, expected in (([3.5, 2.5], 1), ([3.5, 4.5], ()), ([5.5, 4.5], 1)):
        held[:] = numbers
        assert program.native.run((held,), {}, None) == expected


def test_function_code_change_is_seen():
    def first():
        return 1

    program = build_program([Guard("CODE", X, first.__code__)], (), frame.__code__)
    assert program.native.run((first,), {}, None) == ()
    first.__code__ = types.FunctionType(frame.__code__, {}).__code__
    assert program.native.run((first,), {}, None) == 0


def test_changes_of_classes_are_noticed():
    class Base:
        count = 0

        def step(self):
            return 1

    class Derived(Base):
        pass

    lookups = looked_up((Derived, "step"), (Derived, "count"), (Derived, "missing"))
    check = lookups.native()
    assert check(None)
    Base.other = 3
    assert check(None)
    Base.count = 4  # guarded by value elsewhere
    assert check(None)
    original, Base.step = Base.step, lambda self: 2
    assert not check(None) and not check(None)
    Base.step = original
    assert check(None)
    Derived.count = 1
    assert not check(None) and "Derived.count" in lookups.changed()
    del Derived.count
    Derived.missing = 1
    assert not check(None)


def test_an_instance_dict_that_was_not_made_yet_passes():
    def fresh():
        return lambda: None

    guards = GuardSet()
    guards.record("DICT_LACKS", InstanceDict(X), "a")
    assert outcomes(guards, fresh())[0] == ()
    program = build_program(guards, (), frame.__code__)
    assert program.run(Scope({"x": fresh()}, {})) == ()


def test_a_container_in_itself_has_a_text():
    loop = [1]
    loop += [loop, (loop,)]
    assert str(Const(loop)).startswith("[1, [1, [")
