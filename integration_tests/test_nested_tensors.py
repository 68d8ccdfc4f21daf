"""Nested tensors of torch.jagged layout in one graph, against eager: values, gradients, what is compiled for batches of other lengths."""

import logging

import pytest
import torch
import torch.nn.functional as F
import tracework

BATCHES = [(3, 5, 2), (4, 2, 6), (7, 3, 2, 5), (2, 9, 3), (6, 6), (3, 4, 7)]


def rows(lengths, seed=0):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 8, generator=made) for n in lengths]


def nested(lengths, seed=0):
    return torch.nested.nested_tensor(rows(lengths, seed), layout=torch.jagged)


def of_values(lengths, seed=0):
    """Without its shortest and longest row known."""
    return torch.nested.nested_tensor_from_jagged(torch.cat(rows(lengths, seed)), nested(lengths).offsets())


def with_holes(lengths):
    values = torch.cat([*rows(lengths), torch.zeros(4, 8)])
    return torch.nested.nested_tensor_from_jagged(values, nested(lengths).offsets(), torch.tensor(lengths) - 1)


torch.manual_seed(0)
linear, norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
queries, keys = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)


def attention(x, **options):
    q, k, v = (made.unflatten(-1, (2, 4)).transpose(1, 2) for made in (queries(x), keys(x), linear(x)))
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).flatten(-2) + x


PROGRAMS = {
    "attention": attention,
    "scaled attention": lambda x: attention(x, scale=0.5),
    "pointwise": lambda x: x.sin() * 2 + 1 - x,
    "functions": lambda x: torch.where(x > 0, F.gelu(x), torch.zeros_like(x)),
    "linear": lambda x: linear(x).relu(),
    "layer norm": lambda x: norm(x) * x,
    "rms norm": lambda x: F.rms_norm(x, (8,)),
    "softmax": lambda x: x.softmax(-1),
    "sum of rows": lambda x: x.sum(1),
    "product with itself": lambda x: (x * x.detach()).mean(-1),
    "mean of features": lambda x: x.mean(-1),
    "concatenated": lambda x: torch.cat([x, x * 2], -1),
    "its parts": lambda x: (x.values() * 2, x.offsets().diff()),
    "heads": lambda x: x.unflatten(-1, (2, 4)).transpose(1, 2) * 2,
    "heads and back": lambda x: x.unflatten(-1, (2, 4)).flatten(-2) + x,
    "another shape": lambda x: x.view(x.shape[0], x.size(1), 2, 4).sum(-1),
    "its own size": lambda x: x * 2 if x.shape[1] == (x * 3).shape[1] else x,
    "facts": lambda x: (x * x.dim(), x.is_nested, x.layout, x.dtype, x.requires_grad),
    "padded": lambda x: torch.nested.to_padded_tensor(x * 2, 0.5).sum(1),
    "padded by a method": lambda x: (x * 2).to_padded_tensor(0.5),
    "made of values": lambda x: torch.nested.nested_tensor_from_jagged(x.values().cumsum(0), x.offsets()) + x,
    "times how many": lambda x: x * x.numel() + x.size(0) if x.lengths() is None else x,
    "itself": lambda x: (x, x * 2),
    "converted": lambda x: x.double().sin().float(),
    "detached": lambda x: x.detach() * 2 + x,
    "number of rows": lambda x: x * 2 if x.shape[0] > 2 else x - 1,
}
WITHOUT_GRADIENTS = {"sum of rows", "another shape"}
"""Sums, whose gradient eager does not have."""


def same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert found.is_nested == expected.is_nested and found.requires_grad == expected.requires_grad
        if expected.is_nested:
            assert found.dim() == expected.dim() and found._ragged_idx == expected._ragged_idx
            same(found.offsets(), expected.offsets())
            same(found.values(), expected.values())
        else:
            torch.testing.assert_close(found, expected)
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for pair in zip(found, expected):
            same(*pair)
    else:
        assert found == expected


@pytest.fixture(autouse=True)
def fresh():
    tracework.reset()


@pytest.fixture
def recompiles(caplog):
    caplog.set_level(logging.INFO, "tracework.capture.recompiles")
    return lambda: len([record for record in caplog.records if record.name == "tracework.capture.recompiles"])


@pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
@pytest.mark.parametrize("make", [nested, of_values, with_holes])
@pytest.mark.parametrize("name", PROGRAMS)
@torch.no_grad()
def test_one_graph_for_all_lengths(name, make, recompiles):
    program = PROGRAMS[name]
    call = tracework.compile(program, fullgraph=True)
    for lengths in BATCHES:
        given = make(lengths)
        try:
            expected = program(given)
        except (RuntimeError, ValueError) as error:  # eager has no such operator for rows with holes
            assert make is with_holes, error
            return
        same(call(given), expected)
    ways = 2 + 2 * (name == "number of rows")  # with numbers, then symbols for sums of lengths and for how many rows there are
    assert recompiles() <= ways


@pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
@pytest.mark.parametrize("make", [nested, of_values])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in WITHOUT_GRADIENTS])
def test_gradients(name, make, recompiles):
    program = PROGRAMS[name]
    call = tracework.compile(program, fullgraph=True)

    def trained(function, lengths):
        given = make(lengths).detach().requires_grad_()
        found = function(given)
        results = [
            t.values() if t.is_nested else t for t in (found if type(found) is tuple else [found]) if isinstance(t, torch.Tensor)
        ]
        loss = sum(t.square().sum() for t in results if t.requires_grad)
        return found, torch.autograd.grad(loss, [given, *linear.parameters()], allow_unused=True)

    for lengths in BATCHES:
        same(trained(call, lengths), trained(program, lengths))
    assert recompiles() <= 3 + 2 * (name == "number of rows")


def test_tensors_of_the_same_offsets():
    """Their sizes are equal, and those of others are not."""
    call = tracework.compile(lambda a, b: a * b if a.shape[1] == b.shape[1] else a, fullgraph=True)
    for lengths in BATCHES[:3]:
        a = nested(lengths)
        b = torch.nested.nested_tensor_from_jagged(torch.cat(rows(lengths, 1)), a.offsets())
        for other in (b, nested(lengths, 1)):
            same(call(a, other), a * other if other is b else a)


def test_results_are_of_the_inputs_rows():
    """What a graph gives can be added to what it was given."""
    call = tracework.compile(lambda x: (x * 2, x.shape), fullgraph=True)
    for lengths in BATCHES[:3]:
        x = nested(lengths)
        found, sizes = call(x)
        same(found + x, x * 3)
        assert sizes == x.shape


def test_made_inside():
    program = lambda a, b: torch.nested.nested_tensor([a, b], layout=torch.jagged).sin() * 2
    call = tracework.compile(program, fullgraph=True)
    for lengths in ((3, 5), (4, 6), (2, 7)):
        same(call(*rows(lengths)), program(*rows(lengths)))


def test_a_break_hands_one_over():
    def program(x):
        y = x * 2
        print("", end="")
        return y + x

    call = tracework.compile(program)
    for lengths in BATCHES:
        same(call(nested(lengths)), program(nested(lengths)))


def test_a_write_reaches_the_values():
    call = tracework.compile(lambda x: x.mul_(2) + 1, fullgraph=True)
    for lengths in BATCHES[:3]:
        x = nested(lengths)
        same(call(x), nested(lengths) * 2 + 1)
        same(x, nested(lengths) * 2)


def test_a_backward_that_eager_lacks_raises_as_there():
    call, x = tracework.compile(lambda x: norm(x)), with_holes(BATCHES[0]).detach().requires_grad_()
    with pytest.warns(tracework.UncompiledWarning, match="the backward of this graph fails"):
        found = call(x)
    same(found, norm(x))
    with pytest.raises(ValueError, match="contiguous jagged layout"):
        found.values().sum().backward()


def test_what_depends_on_lengths_breaks():
    program = lambda x: [row * 2 for row in (x + 1).unbind()]
    call = tracework.compile(program)
    for lengths in BATCHES[:3]:
        same(call(nested(lengths)), program(nested(lengths)))


def test_another_layout_breaks():
    program = lambda x: torch.nested.nested_tensor([x, x + 1])
    found, expected = tracework.compile(program)(torch.ones(2, 3)), program(torch.ones(2, 3))
    same(list(found.unbind()), list(expected.unbind()))
