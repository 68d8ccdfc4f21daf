"""Keys and members whose class has an equality of its own: tables ask the program's `__hash__` and `__eq__`, which may only compare."""

import collections
import dataclasses

import pytest
import torch
from tracework_capture import optimize
from tracework_capture.errors import Unsupported

X = torch.ones(3)
CALLS = []


class Node:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return isinstance(other, Node) and self.number == other.number


class Place:
    def __init__(self, row, node):
        self.row, self.node = row, node

    @property
    def key(self):
        return self.row, self.node

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        if not isinstance(other, Place):
            return NotImplemented
        return self.key == other.key


class Bag:
    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __hash__(self):
        return hash(tuple(sorted(self.__dict__.items())))

    def __eq__(self, other):
        return self.__dict__ == other.__dict__


class Crowded(Node):
    def __hash__(self):
        return 1

    __eq__ = Node.__eq__


class OneSided(Crowded):
    def __eq__(self, other):
        return self.number > other.number

    __hash__ = Crowded.__hash__


class Noted(Node):
    def __hash__(self):
        CALLS.append(self.number)
        return 1

    __eq__ = Node.__eq__


class NotedEquality(Node):
    __hash__ = Crowded.__hash__

    def __eq__(self, other):
        CALLS.append((self.number, other.number))
        return False


class Counted(Node):
    calls = 0

    def __hash__(self):
        self.calls += 1
        return 1

    __eq__ = Node.__eq__


class NotedProperty(Node):
    @property
    def looked(self):
        CALLS.append("looked")
        return 1

    def __hash__(self):
        return self.looked

    __eq__ = Node.__eq__


@dataclasses.dataclass(unsafe_hash=True)
class Changing:
    rows: int


FIRST = Node(1)
HELD = {FIRST: 2.0, Node(2): 3.0}


def dicts(x):
    made = {Node(1): x, Node(2): x + 1}
    made[Node(1)] = x * 3
    made.setdefault(Node(2), 5)
    found = made[Node(2)], made.get(Node(9)), Node(1) in made, len(made), [node.number for node in made]
    return found, made.pop(Node(1)), Node(1) in made, made == {Node(2): made[Node(2)]}


def sets(x):
    made = {Node(1), Node(1), Node(2)}
    made.add(Node(2))
    made.discard(Node(1))
    other = {Node(2), Node(3)}
    sizes = [len(s) for s in (made, made & other, made | other, other - made, made ^ other)]
    return x * len(made), sizes, made <= other, Node(3) in other, {frozenset(made): 1}[frozenset({Node(2)})]


def nested(x):
    made = {Place(1, Node(2)): x, (Place(1, Node(3)), "a"): x * 2}
    return made[Place(1, Node(2))], made[Place(1, Node(3)), "a"], Place(2, Node(2)) in made, hash((1, Node(2))) == hash((1, 2))


def by_all_fields(x):
    made = {Bag(a=1, b="c"): x}
    return made[Bag(b="c", a=1)], Bag(a=1) in made


def crowded(x):
    made = {Crowded(number): number for number in range(4)}
    made[Crowded(2)] = 9
    del made[Crowded(0)]
    made[Crowded(7)] = 1
    return x * 2, [(key.number, item) for key, item in made.items()], Crowded(3) in made


def walk(x):
    edges = {Node(0): [Node(1)], Node(1): [Node(2), Node(0)], Node(2): []}
    seen, order, left = set(), [], [Node(0)]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            order.append(node.number)
            left.extend(edges[node])
    return x[order], collections.Counter([Node(1), Node(1)])[Node(1)]


def looked_up(x):
    return x * HELD[Node(1)] + HELD.get(Node(7), 4.0), Node(2) in HELD, HELD[FIRST], x * 2


def missing(x):
    try:
        return {Node(1): x}[Node(2)]
    except KeyError:
        return x * 2


@pytest.mark.parametrize(
    "fn", [dicts, sets, nested, by_all_fields, crowded, walk, looked_up, missing], ids=lambda fn: fn.__name__
)
def test_same_as_plain(fn):
    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)
    assert str(compiled(X)) == str(fn(X))


@pytest.mark.parametrize("cls", [Noted, NotedEquality, Counted, NotedProperty, OneSided])
def test_equality_that_does_more_is_left_to_python(cls):
    def step(x):
        first = cls(1)
        made = {first: x, cls(2): x * 2}
        return x * len(made), made.get(first), cls(2) in made, getattr(first, "calls", 0), list(CALLS)

    with pytest.raises(Unsupported, match="unhashable_value"):
        optimize(lambda gm, inputs: gm.forward, fullgraph=True)(step)(X)
    compiled = optimize(lambda gm, inputs: gm.forward)(step)
    for _ in range(2):
        CALLS.clear()
        expected = step(X)
        CALLS.clear()
        assert str(compiled(X)) == str(expected)


def test_guards_ask_no_equality():
    """Of a dict that the program goes over, whatever the equality of its keys does."""
    held = {Noted(1): torch.ones(3), NotedEquality(2): 3.0}
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x: [x * key.number * item for key, item in held.items()])
    CALLS.clear()
    for number in (3.0, 4.0, 5.0):
        assert [list(item) for item in compiled(X)] == [[1.0] * 3, [2 * number] * 3] and not CALLS
        held.pop(list(held)[1])
        held[NotedEquality(2)] = number + 1
        CALLS.clear()


def test_keys_that_change():
    """Of a dict that is there, and of one that the program makes."""
    held = {Changing(1): 2.0}
    (key,) = held
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x, rows: x * held.get(Changing(rows), 5.0))
    for now, rows in ((1, 1), (2, 1), (2, 2), (1, 1)):
        key.rows = now
        assert compiled(X, rows)[0] == held.get(Changing(rows), 5.0)
    kept = held.pop(key)
    key.rows = 3
    held[key] = kept
    key.rows = 1  # it is where the hash of 3 has put it
    assert compiled(X, 1)[0] == held.get(Changing(1), 5.0) == 5.0

    def step(x):
        key = Changing(1)
        made = {key: x}
        key.rows = 2
        return x * 3, key in made, Changing(1) in made, Changing(2) in dict(made)

    assert str(optimize(lambda gm, inputs: gm.forward)(step)(X)) == str(step(X))


def test_tables_that_leave_the_graph():
    def step(x, table):
        made = {Node(1): x * 2}
        table[Node(1)] = 5
        return made, {Node(2)}, x * 3

    compiled = optimize(lambda gm, inputs: gm.forward)(step)
    for table in ({}, {Node(1): 4}):
        made, members, _ = compiled(X, table)
        assert torch.equal(made[Node(1)], X * 2) and Node(2) in members and list(table.values()) == [5]


def test_a_dict_that_gets_another_key():
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x, table: x * table.get(Node(1), 5.0))
    for table in ({}, {Node(1): 2.0}, {1: 3.0}, {Node(2): 2.0}, {Node(1): 7.0}):
        assert compiled(X, table)[0] == table.get(Node(1), 5.0)


class HashedList(list):
    def __init__(self, number):
        super().__init__([number])

    def __hash__(self):
        return self.number


class HashedInt(int):
    def __hash__(self):
        return self.number


class TextAsHash(int):
    def __hash__(self):
        return int.__str__(self)


def test_hashes_that_change():
    """They become numbers of the program; the hash of the built-in part is none, or another."""
    for cls in (HashedInt, HashedList):
        compiled = optimize(lambda gm, inputs: gm.forward)(lambda x, key: (x + 1, hash(key), {key: 3}[key]))
        for number in (1, 2, 3, -1, 2**70, 5):
            key = cls(7)
            key.number = number
            assert compiled(X, key)[1:] == (hash(key), 3)


def test_a_hash_that_is_no_number():
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x, key: (x + 1, hash(key)))
    for _ in range(2):
        with pytest.raises(TypeError, match="__hash__ method should return an integer"):
            compiled(X, TextAsHash(3))
