"""Functions of torch that need more than a node of their own: one graph, eager's values, gradients and layouts."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
import tracework
import tracework_capture
from training import BACKENDS, check, same

ISTFT_CASES = [
    {"n_fft": 16},
    {"n_fft": 16, "hop_length": 3, "length": 50},
    {"n_fft": 9, "hop_length": 2, "win_length": 8, "window": torch.hamming_window(8), "normalized": True},
    {"n_fft": 16, "window": torch.hann_window(16), "onesided": False},
    {"n_fft": 16, "window": torch.ones(16), "center": False},
    {"n_fft": 9, "window": torch.hann_window(9), "onesided": False, "return_complex": True, "center": True},
]


def spectrum(options, shape):
    torch.manual_seed(0)
    known = ("n_fft", "hop_length", "win_length", "window", "normalized", "onesided")
    return torch.stft(torch.randn(shape), return_complex=True, **{k: v for k, v in options.items() if k in known})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", ISTFT_CASES, ids=str)
def test_istft(options, backend):
    for shape in (64, (2, 64)):
        given = spectrum(options, shape).requires_grad_()
        check(lambda x: torch.view_as_real(y) if (y := torch.istft(x, **options)).is_complex() else y, given, backend=backend)
        check(lambda x: x.istft(**options).abs(), given, backend=backend)


@pytest.mark.parametrize(
    "options",
    [
        {"n_fft": 16, "window": torch.zeros(16)},
        {"n_fft": 16, "hop_length": 17},
        {"n_fft": 15},
        {"n_fft": 16, "window": torch.ones(3)},
    ],
    ids=str,
)
def test_what_istft_refuses(options):
    given = spectrum({"n_fft": 16}, 64)
    with pytest.raises(RuntimeError) as expected:
        torch.istft(given, **options)
    with pytest.raises(RuntimeError) as found:
        tracework.compile(lambda x: torch.istft(x, **options), backend="eager")(given)
    assert str(found.value) == str(expected.value)


def test_mode():
    check(lambda x: x.mode(1).values + torch.mode(x, 0).values[:2], torch.tensor([[1.0, 2.0, 1.0], [3.0, 3.0, 2.0]]))


@pytest.mark.parametrize("distance", [torch.nn.PairwiseDistance(), lambda a, b: (a - b).norm(dim=-1), None])
def test_triplet_margin_with_distance_loss(distance):
    given = [torch.randn(4, 5, requires_grad=True) for _ in range(3)]
    check(lambda *x: F.triplet_margin_with_distance_loss(*x, distance_function=distance, swap=True), *given)


def test_an_object_as_an_argument_breaks():
    reads_it = torch.nn.PairwiseDistance()
    with pytest.raises(tracework_capture.Unsupported, match="not_a_graph_argument"):
        tracework.compile(lambda x: torch.add(x, reads_it), backend="eager", fullgraph=True)(torch.ones(2))


def versions(x):
    before = x._version
    x.add_(1)
    y = x * 2
    made = y._version
    y.add_(1)
    part = y[1:]
    part.mul_(2)
    return x * y._version, x._version - before, made, part._version, torch.zeros(3)._version


@pytest.mark.parametrize("backend", BACKENDS)
def test_versions(backend):
    compiled = tracework.compile(versions, backend=backend, fullgraph=True)
    found, expected = torch.arange(3.0), torch.arange(3.0)
    for _ in range(4):
        same(compiled(found), versions(expected))
        same(found, expected)


MADE = {
    "zeros": lambda x: torch.zeros(3),
    "eye": lambda x: torch.eye(2),
    "tensor": lambda x: torch.tensor(3),
    "normal": lambda x: torch.normal(0.0, 1.0, (3,)),
    "normal of tensors": lambda x: torch.normal(x.detach(), 1.0),
    "randperm": lambda x: torch.randperm(4),
    "linspace": lambda x: torch.linspace(0, 1, 4),
    "logspace": lambda x: torch.logspace(0, 1, 4),
    "hann_window": lambda x: torch.hann_window(4),
    "gaussian window": lambda x: torch.signal.windows.gaussian(5, std=2),
    "stft": lambda x: torch.stft(x.repeat(1, 8)[0], 4, window=torch.ones(4), return_complex=True),
    "quantile": lambda x: torch.quantile(x, 0.5, dim=0),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0]), torch.tensor(2.0)),
    "one_hot": lambda x: F.one_hot(x.long() % 3, 3),
    "one_hot of nothing": lambda x: F.one_hot(x[:0].long(), 3),
    "matrix_rank": lambda x: torch.linalg.matrix_rank(x),
    "matrix_rank with a tolerance": lambda x: torch.linalg.matrix_rank(x, atol=torch.tensor(0.1)),
    "combinations": lambda x: torch.combinations(x[:, 0]),
    "empty, through a view": lambda x: x.new_empty(4, 5).t().copy_(x.new_ones(5, 4)),
    "ones, through a view": lambda x: ((made := torch.ones_like(x))[0].mul_(2), made),
    "empty, filled": lambda x: ((made := torch.empty_like(x).fill_(0)), made.detach()),
    "view of zeros": lambda x: torch.zeros(3).view(3, 1),
    "view": lambda x: (x * 2).view(-1),
    "view in place": lambda x: (x * 2).transpose_(0, 1),
    "linear": lambda x: F.linear(x[None] * 2, torch.eye(2), torch.ones(2)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "alias": lambda x: torch.ops.aten.alias(x * 2),
    "detached view": lambda x: (x * 2).view(-1).detach(),
    "row": lambda x: (x * 2)[1],
    "view that others read": lambda x: ((made := (x * 2).flatten()), made.sin()),
    "view and what it shows": lambda x: ((made := x * 2).view(-1).mul_(2), made),
}
"""Functions of a matrix with two columns."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_versions_of_what_is_made_and_views(requires_grad, backend):
    """Torch's functions count no writes of their own, and give no views of their own; what is a view for the program is one."""
    x = torch.arange(1.0, 7.0).view(3, 2).clone().requires_grad_(requires_grad)

    def seen(function):
        found = function(x)
        return [(t._version, t._is_view(), t.stride()) for t in (found if isinstance(found, tuple) else (found,))]

    differ = {}
    for name, function in MADE.items():
        expected, actual = seen(function), seen(tracework.compile(function, backend=backend, fullgraph=True))
        if actual != expected:
            differ[name] = expected, actual
    assert not differ


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_with_respect_to_a_result_that_is_a_view(backend):
    def fn(x):
        part = (x * 2).flatten()
        return part, part.exp(), part.tanh().view(2, -1)

    def observed(function):
        x = torch.arange(4.0).view(2, 2).requires_grad_()
        part, grown, turned = function(x)
        (first,) = torch.autograd.grad(grown.sum(), part, create_graph=True)
        (second,) = torch.autograd.grad(turned.sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.sum(), part, retain_graph=True), second, *torch.autograd.grad(second.sum(), x)

    same(observed(tracework.compile(fn, backend=backend, fullgraph=True)), observed(fn))


def test_versions_beside_an_operator_of_the_program():
    with torch.library._scoped_library("versions_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        fn = lambda x: (torch.ops.versions_test.twice(x), torch.zeros(3), torch.hann_window(4), (x + 1).view(-1))
        found = tracework.compile(fn, backend="aot_eager", fullgraph=True)(torch.ones(2, 2))
        assert [(t._version, t._is_view()) for t in found] == [(t._version, t._is_view()) for t in fn(torch.ones(2, 2))]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_that_writes_to_out_of_a_plain_tensor_alone(backend):
    """Torch's linalg.matrix_rank writes to no out= that is of another class, as tensors are while a graph is traced."""

    def fn(x, out):
        return torch.linalg.matrix_rank(x, out=out)

    x, found, expected = torch.randn(2, 5, 5), torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    same(tracework.compile(fn, backend=backend)(x, found), fn(x, expected))
    same(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_result_of_the_library_that_does_not_begin_where_its_memory_does(backend):
    def fn(x, y):
        return torch.as_strided_scatter(x, y, (2, 2), (1, 2), 0)[0]

    x, y = torch.arange(12.0)[3:].view(3, 3), torch.full((2, 2), 20.0)
    same(tracework.compile(fn, backend=backend)(x, y), fn(x, y))


def test_an_operator_that_uses_autograd_inside():
    """Run by aot_eager as eager runs it, with a history inside where nothing outside has one."""
    with torch.library._scoped_library("versions_test", "DEF") as library:
        library.define("slope(Tensor x) -> Tensor")

        def slope(x):
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                return torch.autograd.grad((leaf**3).view(-1).sum(), leaf)[0]

        library.impl("slope", slope, "CPU")
        library.impl("slope", torch.empty_like, "Meta")
        x = torch.arange(3.0)
        fn = lambda x: torch.ops.versions_test.slope(x) + torch.zeros(3)
        same(tracework.compile(fn, backend="aot_eager")(x), fn(x))


def test_versions_of_tensors_that_share_memory():
    def fn(x, y):
        x.add_(1)
        z = y[1:]
        return y._version, z._version, x._version

    found, expected = torch.zeros(3), torch.zeros(3)
    same(tracework.compile(fn, backend="eager")(found, found.view(-1)), fn(expected, expected.view(-1)))


def goes_on_as_another(x):
    y = torch.empty(0)
    y.set_(x * 2)
    z = x + 1
    w = torch.zeros(2)
    w.set_(z[1:])
    w.add_(1)
    again = y.set_(w)
    over_input = torch.empty(0)
    over_input.set_(x).mul_(3)
    return y + 1, y.shape, z, w, again is y, again, over_input


@pytest.mark.parametrize("backend", BACKENDS)
def test_set(backend):
    compiled = tracework.compile(goes_on_as_another, backend=backend, fullgraph=True)
    found, expected = torch.arange(3.0), torch.arange(3.0)
    same(compiled(found), goes_on_as_another(expected))
    same(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_complex_tensors(backend):
    module = torch.nn.Linear(3, 4, dtype=torch.complex64)
    x = torch.randn(2, 3, dtype=torch.complex64, requires_grad=True)
    check(lambda x: (module(x) * 2 + x.sum()).abs(), x, backend=backend, module=module)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_ctc_loss_with_lengths_in_tensors(reduction, backend):
    torch.manual_seed(0)
    targets, lengths = torch.randint(1, 5, (2, 4)), (torch.tensor([10, 8]), torch.tensor([4, 2]))

    def fn(x):
        return F.ctc_loss((x * 2).log_softmax(-1), targets, *lengths, reduction=reduction, zero_infinity=True).sqrt() + 1

    check(fn, torch.randn(10, 2, 5, requires_grad=True), backend=backend)
    module = torch.nn.CTCLoss(reduction=reduction)
    check(lambda x: module(x.log_softmax(-1), targets[0], lengths[0][0], lengths[1][0]), torch.randn(10, 5), backend=backend)


class Tagger(torch.nn.Module):
    def __init__(self, kind, batch_first=True, **options):
        super().__init__()
        self.embedding, self.layer = torch.nn.Embedding(9, 4), kind(4, 6, batch_first=batch_first, **options)
        self.out = torch.nn.Linear(6, 3)

    def forward(self, ids):
        found, state = self.layer(self.embedding(ids))
        return self.out(found.unflatten(-1, (-1, 6)).sum(-2)).log_softmax(-1), state


TWO_LAYERS = {"num_layers": 2, "dropout": 0.3, "batch_first": False}
RECURRENT_CASES = [
    (torch.nn.LSTM, TWO_LAYERS, False, "aot_eager"),
    (torch.nn.LSTM, {"bidirectional": True}, True, "inductor"),
    (torch.nn.GRU, {}, True, "aot_eager"),
    (torch.nn.GRU, TWO_LAYERS, False, "inductor"),
    (torch.nn.RNN, {"bidirectional": True}, False, "aot_eager"),
]


@pytest.mark.parametrize(("kind", "options", "autocast", "backend"), RECURRENT_CASES, ids=str)
def test_recurrent_layers_take_sequences_of_any_length_in_two_graphs(kind, options, autocast, backend):
    if kind is torch.nn.LSTM and autocast and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("eager has no bfloat16 LSTM on this processor (oneDNN raises)")
    torch.manual_seed(0)
    module, graphs = Tagger(kind, **options), []
    compiled = tracework.compile(module, backend=backend, fullgraph=True)
    alone = tracework_capture.optimize(lambda gm, _: graphs.append(gm) or gm.forward, fullgraph=True)(module)

    def run(called, ids):
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            found, state = called(ids)
        return found, state, torch.autograd.grad(found.exp().sum(), module.parameters())

    for shape in ((3, 3), (4, 5), (5, 6), (6, 4)):
        ids = torch.randint(9, shape)
        expected, found = run(module, ids), run(compiled, ids)
        tolerance = {"rtol": 0.03, "atol": 0.03} if autocast else {}  # bfloat16 holds 8 bits, and eager rounds after each step
        torch.testing.assert_close(found, expected, check_stride=True, **tolerance)
        run(alone, ids)
    assert len(graphs) == 2


LAYERS = [
    (torch.nn.LSTM, {}, torch.float32),
    (torch.nn.LSTM, {"num_layers": 2, "batch_first": True}, torch.float32),
    (torch.nn.LSTM, {"proj_size": 3}, torch.float32),
    (torch.nn.LSTM, {"bidirectional": True}, torch.float64),
    (torch.nn.GRU, {"bias": False}, torch.float32),
    (torch.nn.GRU, TWO_LAYERS | {"bidirectional": True, "batch_first": True}, torch.bfloat16),
    (torch.nn.RNN, {}, torch.float64),
    (torch.nn.RNN, {"nonlinearity": "relu", "num_layers": 2}, torch.float32),
]


@pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(("kind", "options", "dtype"), LAYERS, ids=str)
def test_what_is_compiled_of_a_recurrent_layer_does_not_grow_with_its_length(kind, options, dtype, train):
    """A layer that is one operator of the library is part of the graph, another one is called as it is: with eager's bits."""
    torch.manual_seed(0)
    layer, kernels = kind(5, 6, **options).to(dtype), []
    for steps in (3, 40):
        counts = Counter()

        def observe(stage, product, counts=counts):
            counts[stage] += len(product.kernels) if stage == "inductor" else 1

        compiled = tracework.compile(layer, fullgraph=True, dynamic=False, observe=observe)
        x = torch.randn((2, steps, 5) if options.get("batch_first") else (steps, 2, 5), dtype=dtype)

        def run(called, x=x):
            torch.manual_seed(1)
            with torch.set_grad_enabled(train):
                out, state = called(x)
                gradients = torch.autograd.grad(out.float().square().sum(), layer.parameters()) if train else ()
            return out, state, gradients

        expected, found = run(layer), run(compiled)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, check_stride=True)
        assert counts["captured"] == 1
        kernels.append(counts["inductor"])
    assert kernels[0] == kernels[1]


def test_ctc_loss_refuses_lengths_as_in_eager():
    given = torch.randn(10, 2, 5).log_softmax(-1), torch.ones(2, 4, dtype=torch.long)
    wrong = torch.tensor([11, 8]), torch.tensor([4, 2])
    with pytest.raises(RuntimeError) as expected:
        F.ctc_loss(*given, *wrong)
    with pytest.raises(RuntimeError) as found:
        tracework.compile(F.ctc_loss, backend="aot_eager")(*given, *wrong)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("handled", [False, True])
def test_what_comes_before_a_ctc_loss_that_raises(handled):
    scores, targets = torch.randn(10, 2, 5).log_softmax(-1), torch.ones(2, 4, dtype=torch.long)

    def fn(x, lengths, seen):
        seen.append(x.mul_(2).sum())
        try:
            return F.ctc_loss(scores, targets, lengths, torch.tensor([4, 2]))
        except RuntimeError:
            seen.append(x.add_(1).sum())
            if not handled:
                raise
            return x

    def run(call, longest):
        x, seen = torch.ones(3), []
        try:
            seen.append(call(x, torch.tensor([longest, 8]), seen))
        except RuntimeError as error:
            return str(error), [x, *seen]
        return "", [x, *seen]

    call = tracework.compile(fn, backend="aot_eager")
    for longest in (10, 11):
        (error, values), (expected_error, expected) = run(call, longest), run(fn, longest)
        assert error == expected_error
        torch.testing.assert_close(values, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_types_by_class(backend):
    check(
        lambda x: (x.type(torch.DoubleTensor) * 2, x.type("torch.IntTensor"), x.type(torch.FloatTensor)),
        torch.randn(3),
        backend=backend,
    )


def gathered(weight, indices):
    return torch.gather(weight, 0, indices[:, None].expand(3, 3), sparse_grad=True)


SPARSE_GRADIENTS = [
    lambda weight, indices: F.embedding(indices, weight, sparse=True) * 2,
    lambda weight, indices: F.embedding_bag(indices, weight, torch.tensor([0, 2]), mode="sum", sparse=True),
    gathered,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", SPARSE_GRADIENTS)
def test_sparse_gradients(fn, backend):
    indices, found = torch.tensor([0, 1, 1]), []
    for each in (fn, tracework.compile(fn, backend=backend, fullgraph=True)):
        weight = torch.arange(15.0).view(5, 3).requires_grad_()
        each(weight, indices).sum().backward()
        found.append((weight.grad.layout, weight.grad.to_dense()))
    assert found[0][0] == found[1][0] == torch.sparse_coo
    same(found[1][1], found[0][1])
    with torch.no_grad():
        same(each(weight, indices), fn(weight, indices))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", SPARSE_GRADIENTS)
def test_sparse_gradients_of_a_backward_inside(fn, backend, caplog):
    def step(weight, indices):
        fn(weight, indices).sum().backward()
        return weight.grad

    indices, found = torch.tensor([0, 1, 1]), []
    for each in (step, tracework.compile(step, backend=backend)):
        weight = torch.arange(15.0).view(5, 3).requires_grad_()
        found.append((each(weight, indices).layout, weight.grad.to_dense()))
    assert found[0][0] == found[1][0] == torch.sparse_coo
    same(found[1][1], found[0][1])
    assert "please report" not in caplog.text  # the graph would have raised, and the frame been run again


MADE_SPARSE = [
    lambda x: torch.sparse_coo_tensor(torch.tensor([[0, 1], [2, 0]]), x[0, :2] * 2, (2, 3)).to_dense() * 2,
    lambda x: torch.sparse_coo_tensor(torch.tensor([[0, 0], [2, 2]]), x[0, :2] * 2, (2, 3)).coalesce().values() + 1,
    lambda x: torch.zeros_like(x, layout=torch.sparse_coo).to_dense() + x,
    lambda x: (x.new_zeros((2, 3), layout=torch.sparse_coo).is_sparse, x + 1),
    lambda x: torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), x[0, :2] * 2, (2, 2)).to_dense() + 1,
    lambda x: x.relu().to_sparse_csr() @ x.T,
]


@pytest.mark.parametrize("fn", MADE_SPARSE)
def test_sparse_tensors_that_the_program_makes(fn):
    x = torch.arange(6.0).view(2, 3)
    same(tracework.compile(fn, backend="aot_eager")(x), fn(x))


def test_a_nested_tensor_without_sizes_is_left_to_eager(caplog):
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    found = tracework.compile(lambda x: x * 2, backend="eager")(nested)
    assert [t.tolist() for t in found.unbind()] == [(t * 2).tolist() for t in nested.unbind()]
    assert "please report" not in caplog.text


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_softmax_of_nothing_is_a_new_tensor(function):
    given = torch.empty(0, 4)
    found = tracework.compile(lambda x: function(x, 0))(given)
    assert found is not given and found.shape == given.shape
    asking = torch.empty(0, 4, requires_grad=True)
    assert not tracework.compile(lambda x: function(x, 0))(asking)._is_view()


@pytest.mark.parametrize("backend", BACKENDS)
def test_strides_with_quotients_of_a_size(backend):
    """The batch of the reshaped covariance is 16 // n**2, and its strides divide by that: 0 for the sizes that strides are compared at."""

    def log_probability(mean):
        return torch.distributions.MultivariateNormal(mean, torch.eye(4)).log_prob(mean * 2)

    mean = torch.arange(4.0)
    found = tracework.compile(log_probability, backend=backend, dynamic=True, fullgraph=True)(mean)
    same(found, log_probability(mean))


@pytest.mark.parametrize("backend", BACKENDS)
def test_linear_cross_entropy_in_chunks(backend):
    options = getattr(torch.nn, "LinearCrossEntropyOptions", None)
    if options is None:
        pytest.skip("this torch has no chunked linear_cross_entropy")
    chosen, target = options(), torch.tensor([0, 1, 2, 3, 4, 0])
    given = [torch.randn(6, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)]
    check(lambda x, weight: F.linear_cross_entropy(x, weight, target, options=chosen), *given, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_positions_of_another_number_of_dims(backend):
    def fn(x, positions):
        return x.gather(-1, positions).var(-1, keepdim=True)

    given = torch.ones(2), torch.zeros(0, 3, dtype=torch.int64)
    same(tracework.compile(fn, backend=backend)(*given), fn(*given))


INTO = {
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "mean": lambda x, out: torch.mean(x, 1, out=out),
    "prod": lambda x, out: torch.prod(x, 1, out=out),
    "var": lambda x, out: torch.var(x, 1, out=out),
    "logsumexp": lambda x, out: torch.logsumexp(x, 1, out=out),
    "cumsum": lambda x, out: torch.cumsum(x[:, 0], 0, out=out),
    "sum of a dtype": lambda x, out: torch.sum(x, 1, dtype=torch.float32, out=out),
    "abs": lambda x, out: torch.abs(x[:, 0], out=out),
    "clamp_min": lambda x, out: torch.clamp_min(x[:, 0], 0, out=out),
    "lerp with a number": lambda x, out: torch.lerp(x[:, 0], x[:, 1], 0.5, out=out),
    "lerp with tensors": lambda x, out: torch.lerp(x[:, 0], x[:, 1], x[:, 2], out=out),
    "largest with its place": lambda x, out: torch.max(x, 1, out=(out, torch.empty(len(x), dtype=torch.int64)))[0],
    "maximum": lambda x, out: torch.maximum(x[:, 0], x[:, 1], out=out),
    "add": lambda x, out: torch.add(x[:, 0], x[:, 1], out=out),
    "less": lambda x, out: torch.lt(x[:, 0], x[:, 1], out=out),
    "div": lambda x, out: torch.div(x[:, 0], 3, out=out),
    "cat": lambda x, out: torch.cat([x[:, 0], x[:0, 1]], out=out),
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.int32, torch.bool)


@pytest.mark.parametrize("name", INTO)
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.int32])
def test_results_written_to_tensors_of_other_dtypes(name, given):
    """Some operators cast their result, some compute in the dtype of the tensor that they write to, some refuse it."""
    x = (torch.randn(7, 50, generator=torch.Generator().manual_seed(1)) * 20).to(given)

    def outcome(function, dtype):
        out = torch.zeros(7, dtype=dtype)
        try:
            assert function(x, out) is out
        except (RuntimeError, TypeError, NotImplementedError) as error:
            return type(error), str(error)
        return out

    compiled = tracework.compile(lambda x, out: INTO[name](x, out), backend="aot_eager")
    for dtype in DTYPES:
        mine, theirs = outcome(compiled, dtype), outcome(INTO[name], dtype)
        assert type(mine) is type(theirs), (dtype, mine, theirs)
        if isinstance(mine, tuple):
            assert mine == theirs
        else:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile], ids=lambda f: f.__name__)
def test_quantiles_out_of_range_are_refused(function, backend):
    x = torch.randn(4, 5)
    compiled = tracework.compile(lambda q: function(x, q, dim=0), backend=backend)
    for values in ([0.0, 1.0], [0.5, -0.1], [1.05, 0.5], [float("nan"), 0.5], [-1e-9, 0.5], [0.25, 0.75]):
        q = torch.tensor(values)
        if all(0 <= value <= 1 for value in values):
            torch.testing.assert_close(compiled(q), function(x, q, dim=0), rtol=0, atol=1e-6)
        else:
            with pytest.raises(RuntimeError, match="must be in the range"):
                compiled(q)
