"""id() of tensors and of what the program makes: as a key, in comparisons, and as a number that leaves the graph."""

import pytest
import torch
from torch import nn
from tracework_capture import optimize

LAYERS = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
NO_DECAY = {id(LAYERS[0].bias), id(LAYERS[1].bias)}


def rebuilt(value, memo):
    """A copy that keeps what is shared, as copy.deepcopy does."""
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, torch.Tensor):
        made = value * 2
    elif isinstance(value, dict):
        made = {key: rebuilt(item, memo) for key, item in value.items()}
    else:
        made = [rebuilt(item, memo) for item in value]
    memo[id(value)] = made
    return made


class Node:
    def __init__(self, value):
        self.value, self.next = value, []


def memo_of_parameters(x):
    memo = {id(p): p.sum() for p in LAYERS.parameters()}
    return sum((memo[id(p)] for p in LAYERS.parameters()), x)


def table_of_before(x):
    return sum((p.sum() for p in LAYERS.parameters() if id(p) not in NO_DECAY), x)


def seen_once(x):
    seen, found, y = set(), [], x + 1
    for tensor in (x, y, x, LAYERS[0].bias, y):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found.append(tensor * 2)
    return found, len(seen)


def shared_parts(x):
    y = x + 1
    made = rebuilt([x, y, x, {"a": y, "b": LAYERS[0].bias}], {})
    return made, made[0] is made[2], made[1] is made[3]["a"]


def cyclic_graph(x):
    first, second = Node(x), Node(x + 1)
    first.next, second.next = [second], [first]
    total, seen, open_ = 0, {}, [first]
    while open_:
        node = open_.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            total = total + node.value
            open_ += node.next
    return total


def comparisons(x):
    y, z = x + 1, x + 2
    return y + z, id(y) == id(z), id(y) == id(y), id(x) != id(y), id(x) == id(x), id(y) == 5, id(y) in [id(z), id(y)]


def beside_known_numbers(x):
    memo = {id(LAYERS): 1, 3: 2, id(x): 3}
    return x * memo[id(x)] + memo[id(LAYERS)] + memo[3], len(memo), id(x) in memo


def number_in_the_result(x):
    y = x + 1
    memo = {id(x): x, id(y): y}
    return y, memo[id(y)] is y, [list(memo)[1] - id(y), id(x)], f"{id(y)}"


PROGRAMS = (memo_of_parameters, table_of_before, seen_once, shared_parts, cyclic_graph, comparisons, beside_known_numbers)


def equal(first, second):
    """Tensors by value, all else as Python compares it."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and equal(list(first.values()), list(second.values()))
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(equal, first, second))
    return first == second


@pytest.mark.parametrize("program", PROGRAMS)
def test_identity_as_a_key_is_part_of_the_graph(program):
    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    for _ in range(2):
        x = torch.randn(3)
        assert equal(compiled(x), program(x))


def test_number_that_leaves_the_graph_is_that_of_the_object():
    compiled = optimize(lambda gm, inputs: gm.forward)(number_in_the_result)
    x = torch.randn(3)
    y, same, (difference, number), text = compiled(x)
    assert same and difference == 0 and number == id(x) and text == str(id(y))


def test_inputs_that_are_one_object_are_told_apart_from_others():
    def fn(x, y):
        return x + len({id(x), id(y)}) + (id(x) == id(y))

    compiled = optimize(lambda gm, inputs: gm.forward)(fn)
    x, y = torch.randn(3), torch.randn(3)
    for pair in ((x, y), (x, x), (y, y), (y, x)):
        assert torch.equal(compiled(*pair), fn(*pair))


def test_table_of_before_finds_the_parameter_that_was_put_in_its_place():
    class Holder:
        pass

    holder, table = Holder(), {}
    holder.weight = torch.ones(3)

    def fn(x):
        if id(holder.weight) not in table:
            table[id(holder.weight)] = holder.weight.sum()
        return x * table[id(holder.weight)]

    compiled = optimize(lambda gm, inputs: gm.forward)(fn)
    first = holder.weight
    for weight in (first, torch.full((3,), 2.0), first):
        holder.weight = weight
        assert torch.equal(compiled(torch.ones(3)), weight.sum() * torch.ones(3))
    assert list(table) and id(first) in table


def test_object_that_is_gone_is_not_taken_for_a_later_one():
    """Plain Python may put the second one where the first one was."""

    def fn(x):
        seen = set()
        for step in range(2):
            seen.add(id(x + step))
        return x + 1

    breaks = []
    compiled = optimize(lambda gm, inputs: breaks.append(gm) or gm.forward)(fn)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert len(breaks) > 1
