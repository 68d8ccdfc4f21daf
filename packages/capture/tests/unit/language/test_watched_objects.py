"""Objects that weak references watch with a callback die in compiled frames where plain Python lets go of them, also when only a later
call's object is watched."""

import collections
import weakref

import pytest
import torch
import tracework_capture as capture

pytestmark = pytest.mark.usefixtures("without_the_collector")

LOG, REFERENCES = [], []
NAMED, SEEN = weakref.WeakValueDictionary(), weakref.WeakSet()


class Node:
    pass


class Slotted:
    __slots__ = ("held",)


class Box:
    shared = None


@capture.disable
def nothing():
    pass


def attribute(x, box):
    y = x + 1
    box.held = None
    LOG.append("after")
    return y * 2


def deleted_attribute(x, box):
    y = x + 1
    del box.held
    LOG.append("after")
    return y * 2


def popped(x, box):
    y = x + 1
    box.items.pop()
    LOG.append("after")
    return y * 2


def replaced_item(x, box):
    box.items[0] = x
    LOG.append("after")
    return x * 2


def cleared_list(x, box):
    box.items.clear()
    LOG.append("after")
    return x * 2


def popped_value(x, box):
    box.table.pop("key")
    LOG.append("after")
    return x * 2


def replaced_value(x, box):
    box.table["key"] = 3
    LOG.append("after")
    return x * 2


def cleared_dict(x, box):
    box.by_object.clear()
    LOG.append("after")
    return x * 2


def from_a_deque(x, box):
    box.queue.popleft()
    LOG.append("after")
    return x * 2


def from_a_set(x, box):
    box.members.clear()
    LOG.append("after")
    return x * 2


def inside_of_what_goes(x, box):
    box.nested = None
    LOG.append("after")
    return x * 2


def in_a_slot(x, box):
    box.slotted.held = None
    LOG.append("after")
    return x * 2


def attribute_of_a_tensor(x, box):
    box.tensor.extra = None
    LOG.append("after")
    return x * 2


def in_a_class(x, box):
    Box.shared = None
    LOG.append("after")
    return x * 2


HELD = None


def in_a_global(x, box):
    global HELD
    HELD = None
    LOG.append("after")
    return x * 2


def last_of_a_loop(x, box):
    for item in box.items:
        x = x + len(vars(item))
    item = None
    box.items = [item]
    LOG.append("after")
    return x


def argument_of_a_continuation(x, box):
    held = box.items.pop()
    nothing()
    x = x + 1
    held = None
    LOG.append("after")
    return x * 2, held


def inside_an_argument_of_a_continuation(x, box):
    held = [box.items.pop(), 1]
    nothing()
    x = x + 1
    held = None
    LOG.append("after")
    return x * 2, held


def asked_for(x, box):
    reference = weakref.ref(box.held)
    box.held = None
    return x * 2, reference() is None


def asked_an_existing_one(x, box):
    reference = box.reference
    box.held = None
    return x * 2, reference() is None


def asked_a_table(x, box):
    box.held = None
    return x * 2, len(NAMED), NAMED.get("held") is None


FUNCTIONS = [
    attribute,
    deleted_attribute,
    popped,
    replaced_item,
    cleared_list,
    popped_value,
    replaced_value,
    cleared_dict,
    from_a_deque,
    from_a_set,
    inside_of_what_goes,
    in_a_slot,
    attribute_of_a_tensor,
    in_a_class,
    in_a_global,
    last_of_a_loop,
    argument_of_a_continuation,
    inside_an_argument_of_a_continuation,
    asked_for,
    asked_an_existing_one,
    asked_a_table,
]


def node(kind, name):
    made = Node()
    if kind == "callback":
        REFERENCES.append(weakref.ref(made, lambda dead: LOG.append(f"{name} died")))
    elif kind == "finalizer":
        weakref.finalize(made, LOG.append, f"{name} died").atexit = False
    elif kind == "table":
        NAMED[name] = made
    elif kind == "set":
        SEEN.add(made)
    return made


def new_box(kind):
    global HELD
    box = Box()
    box.held = node(kind, "held")
    box.reference = weakref.ref(box.held)
    box.items = [node(kind, "item")]
    box.table, box.by_object = {"key": node(kind, "value")}, {node(kind, "key"): 1}
    box.queue, box.members = collections.deque([node(kind, "first")]), {node(kind, "member")}
    box.nested = [{"inner": Box()}]
    box.nested[0]["inner"].held = node(kind, "inner")
    box.slotted, box.tensor = Slotted(), torch.ones(2)
    box.slotted.held, box.tensor.extra = node(kind, "slot"), node(kind, "extra")
    Box.shared, HELD = node(kind, "shared"), node(kind, "global")
    return box


def seen_of(function, kind):
    box = new_box(kind)
    LOG.clear()
    result = function(torch.ones(2), box)
    return list(LOG), result[1:] if isinstance(result, tuple) else None


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("watched", ["callback", "finalizer", "table", "set"])
def test_what_is_watched_dies_where_plain_python_lets_go_of_it(function, watched):
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(function)
    for kind in (None, watched, None, watched):
        assert seen_of(compiled, kind) == seen_of(function, kind)


GUARDED_BY_IDENTITY = (cleared_dict, from_a_set)


@pytest.mark.parametrize(
    "function", [f for f in FUNCTIONS if not f.__name__.startswith("asked") and f not in GUARDED_BY_IDENTITY]
)
def test_what_nobody_watches_is_let_go_of_in_one_graph(function):
    graphs = []
    compiled = capture.optimize(
        lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph="continuation" not in function.__name__
    )(function)
    for _ in range(3):
        seen_of(compiled, None)
    assert len(graphs) == 1


def test_cycles_and_shared_parts_are_counted_as_the_collector_counts_them():
    box, kept = Box(), node("callback", "kept")
    holders = [[kept] for _ in range(20)]

    def fn(x):
        box.held = None
        return x + 1

    compiled = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)
    for _ in range(2):
        box.held = [kept, {"again": kept}]
        box.held.append(box.held)
        compiled(torch.ones(2))
    assert holders[0] == [kept]


WATCHED_MODULE = torch.nn.Linear(2, 2)
MODULE_REFERENCE = weakref.ref(WATCHED_MODULE, lambda dead: None)


@capture.disable
def same(value):
    return value


def test_arguments_of_continuations_that_others_hold_may_be_watched():
    def fn(x, box):
        x = box.module(same(x))  # the module lies on the continuation's stack, and is let go of there
        return x + 1

    graphs = []
    compiled = capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(fn)
    box = Box()
    box.module = WATCHED_MODULE
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(2), box), fn(torch.ones(2), box))
    assert len(graphs) == 1
    assert MODULE_REFERENCE() is WATCHED_MODULE
