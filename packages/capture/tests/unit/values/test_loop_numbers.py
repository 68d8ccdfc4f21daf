"""torch.while_loop that carries ints of Python, against the loop that its documentation says it is."""

import pytest
import torch
from torch._higher_order_ops.map import map as map_steps
from tracework_capture import Unsupported, optimize


def written_out(condition, body, carried):
    while condition(*carried):
        carried = body(*carried)
    return carried


def counted(loop, x, n):
    return loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (0, x))


def to_a_number(loop, x, n):
    i, y = loop(lambda i, x: i < n, lambda i, x: (1 + i, x * 2 + i), (0, x))
    return i + 1, y, f"{i} of {n}"


def from_a_number(loop, x, n):
    return loop(lambda i, x: 9 > i, lambda i, x: (i + 2 - 1, x / (i + 1)), (n, x))


def by_data(loop, x, n):
    return loop(lambda i, x: x.sum() < 50, lambda i, x: (i + 1, i - x * -3), (n, x))


def of_sizes(loop, x, n):
    return loop(lambda i, x: 2 * i < x.shape[0], lambda i, x: (i + 1, x + i % 3 - i // 2), (0, x))


def downwards(loop, x, n):
    return loop(lambda i, j, x: i != j, lambda i, j, x: (i + 1, j - 1, x + (10 - i) + (i + j)), (0, 8, x))


def in_containers(loop, x, n):
    return loop(lambda d: d["i"][0] < 3, lambda d: ({"i": [d["i"][0] + 1], "x": d["x"] * 2},), ({"i": [0], "x": x},))


def set_anew(loop, x, n):
    return loop(lambda i, done, x: i - 1 <= 3 * done, lambda i, done, x: (i + 1, 1, x + i), (n, 0, x))


def with_another_condition(loop, x, n):
    return loop(lambda i, x: (i < 9) & (x.sum() < 50), lambda i, x: (i + 1, x + i), (0, x))


def with_gradients(loop, x, n):
    y = x.detach().requires_grad_()
    i, z = loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x + i), (0, y * 1.0))
    z.sum().backward()
    return i, z.detach(), y.grad


PROGRAMS = [
    counted, to_a_number, from_a_number, by_data, of_sizes, downwards, in_containers, set_anew, with_another_condition, with_gradients
]  # fmt: skip


def flat(result):
    leaves, _ = torch.utils._pytree.tree_flatten(result)
    return [(type(leaf), leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf) for leaf in leaves]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_one_graph(fresh, program):
    graphs = []
    compiled = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)(program)
    for n in (3, 5, 0, -2):
        assert flat(compiled(torch.while_loop, torch.ones(4), n)) == flat(program(written_out, torch.ones(4), n))
    assert len(graphs) <= 3  # the negative number has its own


def multiplied(i, x):
    return i * 2, x


def summed(i, x):
    return i + i, x


def far(i, x):
    return i + 2**20, x


def often(i, x):
    return i + 4000 + 4000 + 4000 + 4000 + 4000, x


def another_kind(i, x):
    return x.sum(), x


def power(i, x):
    return i + 1, x**i


def of_an_integer(i, x):
    return i + 1, x + (x[0].int() * i)


@pytest.mark.parametrize("body", [multiplied, summed, far, often, another_kind, power, of_an_integer], ids=lambda b: b.__name__)
def test_what_may_differ_is_left_to_torch(fresh, body):
    def program(x):
        return torch.while_loop(lambda i, x: i < 5, body, (1, x))

    with pytest.raises(Unsupported):
        optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)(torch.ones(4))


def test_a_first_number_near_the_end_is_left_to_torch(fresh):
    def program(x, n):
        return torch.while_loop(lambda i, x: i < n + 2, lambda i, x: (i + 1, x + 1), (n, x))

    with pytest.raises(Unsupported):
        optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)(torch.ones(4), 2**62)


def test_a_list_that_a_mapped_function_changes(fresh):
    def program(x):
        seen = []

        def step(row):
            seen.append(1)
            return row * 2

        return map_steps(step, x), len(seen)

    with pytest.raises(Unsupported, match="changes Python objects"):
        optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)(torch.ones(100, 2))
