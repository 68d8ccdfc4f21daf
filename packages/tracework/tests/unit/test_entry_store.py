"""What one process has compiled serves the next one without a capture: `reset()` and a cache of artifacts that forgot all stand for it."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.attention
import tracework
import tracework_capture as capture
from tracework import config
from tracework.entry_store import EntryStore, store_of
from tracework.options import build
from tracework_aotautograd import rest
from tracework_capture.hook import compile_frame, stored
from tracework_runtime.cache import memory


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.linear(x)) + 1
        return y, y.t(), x


def shared(x: Any, n: int = 2) -> Any:
    return (x * n).sum(0)


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the frames that are captured, with a cache folder of the test's own."""
    names: list[str] = []
    real = compile_frame.capture_frame

    def counted(given: Any, *rest: Any) -> Any:
        if given.code.co_name != "_audit_fork_safety":  # a hook of a library, which is looked at in vain from 3.12 on
            names.append(given.code.co_name)
        return real(given, *rest)

    monkeypatch.setattr(compile_frame, "capture_frame", counted)
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path))
    yield names
    next_process()


def next_process() -> None:
    tracework.reset()
    stored.PROCESS = str(time.perf_counter_ns())
    memory._cache.cache_clear()


def call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    with torch.no_grad():
        return tracework.compile(function, **options)(*args)


def test_a_model_is_not_captured_again(captures: list[str]) -> None:
    model, x = Model(), torch.rand(3, 4)
    expected = call(model, x)
    assert captures == ["call_Model"]
    next_process()
    found = call(model, x)
    assert captures == ["call_Model"]
    assert torch.equal(found[0], expected[0]) and found[1]._base is not None and found[2] is x
    assert found[1].data_ptr() == found[0].data_ptr()
    call(model, torch.rand(5, 4))  # another size is captured
    assert len(captures) == 2
    next_process()
    with capture.watched(lambda event, what: None):  # who wants to see it
        call(model, x)
    assert len(captures) == 3


class Trained(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.norm(self.linear(x))).sum()


def trained(compiled: bool, twice: bool = False, step: bool = True) -> list[Any]:
    """What two steps make of a model and of its optimizer. twice: with a penalty on gradients."""
    torch.manual_seed(0)
    model, x = Trained().double(), torch.rand(6, 4).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def update() -> None:
        optimizer.step()

    run, change = (tracework.compile(model), tracework.compile(update)) if compiled else (model, update)
    for _ in range(2):
        loss = run(x)
        if twice:
            loss = torch.autograd.grad(loss, [*model.parameters()][0], create_graph=True)[0].square().sum()
        if step:
            loss.backward()
            change()
        optimizer.zero_grad()
    return [*map(torch.clone, model.state_dict().values())]


def same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_training_and_its_optimizer(captures: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, twice = trained(False), trained(False, twice=True)
    same(trained(True, step=False)[:1], trained(False, step=False)[:1])
    next_process()
    del captures[:]
    same(trained(True), expected)  # the backward was not there
    assert set(captures) == {"update"}
    next_process()
    del captures[:]
    traces: list[Any] = []
    monkeypatch.setattr(rest, "trace_joint", lambda *given, real=rest.trace_joint: traces.append(real(*given)) or traces[-1])
    same(trained(True), expected)
    assert not captures and not traces
    next_process()
    same(trained(True, twice=True), twice)
    assert captures == ["update"] * len(captures) and traces
    shutil.rmtree(next(tmp_path.glob("v*/backward")))
    next_process()
    same(trained(True), expected)
    assert len(traces) == 2


def gradients(call: Callable[..., Any], weight: Any, size: int, twice: bool = False) -> list[Any]:
    y = call(torch.linspace(0, 1, size * 4).double().view(size, 4), weight)
    (first,) = torch.autograd.grad(y, weight, create_graph=twice)
    return [y, first, *(torch.autograd.grad(first.square().sum(), weight) if twice else ())]


def scaled(x: Any, weight: Any) -> Any:
    y = torch.tanh(x * weight)
    return (y * x.shape[0]).reshape(2, -1).square().mean()


def test_training_with_sizes_that_change(captures: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.full((4,), 0.1, dtype=torch.float64, requires_grad=True)
    steps = [(4, False), (6, False), (10, False), (8, True), (14, True)]
    expected = [gradients(scaled, weight, *step) for step in steps]
    traces: list[Any] = []
    monkeypatch.setattr(rest, "trace_joint", lambda *given, real=rest.trace_joint: traces.append(real(*given)) or traces[-1])
    # what is looked at -> frames captured and graphs traced again; without their backwards size 4 is traced, and the others are captured
    for twice, gone, found in ((False, False, (2, 0)), (False, False, (0, 0)), (True, False, (0, 1)), (False, True, (1, 1))):
        if gone:
            shutil.rmtree(next(tmp_path.glob("v*/backward")))
        next_process()
        del captures[:], traces[:]
        compiled = tracework.compile(scaled)
        for step, values in zip(steps, expected, strict=True):
            if twice or not step[1]:
                same(gradients(compiled, weight, *step), values)
        assert (len(captures), len(traces)) == found


def test_gradients_with_open_sizes_run_by_operators_under_other_settings(captures: list[str]) -> None:
    weight = torch.full((4,), 0.1, dtype=torch.float64, requires_grad=True)
    for size in (4, 6):
        gradients(tracework.compile(scaled), weight, size)
    next_process()
    x = torch.linspace(0, 1, 40).double().view(10, 4)
    y = tracework.compile(scaled)(x, weight)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.warns(tracework.UncompiledWarning, match="settings of torch have changed since gradients with open sizes"):
            found = torch.autograd.grad(y, weight)
    finally:
        torch.use_deterministic_algorithms(False)
    same(list(found), list(torch.autograd.grad(scaled(x, weight), weight)))


def test_symbols_are_kept(captures: list[str]) -> None:
    for size in (3, 5):
        assert torch.equal(call(shared, torch.ones(size)), torch.tensor(2.0 * size))
    next_process()
    assert torch.equal(call(shared, torch.ones(11)), torch.tensor(22.0))
    assert len(captures) == 2  # size 3 by itself, then a size that changes


@pytest.mark.parametrize("kind", ["artifact", "entry"])
def test_what_is_gone_is_made_again(captures: list[str], tmp_path: Path, kind: str) -> None:
    x = torch.rand(3)
    call(shared, x)
    for file in next(tmp_path.glob("v*")).joinpath(kind).rglob("*.*"):
        file.write_bytes(file.read_bytes()[:-1])  # damaged
    next_process()
    assert torch.equal(call(shared, x), shared(x)) and len(captures) == 2


class Recurrent(torch.nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.recurrent, self.out = kind(4, 4, batch_first=True), torch.nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.out(torch.tanh(self.recurrent(x.view(-1, 3, 4))[0]))


class Experts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Any) -> Any:
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = torch.where(x[:, 0].sin() > 0 if number else x[:, 0].sin() <= 0)[0]
            out = out.index_add(0, rows, expert(x[rows]) * 2)
        return out


def masked(x: Any) -> Any:
    return (x[x.sin() > 0.5] * 2).cumsum(0) + x.sum().item()


def labelled(x: Any) -> Any:
    labels, sizes = torch.tensor([[1, 2], [3, 1]]), (torch.tensor([3, 3]), torch.tensor([2, 2]))
    return torch.nn.functional.ctc_loss(
        (x * 2).view(3, -1, 4).log_softmax(-1), labels[: len(x) // 3], *(s[: len(x) // 3] for s in sizes)
    )


IN_PIECES: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "a GRU": lambda: Recurrent(torch.nn.GRU),
    "an RNN": lambda: Recurrent(torch.nn.RNN),
    "experts": Experts,
    "a mask": lambda: masked,
    "labels": lambda: labelled,
}


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("make", IN_PIECES.values(), ids=IN_PIECES)
def test_graphs_in_pieces(captures: list[str], make: Callable[[], Callable[[Any], Any]], trained: bool) -> None:
    for first, count in ((0.0, 1), (5.0, 0), (-2.0, 0)):  # of each half of the experts others, or none
        next_process()
        del captures[:]
        results = []
        for compiled in (True, False):
            function, x = make(), torch.linspace(first, first + 1.5, 24).view(6, 4).requires_grad_(trained)
            with torch.set_grad_enabled(trained):
                y = tracework.compile(function)(x) if compiled else function(x)
            results.append([y.detach()])
            if trained:
                y.square().sum().backward()
                results[-1] += [x.grad, *(p.grad for p in function.parameters())] if hasattr(function, "parameters") else [x.grad]
        same(*results)
        assert len(captures) == count


def products(a: Any, b: Any) -> Any:
    return (a * b).sin() * b


OVERLAPS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "views": lambda w: ((w * 1)[:6], (w * 1)[2:]),
    "views of one": lambda w: (lambda v: (v[:6], v[2:]))(w * 1),
    "views of a leaf": lambda w: (w[:6], w[2:]),
    "chunks": lambda w: (w * 1).chunk(2),
}


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("parts", OVERLAPS.values(), ids=OVERLAPS)
def test_training_with_inputs_of_one_memory(captures: list[str], parts: Callable[[Any], tuple[Any, Any]], twice: bool) -> None:
    for count in (1, 0):
        next_process()
        del captures[:]
        results = []
        for function in (tracework.compile(products), products):
            w = torch.linspace(0, 1, 8).double().requires_grad_()
            y = function(*parts(w))
            (first,) = torch.autograd.grad(y.sum(), w, create_graph=twice)
            results.append([y, first, *(torch.autograd.grad(first.square().sum(), w) if twice else ())])
        same(*results)
        assert len(captures) == count


KERNELS = [torch.nn.attention.SDPBackend.MATH]


def attending(q: Any) -> Any:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        first = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    with torch.nn.attention.sdpa_kernel(KERNELS):
        return torch.nn.functional.scaled_dot_product_attention(q, q, first) * 2


def test_which_kernels_attention_may_take(captures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.linspace(-1, 1, 64).view(1, 1, 8, 8)
    for count in (1, 0):
        next_process()
        del captures[:]
        same([call(attending, q)], [attending(q)])
        assert len(captures) == count
    monkeypatch.setitem(globals(), "KERNELS", [torch.nn.attention.SDPBackend.FLASH_ATTENTION])
    next_process()
    same([call(attending, q)], [attending(q)])
    assert captures


def selected(x: Any, weight: Any) -> Any:
    y = torch.tanh(x * weight)
    z = y[x > 0.3]
    return (z * z.shape[0]).square().sum() + y.sum()


def taken(x: Any, weight: Any) -> Any:
    return (x[torch.nonzero(x[:, 0] > 0.3)[:, 0]] * weight).tanh().mean()


def repeated(x: Any, weight: Any) -> Any:
    return (x * weight).repeat_interleave((x[:, 0] * 4).long(), dim=0).tanh().sum()


@pytest.mark.parametrize("function", [selected, taken, repeated])
def test_training_with_sizes_that_depend_on_data(captures: list[str], function: Any) -> None:
    """Gradients of gradients are of a graph that is traced again, with any number for such a size."""
    weight = torch.full((4,), 0.1, dtype=torch.float64, requires_grad=True)
    for twice, count in ((False, 1), (False, 0), (True, 0)):
        next_process()
        del captures[:]
        compiled = tracework.compile(function)
        for data in (torch.linspace(0, 1, 16), torch.linspace(1, 0, 16) * 2):
            results = []
            for run in (compiled, function):
                y = run(data.double().view(4, 4), weight)
                (first,) = torch.autograd.grad(y, weight, create_graph=twice)
                results.append([y, first, *(torch.autograd.grad(first.square().sum(), weight) if twice else ())])
            same(*results)
        assert len(captures) == count


def test_other_options_are_other_entries(captures: list[str]) -> None:
    x = torch.rand(3)
    for number, options in enumerate(({}, {"numerics": "strict"}, {"cache": False}, {"cache": False})):
        next_process()
        call(shared, x, options=options)
        assert len(captures) == number + 1


def test_where_nothing_is_kept() -> None:
    assert isinstance(store_of(build(None, None, config.current()), print, print), EntryStore)
    for given in (
        {"cache": False},
        {"pre_grad_custom_pass": print},
        {"cudagraph_policy": bool},
        {"dump_dir": "x"},
        {"kernel_ranges": True},
    ):
        assert store_of(build(None, given, config.current()), print, print) is None


def test_what_the_log_says(captures: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("TRACEWORK_LOGS", "cache")
    said: list[str] = []
    monkeypatch.setattr(stored.log, "handle", lambda record: said.append(record.getMessage()))
    before = stored.log.level, stored.log.propagate
    for text, x, n in (("is stored", 3, 2), ("a stored entry serves", 3, 2), ("does not serve: x has size", 5, 2)):
        next_process()
        del said[:]
        call(shared, torch.ones(x), n)
        assert said[0].startswith("shared (") and text in said[0]
    stored.log.level, stored.log.propagate = before


def test_whether_an_argument_dies_is_found_as_without_a_store():
    """What looks for a stored entry holds the arguments no more when the frame is captured."""

    def f(x):
        x = x.sin()
        open("/dev/null").close()
        return x.cos()

    call = tracework.compile(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tracework.UncompiledWarning)
        assert torch.equal(call(torch.zeros(3)), torch.ones(3))
