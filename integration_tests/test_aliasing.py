"""Programs that write to inputs, change what tensors show, and return aliases: everything that can be seen afterwards is as in eager.

Compared: values, strides, offsets, versions, is_leaf, requires_grad, which tensors share memory, which are views of which, gradients.
"""

import pytest
import torch
import tracework

BACKENDS = ("aot_eager", "inductor")


def leaf(*sizes):
    torch.manual_seed(sum(sizes))
    return torch.randn(*sizes, requires_grad=True)


def data(*sizes):
    return leaf(*sizes).detach().clone()


def middle(*sizes):
    return leaf(*sizes) * 1


CASES = {}


def case(*makers):
    def register(fn):
        CASES[fn.__name__] = (fn, makers)
        return fn

    return register


@case(lambda: (data(4, 4),))
def write(x):
    x.add_(1)
    return x * 2


@case(lambda: (lambda x: (x, x))(data(4, 4)))
def the_same_twice(x, y):
    x.mul_(2)
    return x + y


@case(lambda: (lambda x: (x, x[1:]))(data(4, 4)))
def overlapping(x, y):
    y.mul_(2)
    return x.sum() + y


@case(lambda: (lambda x: (x.t(), x.view(-1)))(data(4, 4)))
def overlapping_in_other_orders(x, y):
    x[0].add_(1)
    return y * 2, x.sum(0)


@case(lambda: (lambda x: (x[:2], x[2:]))(data(4, 4)))
def halves_of_one(x, y):
    x.add_(y)
    return x * y


@case(lambda: (lambda x: (x[:2], x[1:]))(middle(4, 4)))
def overlapping_with_history(x, y):
    return x.sum() * y


@case(lambda: (data(4, 4),))
def write_after_last_use(x):
    y = x.sin()
    x.zero_()
    return y


@case(lambda: (middle(4, 4),))
def write_with_history(x):
    x.mul_(2)
    return x.sin()


@case(lambda: (middle(4, 4), data(4)))
def write_of_a_view_with_history(x, b):
    x[1:3].mul_(2)
    x.t()[0].add_(b)
    return x.exp().sum()


@case(lambda: (leaf(4, 4),))
def leaf_under_no_grad(w):
    y = (w * 2).sum()
    with torch.no_grad():
        w.sub_(0.1)
    return y


@case(lambda: (leaf(4, 4),))
def leaf_data(w):
    w.data.mul_(0.5)
    return (w * 3).sum()


@case(lambda: (leaf(4, 4),))
def leaf_data_saved_before(w):
    y = (w * w).sum()
    w.data.mul_(0.5)
    return y


@case(lambda: (leaf(4, 4),))
def leaf_detached(w):
    w.detach().add_(1)
    return w.sin()


@case(lambda: (leaf(4, 4), leaf(4, 4)))
def leaf_detached_in_place(w, x):
    w.detach_()
    return w * 2, x * w


@case(lambda: (middle(4, 4), leaf(4, 4)))
def result_detached_in_place(x, w):
    y = (x * 2).exp_()
    y.detach_()
    y.mul_(3)
    x.detach_()
    return y * w, x


@case(lambda: (data(4, 4),))
def transposed_in_place(x):
    x.t_()
    return x * 2


@case(lambda: (data(4, 4),))
def unsqueezed_in_place(x):
    x.unsqueeze_(0)
    return x + 1


@case(lambda: (data(4, 4),))
def resized(x):
    x.resize_(2, 8)
    return x * 2


@case(lambda: (data(4, 4), data(3)))
def set_to_another(x, y):
    x.set_(y)
    return x * 2


@case(lambda: (data(4, 4), data(3)))
def data_assigned(x, y):
    x.data = y
    return x * 2


@case(lambda: (leaf(4, 4), data(4, 4)))
def data_of_a_leaf_assigned(x, y):
    x.data = y * 2
    with torch.no_grad():
        x.mul_(3)
    return x * x, x.is_leaf and x


@case(lambda: (leaf(4, 4), leaf(4, 4)))
def data_of_leaves_exchanged(x, y):
    before = (x.detach() * y.detach()).sum()
    x.data, y.data = y.data, x.data
    return before, x * 2 + y * 3


@case(lambda: (data(4), data(4), data(4), data(4)))
def data_handed_on(x, y, z, other):
    x.data = y
    z.data = x
    x.data = other
    x.add_(1)
    return x + z, y * 2


@case(lambda: (leaf(4, 4), data(4, 4)))
def data_shared_with_a_result(x, y):
    made = y * 2
    x.data = made
    made.add_(1)
    return made, x * 1


@case(lambda: (leaf(4, 4), data(4, 4)))
def data_assigned_after_use(x, y):
    used = (x * x).sum()
    x.data = y
    return used + (x * 3).sum()


@case(lambda: (leaf(4, 4), leaf(4)))
def data_assigned_from_one_vector(x, y):
    vector = torch.nn.utils.parameters_to_vector([x, y])
    torch.nn.utils.vector_to_parameters(vector * 2, [x, y])
    return vector.exp().sum() + (x * x).sum() + y.sin()


@case(lambda: (leaf(4, 4), data(2, 3)))
def data_of_another_shape(x, y):
    x.data = y
    with torch.no_grad():
        z = x * 2
    return z, x.shape[0] * (x * 3)


@case(lambda: (leaf(4, 4),))
def data_of_another_dtype(x):
    x.data = x.data.double()
    return x * 2


@case(lambda: (data(4, 4), data(4, 4)))
def data_of_a_view_assigned(x, y):
    v = x[0]
    v.data = y[1]
    v.add_(1)
    return v, x * 2


@case(lambda: (data(4, 4),))
def asked_for_gradients(x):
    x.requires_grad_()
    return (x * 2).sum()


@case(lambda: (data(4, 4),))
def made_here_asked_for_gradients(x):
    w = torch.ones(4, requires_grad=True)
    return x * w, w


@case(lambda: (data(4, 4),))
def result_in_an_empty_tensor(x):
    made = torch.empty(0)
    same = torch.add(x, 1, out=made)
    same.mul_(2)
    return same, made, made.t()


@case(lambda: (data(4, 4),))
def result_in_an_empty_tensor_of_another_dtype(x):
    made = torch.empty(0, dtype=torch.float64)
    torch.sum(x, 0, out=made)
    return made


@case(lambda: (data(4, 4),))
def made_here_and_given(x):
    w = torch.ones(4, requires_grad=True)
    return x * 2, w, torch.nn.Parameter(x * 3)


@case(lambda: (data(4, 4),))
def a_history_that_begins_here(x):
    w = x.exp().requires_grad_()
    return x * w, (w * 2).sum()


@case(lambda: (leaf(4, 4),))
def made_here_beside_an_input(x):
    w = x.detach().exp().requires_grad_()
    return x * w


@case(lambda: (leaf(4, 4),))
def made_here_and_differentiated_here(x):
    w = x.detach().exp().requires_grad_()
    (g,) = torch.autograd.grad((w * w).sum(), w)
    return x * g


@case(lambda: (leaf(4, 4),))
def detached_in_place(x):
    y = x * 2
    y.detach_()
    return y, x * y


@case(lambda: (data(4, 4),))
def the_input(x):
    return x, x


@case(lambda: (leaf(4, 4),))
def views_of_the_input(x):
    return x[0], x.t(), x.view(2, 8), x.detach(), x.unbind(1)[2]


@case(lambda: (leaf(4, 4),))
def views_of_one_value(x):
    y = x * 2
    return y, y[0], y.t(), y.view(-1)[::2]


@case(lambda: (leaf(4, 4),))
def views_of_a_hidden_value(x):
    y = x * 2
    return y[0], y[1:]


@case(lambda: (leaf(4, 4),))
def one_view_of_a_hidden_value(x):
    return (x * 2).t(), (x + 1).expand(2, 4, 4), (x + 2)[:, 1]


@case(lambda: (middle(4, 4),))
def write_and_return_view(x):
    x.add_(1)
    return x[0], x


@case(lambda: (data(4, 4),))
def views_under_no_grad(x):
    with torch.no_grad():
        v = x.view(-1)
    return v, v * 2


@case(lambda: (leaf(4, 4),))
def view_of_a_leaf_under_no_grad(x):
    with torch.no_grad():
        v = x.view(-1)
    return v, v * 2


@case(lambda: (data(4, 4).t(),))
def write_of_strided_memory(x):
    x.copy_(torch.arange(16.0).view(4, 4))
    return x.view_as(x), x.contiguous()


@case(lambda: (data(4, 1).expand(4, 4),))
def read_of_expanded_memory(x):
    return x * 2, x.contiguous()


@case(lambda: (data(4, 4), data(4, 4)))
def swapped(x, y):
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x - y


@case(lambda: (data(4, 4).to(torch.complex64),))
def real_part_written(x):
    x.real.mul_(2)
    return x.abs(), x.imag


@case(lambda: (data(4, 4).to(torch.complex64),))
def copies_of_complex_views(x):
    kept = (
        torch.view_as_real(x).clone(),
        x.view(torch.float64).clone(),
        x.real * 1,
        x[1:].clone(),
        x.t().clone(),
        x.conj().clone(),
    )
    x.mul_(2)
    return kept


@case(lambda: (data(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),))
def channels_last_written(x):
    x.mul_(2)
    return x + 1, x.permute(0, 2, 3, 1)


def tensors(value):
    return [t for t in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(t, torch.Tensor)]


def facts(inputs, outputs):
    """All that can be seen of each tensor, by numbers that do not depend on addresses."""
    everything = [*inputs, *outputs]
    memory = {}
    seen = []
    for t in everything:
        base = t._base
        place = memory.setdefault(t.untyped_storage().data_ptr(), len(memory)) if t.numel() else None
        seen.append(
            {
                "shape": tuple(t.shape),
                "stride": t.stride(),
                "offset": t.storage_offset(),
                "dtype": t.dtype,
                "requires_grad": t.requires_grad,
                "is_leaf": t.is_leaf,
                "has history": t.grad_fn is not None,
                "memory": place,
                "view of": next((i for i, o in enumerate(everything) if o is base), None),
                "object": next(i for i, o in enumerate(everything) if o is t),
            }
        )
    return seen


@case(lambda: (data(4, 4),))
def copy_of_a_view(x):
    return x[:2].clone(), x[0, 0].clone(), x.clone()[:3], x.clone()[:2], x[:2].to(torch.float32, copy=True)


@case(lambda: (data(4, 4),))
def copy_before_a_write(x):
    first, part = x[0, 0].clone(), x[1:].clone()
    x.fill_(3)
    return first, part, part[1:] + 1


@case(lambda: (data(4, 4),))
def views_of_equal_results(x):
    return (x + 1)[:2], (x + 1)[:3], (x * 2)[0], (x * 2)[0].clone()


@case(lambda: (data(5, 4)[1:].requires_grad_(),))
def views_without_history_of_a_leaf_that_is_a_view(x):
    with torch.no_grad():
        v, w = x[:2], x.t()
    return v, w, x * 2


@case(lambda: (data(3), data(3)))
def lists_with_a_tensor_twice(x, y):
    torch._foreach_add_([x, y, x], 2)
    torch._foreach_mul_([x[0], x], [y[1], y])
    torch._foreach_add_([x, x[1]], [1, 2])
    return x * 1


@case(lambda: (data(3), data(3)))
def a_list_is_written(x, y):
    torch._foreach_mul_([x, y], 2)
    return torch._foreach_neg([x, y])


@case(lambda: (leaf(2, 3), data(2, 3, 2)))
def a_result_in_the_memory_of_another_value(x, c):
    v = x + 0
    w = v.reshape(-1)
    c.transpose(0, -1)[0].mul_(3)
    return v, w, (x * 2).t()


@case(lambda: (data(2, 3),))
def results_that_equal_an_operand(x):
    v = x * 2
    return v, v.repeat(1, 1), torch.cat([v]), v.flip(()), v.roll(0, 0), x[0, 0].flip(0), x.repeat(1, 1), x.flip(())


@case(lambda: (data(10),))
def memory_with_gaps_is_written(x):
    v = x.new_empty_strided((10,), (5,))
    v.copy_(x)
    w = torch.empty_strided((2, 5), (12, 2))
    w.copy_(x.view(2, 5))
    return v.mul_(2), w, w[1]


@case(lambda: (data(4, 3),))
def a_part_that_nobody_knows_to_be_one_is_written(x):
    first, second = x.unsafe_chunk(2)
    first.mul_(2)
    return second, *torch.unsafe_split(x * 3, 3)


@case(lambda: (middle(3, 4),))
def data_counts_its_writes_apart(x):
    v, w = x.data, x[0].data
    with torch.no_grad():
        x.add_(1)
    v.mul_(2)
    return v, w, x.detach(), x.view(-1).detach()


@case(lambda: (data(3, 4),))
def data_of_what_turns(x):
    v = x[None].data
    x.t_()
    return (v,)


@case(lambda: (middle(4, 3),))
def one_of_several_views_and_a_write_behind_it(x):
    part = x.chunk(2)[0].view(-1)
    with torch.no_grad():
        x.mul_(2)
    return (part.detach(),)


def run(call, fn, makers):
    (make,) = makers
    inputs = list(make())
    versions = [t._version for t in inputs]
    outputs = tensors(call(*inputs))
    seen = facts(inputs, outputs)
    versions = [t._version - v for t, v in zip(inputs, versions, strict=True)]
    written = [(0 if o.is_inference() else o._version, o._is_view()) for o in outputs]
    roots = [o for o in outputs if o.grad_fn is not None]
    values = [t.detach().clone() for t in (*inputs, *outputs)]
    grads = []
    leaves = [t for t in inputs if t.requires_grad and t.is_leaf]
    if roots and leaves:
        sums = sum(o.square().sum() * (i + 1) for i, o in enumerate(roots))
        grads = list(torch.autograd.grad(sums, leaves, allow_unused=True))
    with torch.no_grad():
        for number, t in enumerate(outputs):  # a write to one shows in what shares its memory
            if 0 not in t.stride() and not t.is_inference():
                t.add_(number + 1)
    return seen, versions, written, values, grads, [t.detach().clone() for t in (*inputs, *outputs)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_all_that_can_be_seen(name, backend):
    fn, makers = CASES[name]
    try:
        expected, error = run(fn, fn, makers), None
    except RuntimeError as raised:
        expected, error = None, raised
    compiled = tracework.compile(fn, backend=backend)
    if error is not None:
        with pytest.raises(type(error)):
            run(compiled, fn, makers)
        return
    found = run(compiled, fn, makers)
    for mine, theirs in zip(found[0], expected[0], strict=True):
        assert mine == theirs
    assert found[1] == expected[1]
    assert found[2] == expected[2]
    torch.testing.assert_close(found[3:], expected[3:])


@pytest.mark.parametrize("backend", BACKENDS)
def test_written_inputs_with_gaps_are_read_where_their_elements_lie(backend):
    """The gradient needs the old value, so that the graph gets a copy of it: one with the strides that it was compiled for."""

    def step(x, w):
        v = torch.lerp(w, x, 0.25)
        x.index_add_(0, torch.tensor([0]), v[:1])
        return torch.log_softmax(v, -1)

    found = []
    for call in step, tracework.compile(step, backend=backend):
        x, w = torch.arange(24.0).view(4, 6)[:, ::2], torch.ones(3, requires_grad=True)
        y = call(x, w)
        found.append((y, x, torch.autograd.grad((y * x).sum(), w)))
    torch.testing.assert_close(found[1], found[0])


def row_of_windows(x):
    y = x * 2
    y.unfold(0, 2, 1)[1].mul_(3)
    y.unfold(0, 2, 1)[0] = 7
    return (y,)


def overlapping_windows(x):
    y = x * 2
    y.unfold(0, 2, 1).add_(1)
    y.as_strided((2, 2), (1, 1)).copy_(x[:2, :2])
    return (y,)


def memory_behind_a_view(x):
    y = (x + 1).t().contiguous()
    z = y[1:]
    seen = (x + 2).diagonal().reshape(-1).as_strided((2,), (1,)), y.diagonal().as_strided((3,), (1,), 1) * 1
    z.as_strided((2, 2), (1, 2), 0).neg_()
    return *seen, y, z


def windows_that_are_given(x):
    x.add_(1)
    return x * 1, x.as_strided((4,), (1,)) * 1


def memory_of_another_dtype(x):
    y = x * 2
    return y.view(torch.int32).as_strided((3,), (1,)), y.to(torch.complex64).conj().as_strided((4,), (1,)), y


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "make", [lambda t: t.view(4, 3), lambda t: t.view(3, 4)[:, ::2], lambda t: t.unfold(0, 4, 2), lambda t: t.view(3, 4).t()]
)
@pytest.mark.parametrize(
    "function",
    [row_of_windows, overlapping_windows, memory_behind_a_view, windows_that_are_given, memory_of_another_dtype],
)
@pytest.mark.filterwarnings("ignore")
def test_elements_found_by_where_they_lie(function, make, dynamic):
    """Views that show one place several times, and memory that the tensor at hand shows only part of."""
    results = []
    for call in function, tracework.compile(function, dynamic=dynamic):
        x = make(torch.arange(12.0))
        results.append([*call(x), x])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["a_result_in_the_memory_of_another_value", "one_view_of_a_hidden_value", "views_of_one_value"])
def test_results_are_written_in_place_while_gradients_are_recorded(name, backend):
    fn, (make,) = CASES[name]
    found = []
    for call in fn, tracework.compile(fn, backend=backend):
        inputs = make()
        outputs = [o for o in call(*inputs) if 0 not in o.stride()]
        for number, o in enumerate(outputs):
            o.mul_(number + 2)
        sums = sum(o.square().sum() * (i + 1) for i, o in enumerate(outputs))
        found.append((outputs, torch.autograd.grad(sums, inputs[0])))
    torch.testing.assert_close(found[1], found[0])


def test_results_are_bases_of_their_views_and_pieces_that_autograd_guards():
    """The memory of a result may have been that of another value in other strides; a piece of several is refused writes."""
    whole, part = tracework.compile(lambda x: ((a := torch.nn.functional.gelu(x).T.clone()), a[1:]))(torch.randn(4, 3))
    assert not whole._is_view() and part._base is whole
    whole, part = tracework.compile(lambda rows: ((a := torch.tensor(rows)), a[1:]))([[float(i), i + 0.5] for i in range(9)])
    assert not whole._is_view() and part._base is whole
    piece = tracework.compile(lambda x: x.cumsum(0).unbind(0)[1])(torch.ones(4, 2, requires_grad=True))
    with pytest.raises(RuntimeError, match="output of a function that returns multiple views"):
        piece[0] = 5


def a_place(x):
    return (x.as_strided((2,), (1,), 1) * 2,)


def where_it_begins(x):
    return (x.as_strided((2,), (1,)) * 2,)


def where_a_view_begins(x):
    return (x[1:].as_strided((2,), (1,)) * 2,)


def where_what_is_written_begins(x):
    x.mul_(2)
    return x.as_strided((2,), (1,)) * 2, x * 1


def where_what_is_written_in_part_begins(x):
    rest = x[1:]
    rest.mul_(2)
    return rest.as_strided((2,), (1,)) * 2, x * 1


def a_place_before_what_is_written(x):
    x.mul_(2)
    return x.as_strided((2,), (1,), 1) * 2, x * 1


def copied_places(x):
    return torch.as_strided_copy(x, (2,), (1,), 4), torch.as_strided_copy(x, (2,), (1,))


def windows_that_are_written(x):
    x[1:].unfold(0, 2, 1 if len(x) < 4 else 2).mul_(2)
    return (x + 1,)


def scattered_places(x):
    return (torch.as_strided_scatter(x, torch.ones(2), (2,), (1,)),)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function",
    [
        copied_places,
        scattered_places,
        windows_that_are_written,
        a_place,
        where_it_begins,
        where_a_view_begins,
        where_what_is_written_begins,
        where_what_is_written_in_part_begins,
        a_place_before_what_is_written,
    ],
)
def test_inputs_that_begin_elsewhere_in_their_memory(function, backend):
    """No guard asks for the offset: a graph that reads the memory by places is right for those that it was compiled for alone."""
    places = [(3, 4), (7, 4), (9, 6), (2, 8), (20, 8), (8, 5), (0, 5)]
    for order in (places, places[::-1]):
        compiled = tracework.compile(function, backend=backend)
        for begin, size in order:
            mine, theirs = torch.arange(40.0), torch.arange(40.0)
            torch.testing.assert_close(compiled(mine[begin : begin + size]), function(theirs[begin : begin + size]))
            torch.testing.assert_close(mine, theirs)


def unread_pairs(x):
    torch.view_as_complex(x)
    return x * 2


def pairs_that_are_written(x):
    x.view(-1)[1:5].mul_(2)
    return torch.view_as_complex(x).mul_(2) + 1


def counted_pairs(x):
    return x.mul_(2) * torch.view_as_complex(x).numel()


def read_pairs(x):
    return torch.full_like(torch.view_as_complex(x), 2), torch.view_as_complex(x[:, :2].clone()) * x[0, 0]


def bits(x):
    return x.view(torch.float64) * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [unread_pairs, pairs_that_are_written, counted_pairs, read_pairs, bits])
def test_pairs_begin_at_even_places(function, backend):
    compiled = tracework.compile(function, backend=backend)
    for begin in (2, 4, 8):
        mine, theirs = torch.arange(20.0), torch.arange(20.0)
        torch.testing.assert_close(compiled(mine[begin:][:6].view(3, 2)), function(theirs[begin:][:6].view(3, 2)))
        torch.testing.assert_close(mine, theirs)
        with pytest.raises(RuntimeError, match="storage_offset"):
            function(theirs[begin + 1 :][:6].view(3, 2))
        with pytest.raises(RuntimeError, match="storage_offset"):
            compiled(mine[begin + 1 :][:6].view(3, 2))
        torch.testing.assert_close(mine, theirs)


def test_pairs_of_complex_numbers_begin_at_even_places_always(caplog):
    def function(x):
        return torch.view_as_complex(torch.view_as_real(x)) * 2

    compiled, memory = tracework.compile(function), torch.randn(9, dtype=torch.complex64)
    for begin in (2, 3):
        torch.testing.assert_close(compiled(memory[begin:][:4]), function(memory[begin:][:4]))
    assert not caplog.text


LAZY = {
    "conjugate": lambda x: (x * 2).conj(),
    "adjoint": lambda x: (x @ x).mH,
    "imaginary part of one": lambda x: (x * 2).conj().imag,
    "negative": lambda x: torch._neg_view(x.real * 2),
    "transform": lambda x: torch.fft.ihfft(x.real),
    "transform of real numbers": lambda x: torch.fft.ifft(x.real),
    "written": lambda x: (x * 2).conj().mul_(2),
    "resolved": lambda x: (x * 2).conj().resolve_conj(),
    "of an input": lambda x: x.conj()[1:],
    "twice": lambda x: (x * 2).conj().t().conj(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", LAZY)
def test_conjugates_and_negatives_that_eager_leaves_to_later(name, requires_grad, backend):
    outcomes = []
    for call in (tracework.compile(lambda x: LAZY[name](x), backend=backend), LAZY[name]):
        x = torch.randn(3, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)).requires_grad_(requires_grad)
        y = call(x)
        seen = [y.is_conj(), y.is_neg(), y._is_view(), y._version, y.stride(), y.detach().clone()]
        with torch.no_grad():
            y.mul_(1 + y.real)
        seen += [y.detach().clone(), x.detach().clone(), y._version]
        if requires_grad:
            seen.append(torch.autograd.grad(y.abs().sum(), x)[0])
        outcomes.append(seen)
    torch.testing.assert_close(*outcomes)


def read_alone(x):
    first, second = (x * 3).unsafe_chunk(2)
    return torch.unsafe_split(input=first.sin() + second.t().t(), split_size=1)[1] * 2


def given_back(x):
    first, second = (x * 3).unsafe_chunk(2)
    return first.t() if len(x) == 4 else second


def written_behind(x):
    y = x * 3
    first, second = y.unsafe_chunk(2)
    y.mul_(2)
    return first * second


def written_after_a_split(x):
    first, second = torch.unsafe_split_with_sizes(x * 3, [1, 3])
    first.mul_(2)
    return first + second


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [leaf, data])
@pytest.mark.parametrize("function", [read_alone, given_back, written_behind, written_after_a_split])
def test_parts_that_nobody_knows_to_be_some(function, make, backend, caplog):
    """Those that are read alone are compiled."""
    mine, theirs = make(4, 3), make(4, 3)
    found, expected = tracework.compile(function, backend=backend)(mine), function(theirs)
    torch.testing.assert_close(found, expected)
    assert (found._version, found._is_view()) == (expected._version, expected._is_view())
    if make is leaf:
        torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y, x in ((found, mine), (expected, theirs))))
    assert ("uncompiled" in caplog.text) == (function is not read_alone)


def turned_by_places(x):
    return x.as_strided_((2,), (2,), 3) + 1


def turned_by_a_function(x):
    y = x * 2
    torch.as_strided_(y, (3, 2), (1, 3))
    return torch.as_strided_(x, (2,), (2,)) + 1, y + 1


def turned_by_an_operator(x):
    return torch.ops.aten.as_strided_.default(x, (2,), (2,), 1) + 1


def turned_with_a_view_there(x):
    y = x * 1
    row = y[1]
    z = y.as_strided_((2,), (2,), 3)
    row.mul_(2)
    return z + 1, row, y._version


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [turned_by_places, turned_by_a_function, turned_by_an_operator, turned_with_a_view_there])
def test_a_tensor_that_as_strided_turns_in_place(function, backend):
    mine, theirs = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    torch.testing.assert_close(tracework.compile(function, backend=backend)(mine), function(theirs))
    torch.testing.assert_close(mine, theirs)
    assert mine.stride() == theirs.stride() and mine.storage_offset() == theirs.storage_offset()


def test_a_view_that_a_function_detaches_in_place():
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        tracework.compile(lambda x: torch.detach_(x) + 1)(torch.ones(4)[1:])


def test_a_row_that_is_copied_into_another_through_a_view_with_an_index_of_none():
    def function(x):
        x[1:, ::2] *= 2
        x[None, 0] = x[-1]
        return x

    mine, theirs = data(3, 4), data(3, 4)
    torch.testing.assert_close(tracework.compile(function)(mine), function(theirs))
    torch.testing.assert_close(mine, theirs)


def test_one_of_many_tensors_is_suddenly_another():
    """Once calls have passed a few times only what moved is compared; here 30 gradients move, then one is a parameter, or two are one."""

    def step(parameters, gradients):
        for p, g in zip(parameters, gradients):
            p.add_(g, alpha=-1.0)
        return parameters[0] * 2

    compiled = tracework.compile(step)
    mine, theirs = ([data(i + 1) for i in range(30)] for _ in range(2))
    for call in range(8):
        given = [data(i + 1) + call for i in range(30)]
        pairs = [(list(given), mine), ([g.clone() for g in given], theirs)]
        for gradients, parameters in pairs:
            if call == 6:
                gradients[9] = parameters[9]
            if call == 7:
                parameters[20] = gradients[20]
        results = [function(parameters, gradients) for (gradients, parameters), function in zip(pairs, (compiled, step))]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(pairs[0][0], pairs[1][0])


def test_a_leaf_that_the_graph_only_makes_is_compiled(caplog):
    fn, (make,) = CASES["made_here_and_given"]
    given = tracework.compile(fn)(*make())
    assert [t.requires_grad for t in given] == [False, True, True] and type(given[2]) is torch.nn.Parameter
    assert "uncompiled" not in caplog.text


def test_a_result_in_an_empty_tensor_is_compiled(caplog):
    def fn(x):
        made = torch.empty(0)
        torch.matmul(x, x.t(), out=made)
        return made

    x = data(4, 4)
    torch.testing.assert_close(tracework.compile(fn)(x), fn(x))
    assert "uncompiled" not in caplog.text


COPIES = {
    "view": lambda x: torch.view_copy(x, [12]),
    "alias": torch.alias_copy,
    "detach": torch.detach_copy,
    "squeeze": torch.squeeze_copy,
    "unsqueeze": lambda x: torch.unsqueeze_copy(x, 0),
    "select": lambda x: torch.select_copy(x, 0, 1),
    "slice": lambda x: torch.slice_copy(x, 0, 1, 3),
    "expand": lambda x: torch.expand_copy(x, [3, 4]),
    "as_strided": lambda x: torch.as_strided_copy(x, [2], [1]),
    "unfold": lambda x: torch.unfold_copy(x, 0, 1, 1),
    "split": lambda x: torch.split_copy(x, 1)[1],
    "unbind": lambda x: torch.unbind_copy(x)[0],
}


@pytest.mark.parametrize("function", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("asks", [False, True])
def test_copies_of_views_have_memory_of_their_own(function, asks):
    given = data(3, 4).requires_grad_(asks)
    before, found = given.detach().clone(), tracework.compile(function)(given)
    assert found is not given and found._is_view() == function(given)._is_view()
    torch.testing.assert_close(found, function(given))
    found.detach().zero_()
    torch.testing.assert_close(given.detach(), before)


def test_an_input_with_history_is_written_to_in_one_graph():
    """What its caller holds afterwards has the gradients of all that is computed from it, as in eager."""

    def fn(x, w):
        x.relu_()
        row = x[1]
        return x * w, row, row.exp()

    found = []
    for call in (fn, tracework.compile(fn, backend="aot_eager", fullgraph=True)):
        leaf = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
        x, w = leaf * 2, torch.linspace(1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
        results = call(x, w)
        assert results[1]._base is x
        x.retain_grad()
        places = [x, *results, leaf, w]
        seen = [
            g for r in (x, *results) for g in torch.autograd.grad(r.sin().sum(), places, retain_graph=True, allow_unused=True)
        ]
        sum(r.sum() for r in results).backward()
        found.append([x.detach(), *seen, x.grad, leaf.grad, w.grad])
    assert [g is None for g in found[0]] == [g is None for g in found[1]]
    torch.testing.assert_close(*found)
