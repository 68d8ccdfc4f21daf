"""Side effects through the real hook: counters, appended lists, prints, log calls, caches; results and state against plain Python."""

import collections
import copy
import functools
import logging
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from tracework_capture.hook.context import optimize

TOTAL = 0
logger = logging.getLogger("values.test")


@functools.lru_cache(None)
def expensive(n):
    return [n, n + 1]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0
        self.history = []
        self.table = {}

    def forward(self, x):
        global TOTAL
        TOTAL += 1
        self.calls += 1
        self.history.append(self.calls)
        self.table["last"] = x
        print("call", self.calls)
        logger.warning("call %d", 5)
        return self.linear(x) * expensive(2)[1]


def test_effects_of_many_calls(capsys, caplog):
    global TOTAL
    compiles = []

    def backend(gm, example_inputs):
        compiles.append(gm)
        return gm.forward

    module = Counting()
    twin = copy.deepcopy(module)
    compiled = optimize(backend, fullgraph=True)(module)
    for step in range(10):
        x = torch.randn(2, 4)
        before = TOTAL
        actual = compiled(x)
        shown, logged = capsys.readouterr().out, [r.getMessage() for r in caplog.records]
        caplog.clear()
        assert TOTAL == before + 1
        expected = twin(x)
        assert shown == capsys.readouterr().out == f"call {step + 1}\n"
        assert logged == [r.getMessage() for r in caplog.records] == ["call 5"]
        caplog.clear()
        torch.testing.assert_close(actual, expected)
        assert (module.calls, module.history) == (twin.calls, twin.history)
        assert module.table["last"] is x
    assert len(compiles) <= 4


def test_changed_objects_are_noticed():
    """What was looked at and then changed gives the new result."""

    class Settings:
        scale = 2.0

    def f(x, s, options):
        return x * s.scale + options.get("bias", 0) + len(options["list"])

    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(f)
    settings, options, x = Settings(), {"list": [1]}, torch.ones(2)
    changes = [
        lambda: None,
        lambda: setattr(settings, "scale", 3.0),
        lambda: options.update(bias=5),
        lambda: options["list"].append(2),
        lambda: delattr(settings, "scale"),
        lambda: options.pop("bias"),
    ]
    for change in changes:
        change()
        torch.testing.assert_close(compiled(x, settings, options), f(x, settings, options))


def test_changed_modules_are_noticed():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(net)
    x = torch.randn(4, 3)

    def forward(v):
        torch.manual_seed(0)
        return net(v)

    changes = [
        lambda: None,
        lambda: net.eval(),
        lambda: net.train(),
        lambda: net.__setitem__(0, nn.Linear(3, 3)),
        lambda: net[0].register_forward_hook(lambda m, a, o: o + 1),
        lambda: net[0].requires_grad_(False),
        lambda: net.append(nn.ReLU()),
        lambda: setattr(net[1], "p", 0.0),
        lambda: net[0].double() and net[0].float(),
    ]
    for change in changes:
        change()
        state = copy.deepcopy(net.state_dict())
        expected = forward(x)
        net.load_state_dict(state)
        torch.manual_seed(0)
        actual = compiled(x)
        torch.testing.assert_close(actual, expected)
        assert actual.requires_grad == expected.requires_grad


CHANGES = {
    "append": lambda log, y: log.append(y),
    "append twice, replace the last": lambda log, y: (log.append(y), log.append(y), log.__setitem__(-1, y + 1)),
    "append, store at 3": lambda log, y: (log.append(y), log.__setitem__(3, y + 1)),
    "insert": lambda log, y: log.insert(0, y),
    "clear": lambda log, y: log.clear(),
    "store a slice": lambda log, y: log.__setitem__(slice(0, 0), [y]),
    "reverse": lambda log, y: (log.append(y), log.reverse()),
    "pop": lambda log, y: (log.append(y), log.pop()),
    "delete": lambda log, y: (log.append(y), log.__delitem__(0)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_changed_list_that_has_another_length_in_the_next_call(change):
    @optimize(lambda gm, example_inputs: gm.forward)
    def step(x, log):
        y = x + 1
        change(log, y)
        return y * 2

    def plain(x, log):
        change(log, x + 1)

    x = torch.ones(2)
    for length in (3, 0, 5, 1, 3, 0):
        actual, expected = [float(i) for i in range(length)], [float(i) for i in range(length)]
        errors = []
        for function, log in ((step, actual), (plain, expected)):
            try:
                function(x, log)
            except IndexError as error:
                errors.append(str(error))
        assert len(errors) in (0, 2)
        assert [str(i) for i in actual] == [str(i) for i in expected]


@pytest.mark.parametrize(
    "change",
    [
        lambda table, y: table.__setitem__("got", table.get("key")),
        lambda table, y: table.setdefault("key", 3),
        lambda table, y: table.pop("key", None),
    ],
)
def test_a_guard_on_a_missing_key_of_a_defaultdict_does_not_make_it(change):
    @optimize(lambda gm, example_inputs: gm.forward)
    def step(x, table):
        y = x + 1
        change(table, y)
        return y * 2

    for content in ({"key": 1}, {}, {"other": 2}, {"key": 4}):
        actual, expected = collections.defaultdict(list, content), collections.defaultdict(list, content)
        step(torch.ones(2), actual)
        change(expected, None)
        assert actual == expected


class Slot:
    value = 1


def append_to_first(x, first, second):
    first.append(1)
    return x + len(second), list(second)


def store_into_first(x, first, second):
    first.value = 5
    return x + second.value, second.value


def swap(x, first, second):
    first[0], second[0] = second[0], first[0]
    return x + 1, first, second


@pytest.mark.parametrize("function,make", [(append_to_first, list), (store_into_first, Slot), (swap, lambda: [1, 2])])
def test_arguments_that_become_one_object(function, make):
    """What is written through one name is read through the other, also when an earlier call had two objects."""
    compiled = optimize(lambda gm, example_inputs: gm.forward)(function)
    x = torch.zeros(1)
    for same in (False, True, False):
        results = []
        for program in (function, compiled):
            first = make()
            results.append(program(x, first, first if same else make()))
        assert results[0] == results[1]


def ring():
    root = [0, None]
    root[1] = [1, root]

    def turn(x):
        nonlocal root
        before = root
        before[0] += 10
        root = before[1]
        root[0] += 100
        print(end="")
        id(x)
        return x + 1, before[0], root[0]

    return turn


def test_cell_that_changes_while_its_contents_do():
    plain, compiled = ring(), optimize(lambda gm, example_inputs: gm.forward)(ring())
    x = torch.zeros(1)
    for _ in range(4):
        assert compiled(x) == plain(x)


@pytest.mark.parametrize(
    "show",
    [
        str,
        repr,
        format,
        lambda x: f"{x}",
        lambda x: f"{x!r:>20}",
        lambda x: f"{x:.2f}",
        lambda x: "%s".__mod__((x,)),
        lambda x: str([x]),
    ],
    ids=["str", "repr", "format", "f-string", "with repr", "with places", "percent", "in a list"],
)
@pytest.mark.parametrize("held", [False, True], ids=["argument", "attribute"])
def test_texts_of_tensors_are_those_of_each_call(show, held):
    holder = torch.nn.Module()

    def program(x):
        y = holder.kept if held else x
        return show(y), x + 1

    compiled = optimize(lambda gm, _: gm.forward)(program)
    for number in (1.0, 2.0, 3.0):
        x = torch.tensor(number)
        holder.kept = x
        assert compiled(x)[0] == program(x)[0]


TABLE = {"factor": 2}
HELD = [[1]]
MARK = object()


class Slotted:
    __slots__ = ("numbers",)

    def __init__(self):
        self.numbers = [1]


SLOTTED = Slotted()


@functools.lru_cache
def with_table(n):
    assert MARK is not HELD
    return n * TABLE["factor"] + len(HELD[0])


@functools.lru_cache
def with_slots(n):
    return n + len(SLOTTED.numbers)


class OnceLogger(logging.Logger):
    said = []

    @functools.lru_cache(None)  # noqa: B019
    def once(self, text):
        OnceLogger.said.append(text)


@pytest.mark.parametrize(("change", "graphs"), [("nothing it reads", 1), ("its table", 2), ("what its list holds", 2)])
def test_remembering_functions_see_what_was_written_before_them(change, graphs):
    compiles, history, logger = [], [], OnceLogger("once")

    def program(x, n):
        y = x + 1
        history.append(n)
        if change == "its table":
            TABLE["factor"] += 1
        elif change == "what its list holds":
            HELD[0].append(n)
        logger.once(change)
        return y * with_table(n)

    def results(program):
        TABLE["factor"] = 2
        HELD[0][:] = [1]
        with_table.cache_clear()
        return program(torch.ones(()), 7), TABLE["factor"], len(HELD[0])

    compiled = optimize(lambda gm, _: compiles.append(gm) or gm.forward)(program)
    expected = results(program)
    assert results(compiled) == expected
    assert (len(compiles), history, OnceLogger.said.count(change)) == (graphs, [7, 7], 1)


def test_what_slots_hold_is_not_looked_at():
    def program(x, n):
        SLOTTED.numbers.append(n)
        return x + with_slots(n)

    expected = [program(torch.ones(()), n) for n in (1, 2)]
    SLOTTED.numbers[:] = [1]
    with_slots.cache_clear()
    compiled = optimize(lambda gm, _: gm.forward)(program)
    assert [compiled(torch.ones(()), n) for n in (1, 2)] == expected


def stored_again(made, x):
    made.first = x * 2
    made.second = 1
    made.first = made.first + 1


def stored_again_after_a_deletion(made, x):
    made.first = x * 2
    made.second = 1
    del made.first
    made.first = x * 3


def there_before_and_deleted(made, x):
    del made.old
    made.first = x * 2
    made.old = 1
    made.old = 2


@pytest.mark.parametrize("program", [stored_again, stored_again_after_a_deletion, there_before_and_deleted])
def test_attributes_are_in_the_order_of_their_stores(program):
    captured = optimize(lambda gm, inputs: gm.forward)(program)
    for _ in range(2):
        expected, made = (SimpleNamespace(old=0, other=0) for _ in range(2))
        program(expected, torch.ones(2))
        captured(made, torch.ones(2))
        assert [*vars(made)] == [*vars(expected)] and str(made) == str(expected)


class Counted:
    asked = 0

    @functools.lru_cache  # noqa: B019
    def scale(self, number):
        self.asked += 1
        return number * 2


@functools.lru_cache(maxsize=2)
def doubled(tensor, *, again=1):
    ASKED.append(again)
    return tensor * 2


@functools.lru_cache(maxsize=0)
def tripled(tensor):
    ASKED.append(3)
    return tensor * 3


ASKED = []


def of_a_new_object(x):
    made = Counted()
    return x * made.scale(2) * made.scale(2), made.asked


def of_the_same_tensor(x):
    y = x + 1
    first, second, third = doubled(y), doubled(y), doubled(y, again=1)
    y.add_(1)
    return first + 1, first is second, first is third, doubled(y) is first


def of_a_list(x):
    try:
        return doubled([x + 1])
    except TypeError as error:
        return x + 1, str(error)


def without_room(x):
    y = x + 1
    return y, tripled(y) is tripled(y)


def with_too_little_room(x):
    made = [x * i for i in range(3)]
    return [doubled(y) for y in made][2], doubled(made[0]) is doubled(made[0])


@pytest.mark.parametrize("program", [of_a_new_object, of_the_same_tensor, of_a_list, without_room, with_too_little_room])
def test_remembering_functions_give_for_the_same_objects_what_they_gave(program):
    def results(program):
        ASKED.clear()
        doubled.cache_clear()
        value, *others = program(torch.ones(2))
        return value.tolist(), others, list(ASKED)

    compiled = optimize(lambda gm, _: gm.forward, fullgraph=program is not with_too_little_room)(program)
    for _ in range(2):
        assert results(compiled) == results(program)
