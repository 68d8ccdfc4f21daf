"""Objects die when plain Python would let them: after a break nothing but the program holds what the program dropped."""

import collections
import gc
import time
import types
import weakref

import pytest
import torch
import tracework_capture as capture
from tracework_capture import _C
from tracework_capture.bytecode.resume import is_resume_code, original_code
from tracework_capture.hook.cache import entries_of
from tracework_capture.hook.context import FrameCallback
from tracework_capture.interp.frame import SymbolicFrame
from tracework_capture.options import CaptureOptions

pytestmark = pytest.mark.usefixtures("without_the_collector")


class Held:
    pass


@capture.disable
def nothing(*anything):
    pass


@capture.disable
def alive(reference):
    return reference() is not None


def dropped_local(x):
    held = Held()
    reference = weakref.ref(held)
    nothing()
    y = x + 1
    del held
    nothing()
    return y, alive(reference)


def dropped_in_a_loop(x):
    found = []
    for _ in range(4):
        held = Held()
        reference = weakref.ref(held)
        nothing()
        x = x + 1
        del held
        nothing()
        found.append(alive(reference))
    return x, found


def dropped_argument(x, given):
    reference = weakref.ref(given.pop())
    nothing()
    return x + 1, alive(reference)


def dropped_operand(x):
    reference = weakref.ref(made(Held()))
    y = x + 1
    nothing()
    return y, alive(reference)


@capture.disable
def made(held):
    nothing()
    return held


def dropped_exception(x):
    held = Held()
    reference = weakref.ref(held)
    try:
        nothing()
        raise ValueError(held)
    except ValueError:
        held = None
        nothing()
    nothing()
    return x + 1, alive(reference)


def dropped_before_the_break(x):
    held = Held()
    held.itself = [held]
    reference = weakref.ref(held)
    x = x + 1
    del held
    return x, alive_after_a_collection(reference)


@capture.disable
def alive_after_a_collection(reference):
    gc.collect()
    return reference() is not None


def bound_though_not_read(x):
    held = Held()
    reference = weakref.ref(held)
    nothing()
    x = x + 1
    nothing()
    found = alive(reference)
    held = None
    return x, [found, held is None and alive(reference)]


def tensor_though_not_read(x):
    held = x * 2
    dead = []
    reference = weakref.ref(held, lambda _: dead.append(1))
    x = x + 1
    nothing()
    found = alive(reference) and not dead
    held = None
    return x, [found, held is None and alive(reference)]


@pytest.mark.parametrize("function", [bound_though_not_read, tensor_though_not_read])
def test_a_local_holds_its_object_until_it_is_bound_anew(function):
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(function)
    for _ in range(3):
        assert compiled(torch.ones(2))[1] == [True, False]


class Node:
    def __init__(self, parent=None):
        self.children = []
        self.parent = parent and weakref.ref(parent)
        if parent:
            parent.children.append(self)

    @property
    def depth(self):
        return self.parent().depth + 1 if self.parent else 0


def dropped_out_of_a_circle(x):
    root = Node()
    child = Node(root)
    reference = weakref.ref(child)
    depth = child.depth
    root.children.clear()
    del child
    return x + depth, alive(reference)


@pytest.mark.parametrize(
    "function",
    [
        dropped_before_the_break,
        dropped_local,
        dropped_in_a_loop,
        dropped_operand,
        dropped_exception,
        dropped_out_of_a_circle,
    ],
)
def test_dropped_objects_die(function):
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(function)
    for _ in range(3):
        found = compiled(torch.ones(2))[1]
        assert not found or found == [False] * 4


def test_dropped_arguments_die():
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(dropped_argument)
    for _ in range(3):
        assert compiled(torch.ones(2), [Held()])[1] is False


def test_what_was_returned_dies_with_no_collection():
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(lambda x, held: (x + 1, held))
    held = Held()
    reference = weakref.ref(held)
    gc.disable()
    try:
        compiled(torch.ones(2), held)
        del held
        assert reference() is None
    finally:
        gc.enable()


def test_tensors_of_a_graph_die_after_a_break():
    def program(x):
        y = x * 2
        reference = weakref.ref(y)
        nothing()
        z = y + 1
        del y
        nothing()
        return z, alive(reference)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(program)
    compiled(torch.ones(2))  # what a compilation leaves is the collector's
    for _ in range(3):
        assert compiled(torch.ones(2))[1] is False


def test_go_on_wants_a_function_and_a_list():
    from tracework_capture import _C

    for wrong in ((nothing,), (nothing, ()), (nothing, [], 1)):
        with pytest.raises(TypeError):
            _C.go_on(*wrong)


class Told:
    """Tells when it dies."""

    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("died")


def deleted_before_more(x, log):
    held = Told(log)
    nothing()
    y = x + 1
    try:
        del held
    finally:
        log.append("after")
    return y


def deleted_and_asked_for(x):
    held = Held()
    reference = weakref.ref(held)
    y = x + 1
    del held
    return y, reference() is None


def test_what_is_deleted_dies_there_when_somebody_notices():
    one, other = (capture.optimize(lambda gm, inputs: gm.forward)(f) for f in (deleted_before_more, deleted_and_asked_for))
    for _ in range(2):
        log = []
        one(torch.ones(2), log)
        assert log == ["died", "after"]
        assert other(torch.ones(2))[1]


def test_guards_let_members_of_sets_die():
    known = {Held(), 1}

    def fn(x, member):
        return x + (member in known)

    member = next(m for m in known if m != 1)
    compiled = capture.optimize(lambda graph, inputs: graph.forward)(fn)
    assert compiled(torch.zeros(1), member) == 1 and compiled(torch.zeros(1), Held()) == 0
    reference = weakref.ref(member)
    known.clear()
    del member
    gc.collect()
    assert reference() is None
    known.update((Held(), 1))
    assert compiled(torch.zeros(1), Held()) == 0


def makes_a_class(x):
    y = x + 1

    class Local:
        pass

    nothing(Local)
    reference = weakref.ref(Local)
    found = nothing(Local())
    del Local
    return y, found, alive_after_a_collection(reference)


@pytest.mark.parametrize("times", [1, 2])
def test_classes_made_in_captured_code_are_garbage_when_dropped(times):
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(makes_a_class)
    for _ in range(times):
        assert compiled(torch.ones(2))[2] is False


def test_callers_die_where_capture_starts_over():
    def program(x):
        for row in x:
            found = (row > 0).nonzero()
        return found

    def caller(held):
        compiled(torch.ones(2, 3))
        return weakref.ref(held)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(program)
    found = caller(Held())
    assert not alive(found)


def test_code_dies_with_its_function():
    space = {"nothing": nothing}
    exec("def inner(x):\n    return x * 2\ndef program(x):\n    y = inner(x)\n    nothing()\n    return y + 1\n", space)
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(space["program"])
    compiled(torch.ones(2))
    codes = [weakref.ref(space.pop(name).__code__) for name in ("inner", "program")]
    del compiled
    gc.collect()
    assert [code() for code in codes] == [None, None]


def test_what_served_again_is_kept_at_a_collection():
    @capture.disable
    def told(text):
        return text

    def program(given):
        text = told(f"{given} is no tensor")
        return told(text + "!")

    callback = FrameCallback(lambda gm, example_inputs: gm.forward, CaptureOptions(keep_empty=True), program)
    compiled = callback.wrap(program)
    for times, kept in ((1, 0), (2, 1)):
        for _ in range(times):
            assert compiled("one") == "one is no tensor!"
        gc.collect()
        assert len(entries_of(program.__code__, callback)) == kept


def test_a_running_loop_keeps_what_it_goes_on_in_at_a_collection():
    @capture.disable
    def told(given):
        gc.collect()
        return given

    def pair(number):
        return (number, number)

    def program(count):
        told("a collection in which the way to the loop is let go of")
        for number in range(count):
            both = pair(number)
            told(both)

    asked = collections.Counter()

    class Counting(FrameCallback):
        def answer(self, code, *rest):
            asked[original_code(code)] += 1
            return super().answer(code, *rest)

    Counting(lambda gm, inputs: gm.forward, CaptureOptions(keep_empty=True), program).wrap(program)(20)
    assert asked[program.__code__] < 10


class Counted:
    """What dies is counted at once."""

    alive = 0

    def __init__(self):
        Counted.alive += 1

    def __del__(self):
        Counted.alive -= 1

    def name(self):
        return "counted"


def dropped_with_a_list(x):
    held = [Counted(), Counted()]
    x = x + 1
    try:
        first, second, third = iter(held)
    except ValueError:
        pass
    del held
    return x + 1, Counted.alive


def dropped_cell_that_an_exception_held(x):
    def fails():
        raise LookupError(held)

    held = Held()
    reference = weakref.ref(held)
    x = x + 1
    try:
        fails()
    except LookupError:
        pass
    held = None
    return x + 1, reference() is None


def overwritten_local(x):
    held = Held()
    reference = weakref.ref(held)
    before = reference() is held
    x = x + 1
    held = None
    return x + 1, before, reference() is None


def dropped_with_what_it_holds(x):
    held, other = [Counted()], {"one": Counted()}
    nothing()
    x = x + 1
    del held
    first = Counted.alive
    x = x + 1
    del other
    return x + 1, first, Counted.alive


def dropped_function(x):
    def function():
        pass

    reference = weakref.ref(function)
    before = reference() is function
    x = x + 1
    del function
    return x + 1, before, reference() is None


@pytest.mark.parametrize(
    "function",
    [dropped_with_a_list, dropped_cell_that_an_exception_held, overwritten_local, dropped_function, dropped_with_what_it_holds],
)
@pytest.mark.parametrize("keep_empty", [False, True])
def test_what_was_let_go_of_is_dead_when_somebody_asks(function, keep_empty):
    expected = function(torch.ones(2))
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(function)
    if keep_empty:
        compiled = _C.Scoped(function, FrameCallback(lambda gm, inputs: gm.forward, CaptureOptions(keep_empty=True)))
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == expected[1:]
    assert Counted.alive == 0


def test_an_attempt_that_is_over_leaves_no_frames_to_the_collector():
    with_a_break = capture.optimize(lambda gm, inputs: gm.forward)(dropped_local)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with_a_break(torch.ones(2))
        gc.collect()
        assert not [obj for obj in gc.garbage if isinstance(obj, SymbolicFrame)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize(
    "table", [{}, collections.OrderedDict(), weakref.WeakKeyDictionary()], ids=lambda table: type(table).__name__
)
def test_keys_of_dicts_die(table):
    def program(x, table, key):
        pairs = [(each, value) for each, value in table.items()]
        return x + table[key], pairs, Held() in table

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(program)
    keys = [Held(), Held()]
    table.update(zip(keys, (1, 2)))
    for _ in range(2):
        found, pairs, is_in = compiled(torch.ones(2), table, keys[1])
        assert (found.tolist(), pairs, is_in) == ([3, 3], list(table.items()), False)
    references = [weakref.ref(key) for key in keys]
    del pairs
    keys.clear()
    table.clear()
    assert [reference() for reference in references] == [None, None]


def number_of(x):
    return x * (x > 2).sum().item()


def calls_what_breaks(x):
    return x + number_of(x)


@pytest.mark.parametrize("collects", [1, 2])
def test_what_a_frame_goes_on_in_is_compiled_once_when_a_graph_is_compiled_amid_a_collection(collects):
    """The entry of the frame that runs leads to no graph yet, and is let go of; its continuation's graph serves the frame's next entry."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        if len(graphs) == collects:
            gc.collect()
        return gm.forward

    compiled = capture.optimize(backend)(calls_what_breaks)
    for k in range(4):
        torch.testing.assert_close(compiled(torch.arange(8.0) - k), calls_what_breaks(torch.arange(8.0) - k), rtol=0, atol=0)
    assert len(graphs) == 2  # the comparison and the sum: a product alone runs as it is


def test_continuations_die_with_the_code_they_go_on_with():
    codes = []

    def once():
        names = {"gc": gc}
        exec("def breaks(x):\n    y = x + 1\n    gc.collect()\n    return y * 2", names)
        compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(names["breaks"])
        torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 4.0))
        entries = entries_of(names["breaks"].__code__)
        held = [c.__code__ if isinstance(c, types.FunctionType) else c for entry in entries for c in entry.code.co_consts]
        codes.extend(weakref.ref(c) for c in held if isinstance(c, types.CodeType) and is_resume_code(c))
        codes.append(weakref.ref(names["breaks"].__code__))

    once()
    gc.collect()
    assert len(codes) >= 2 and [ref() for ref in codes] == [None] * len(codes)


class Box:
    held = None


BOX, LIST, DICT, SET = Box(), [], {}, set()
HELD = None


def statement(x):
    Counted()
    return x + Counted.alive


def attribute_of_a_temporary(x):
    Counted().name()
    return x + Counted.alive


def slot_of_a_temporary(x):
    Counted().__str__()
    return x + Counted.alive


def missing_attribute_of_a_temporary(x):
    try:
        _ = Counted().missing
    except AttributeError:
        pass
    return x + Counted.alive


def deleted(x):
    held = Counted()
    x = x + Counted.alive
    del held
    return x * 10 + Counted.alive


def bound_anew(x):
    held = Counted()
    x = x + Counted.alive
    held = x
    return held * 10 + Counted.alive


def two_bound_anew(x, first=1, second=2):
    held = Counted()
    x = x + Counted.alive
    held, other = first, second
    return x * 10 + Counted.alive + held + other


def bound_anew_by_a_closure(x):
    held = Counted()

    def let_go():
        nonlocal held
        held = None

    x = x + Counted.alive
    let_go()
    return x * 10 + Counted.alive


def bound_anew_in_a_loop(x):
    for _ in range(3):
        held = Counted()  # noqa: F841 - the one of the round before dies
        x = x * 10 + Counted.alive
    return x


def in_a_tuple(x):
    held = (Counted(),)
    x = x + Counted.alive
    held = len(held)
    return x * 10 + Counted.alive + held


def in_a_list(x):
    LIST.extend([Counted(), Counted(), Counted()])
    x = x + Counted.alive
    LIST.pop()
    x = x * 10 + Counted.alive
    LIST[0] = None
    x = x * 10 + Counted.alive
    LIST.clear()
    return x * 10 + Counted.alive


def in_a_dict(x):
    DICT["held"] = Counted()
    x = x + Counted.alive
    DICT["held"] = None
    return x * 10 + Counted.alive


def in_a_set(x):
    SET.add(Counted())
    x = x + Counted.alive
    SET.clear()
    return x * 10 + Counted.alive


def in_an_attribute(x):
    BOX.held = Counted()
    x = x + Counted.alive
    BOX.held = None
    x = x * 10 + Counted.alive
    BOX.held = Counted()
    x = x * 10 + Counted.alive
    del BOX.held
    return x * 10 + Counted.alive


def in_a_global(x):
    global HELD
    HELD = Counted()
    x = x + Counted.alive
    HELD = None
    return x * 10 + Counted.alive


def in_an_exception(x):
    try:
        raise ValueError(Counted())
    except ValueError:
        x = x + Counted.alive
    return x * 10 + Counted.alive


def in_a_frame_of_a_traceback(x):
    try:
        raises_with_a_local()
    except ValueError:
        x = x + Counted.alive
    return x * 10 + Counted.alive


def raises_with_a_local():
    held = Counted()
    nothing(held)
    raise ValueError


def counting():
    Counted.alive += 1
    try:
        yield 1
        yield 2
    finally:
        Counted.alive -= 1


def generator_left_in_the_middle(x):
    for number in counting():
        nothing()
        x = x + number + Counted.alive
        break
    return x * 10 + Counted.alive


ACTING = [
    statement,
    attribute_of_a_temporary,
    slot_of_a_temporary,
    missing_attribute_of_a_temporary,
    deleted,
    bound_anew,
    two_bound_anew,
    bound_anew_by_a_closure,
    bound_anew_in_a_loop,
    in_a_tuple,
    in_a_list,
    in_a_dict,
    in_a_set,
    in_an_attribute,
    in_a_global,
    in_an_exception,
    in_a_frame_of_a_traceback,
    generator_left_in_the_middle,
]


@pytest.mark.parametrize("function", ACTING)
def test_what_acts_when_it_dies_does_so_when_plain_python_lets_go_of_it(function):
    expected, left = function(torch.zeros(1)), Counted.alive
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(function)
    for _ in range(3):
        assert torch.equal(compiled(torch.zeros(1)), expected)
        assert Counted.alive == left == 0


def made_to_refer_back(x, given):
    given.made = Held()
    given.made.back = given
    return x + 1


def test_what_was_known_of_objects_that_refer_to_each_other_does_not_hold_them():
    given = Held()
    reference = weakref.ref(given)
    capture.optimize(lambda gm, example_inputs: gm.forward)(made_to_refer_back)(torch.ones(2), given)
    del given.made
    del given
    assert reference() is None


def loop_over_what_acts(x, log):
    told = [Told(log), Told(log)]
    nothing()
    total = x
    for held in told:
        total = total + len([nothing(), held])
    return total


def handled_while_it_acts(x, log):
    try:
        raise KeyError(Told(log))
    except KeyError as error:
        nothing()
        x = x + len(error.args)
        nothing()
    return x


@pytest.mark.parametrize("function", [loop_over_what_acts, handled_while_it_acts])
def test_what_acts_is_passed_on_over_breaks(function):
    """A continuation whose stack holds it in an iterator, or as the exception that is handled."""
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(function)
    for _ in range(3):
        expected, log = [], []
        assert torch.equal(compiled(torch.ones(2), log), function(torch.ones(2), expected))
        assert log == expected


def given_back(x, log):
    y = x + 1
    held, _ = Told(log), nothing()
    return held, y * 2


@capture.disable
def watched(log):
    held = Held()
    weakref.finalize(held, log.append, "gone").atexit = False
    return held


def given_back_from_a_call(x, log):
    return x + 1, watched(log)


def alone(x, log):
    x.add_(1)
    return watched(log)


@pytest.mark.parametrize("function", [given_back, given_back_from_a_call, alone])
def test_what_acts_is_given_to_the_caller(function, recwarn):
    """The frame does not hold it any longer, and it does not die with it."""
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(function)
    for _ in range(3):
        expected, log = [], []
        made = compiled(torch.ones(2), log), function(torch.ones(2), expected)
        assert log == expected == []
        del made
        assert log == expected != []
    assert not recwarn.list


def goes_on_in_its_handler(x, log):
    try:
        x.sum(5)
    except IndexError:
        pass
    first, second = Held(), Held()  # CPython stores them the other way round
    kept = [weakref.ref(first, lambda _: log.append("first")), weakref.ref(second, lambda _: log.append("second"))]
    return nothing(kept)


def test_locals_of_a_continuation_end_in_the_order_of_the_frame():
    compiled, log, expected = capture.optimize(lambda gm, inputs: gm.forward)(goes_on_in_its_handler), [], []
    compiled(torch.ones(2), log)
    goes_on_in_its_handler(torch.ones(2), expected)
    assert log == expected


def looked_up(x, table):
    y = x + 1
    return y * table.get(nothing(), 2)


def test_what_others_hold_is_not_looked_through_when_its_method_dies():
    """With each call, the guards of the second frame would go over all that the dict holds."""

    def best(items):
        compiled = capture.optimize(lambda gm, inputs: gm.forward)(looked_up)
        table, x = {"scale": 2, **{i: [i] for i in range(items)}}, torch.ones(2)
        times = []
        for _ in range(40):
            started = time.perf_counter()
            compiled(x, table)
            times.append(time.perf_counter() - started)
        return min(times)

    assert best(15000) < 8 * best(10)
