"""Backends on engines: values, gradients, sizes that change, mutation, errors, what is told; ONNX Runtime, and a stub of TensorRT."""

import importlib
import importlib.machinery
import sys
import warnings

import pytest
import torch
import tracework

pytest.importorskip("onnx", reason="the extra tracework[onnxrt] is not installed")
pytest.importorskip("onnxruntime", reason="the extra tracework[onnxrt] is not installed")


class Programs:
    """An observer of what was made for engines."""

    def __init__(self):
        self.made = []

    def __call__(self, stage, product):
        if stage == "onnx":
            self.made.append(product)


def block():
    torch.manual_seed(0)
    layers = (
        torch.nn.Embedding(20, 8),
        torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        torch.nn.Linear(8, 3),
    )
    return torch.nn.Sequential(*layers)


def image_net():
    torch.manual_seed(0)
    first = torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1)
    return torch.nn.Sequential(*first, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2))


MODELS = {
    "block": (block, lambda n: torch.randint(0, 20, (n, n + 3))),
    "image_net": (image_net, lambda n: torch.randn(n, 3, 16, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_two_programs_serve_all_sizes(name):
    make, inputs = MODELS[name]
    net, made = make().eval(), Programs()
    compiled = tracework.compile(net, backend="onnxrt", observe=made)
    with torch.no_grad():
        for n in (2, 3, 5, 9):
            x = inputs(n)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    assert [(p.graph.role, len(p.parts), len(p.reasons)) for p in made.made] == [("inference", 1, 0)] * 2


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_runs_on_the_engine(name):
    make, inputs = MODELS[name]
    net, made = make().train(), Programs()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    compiled = tracework.compile(net, backend="onnxrt", observe=made)
    for n in (2, 3, 5):
        x, found = inputs(n), []
        for f in (net, compiled):
            net.load_state_dict(state)
            out = f(x)
            gradients = torch.autograd.grad(out.square().mean(), list(net.parameters()))
            found.append((out, gradients, {k: v.clone() for k, v in net.state_dict().items()}))  # batch norm's statistics as well
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    assert {p.graph.role for p in made.made} == {"forward", "backward"} and not any(p.reasons for p in made.made)
    assert len(made.made) == 4


def test_random_numbers_are_eagers_and_told():
    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 2), torch.nn.Dropout(0.3)).train()
    made = Programs()
    compiled = tracework.compile(net, backend="onnxrt", observe=made)
    x = torch.randn(4, 6)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        results = []
        for f in (net, compiled):
            torch.manual_seed(3)
            results.append(f(x))
    torch.testing.assert_close(results[1], results[0])
    assert any("runs by eager's kernel" in str(w.message) and "draws from its generator" in str(w.message) for w in told)
    assert [len(p.parts) for p in made.made][0] >= 2
    assert "draws from its generator" in str(tracework.explain(net, backend="onnxrt")(x))


def test_what_the_engine_refuses_is_compiled_by_ours():
    """ONNX Runtime has no convolution in float64."""
    net, made = torch.nn.Conv2d(2, 3, 3).double(), Programs()
    compiled = tracework.compile(net, backend="onnxrt", observe=made)
    x = torch.randn(2, 2, 6, 6, dtype=torch.float64)
    with pytest.warns(
        tracework.UncompiledWarning, match="onnxrt refuses the forward graph, which is compiled by tracework: NotImplemented"
    ):
        found = compiled(x)
    torch.testing.assert_close(found, net(x))
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), list(net.parameters())), torch.autograd.grad(net(x).sum(), list(net.parameters()))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["on the engine", "what it refuses"])
def test_passes_of_the_users_own_run_once_for_each_graph(dtype):
    graphs = []

    def counts(graph):
        graphs.append(graph)

    net = torch.nn.Conv2d(2, 3, 3).to(dtype)
    compiled = tracework.compile(
        net, backend="onnxrt", options={"post_grad_custom_pre_pass": counts, "joint_custom_pre_pass": counts}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tracework.UncompiledWarning)
        compiled(torch.randn(2, 2, 6, 6, dtype=dtype)).sum().backward()
    assert len(graphs) == 3  # joint, forward, backward


def test_sums_that_the_engine_rounds_are_eagers():
    """ONNX Runtime adds integers in float64."""
    compiled = tracework.compile(lambda x: x.sum(0), backend="onnxrt")
    small = torch.tensor([2**40 + 1, 3])
    assert torch.equal(compiled(small), small.sum(0))
    large = torch.tensor([2**53 + 1, 1, 5])
    with pytest.warns(tracework.UncompiledWarning, match="does not compute with some values of a call"):
        assert torch.equal(compiled(large), large.sum(0))


PROGRAMS = {
    "layouts": lambda x: (
        x.t(),
        x.t().contiguous(),
        x[:, 1:],
        x.expand(2, *x.shape),
        x.unsqueeze(0).to(memory_format=torch.contiguous_format),
    ),
    "same": lambda x: (x, x, x * 1, x.view(-1)),
    "numbers": lambda x: (x.shape[0] * 2, x.sum() / x.shape[0], None, 3.5),
    "halves": lambda x: (x.half() * 3, x.bfloat16().softmax(-1), x.to(torch.int8) + 1),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x.view(1, 1, *x.shape), x.view(1, 1, *x.shape), x.view(1, 1, *x.shape), is_causal=True
    ),
    "sort": lambda x: (x * 2).sort(-1)[0] + 1,
    "norms": lambda x: (
        torch.nn.functional.layer_norm(x, x.shape[1:]),
        torch.nn.functional.log_softmax(x, 0),
        torch.nn.functional.gelu(x),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers(name):
    program = PROGRAMS[name]
    compiled = tracework.compile(program, backend="onnxrt")
    for n in (3, 4, 6):
        x = torch.randn(n, 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tracework.UncompiledWarning)  # sort
            found, expected = compiled(x), program(x)
        torch.testing.assert_close(found, expected)
        for f, e in zip(*[y if isinstance(y, tuple) else (y,) for y in (found, expected)]):
            if isinstance(e, torch.Tensor):
                assert f.stride() == e.stride() and f.dtype is e.dtype
                assert (f.data_ptr() == x.data_ptr()) == (e.data_ptr() == x.data_ptr())


def test_inputs_are_written():
    def step(x, y):
        y.add_(x.sum())
        x.mul_(2)
        return x + y

    compiled = tracework.compile(step, backend="onnxrt")
    for n in (2, 3):
        eager = torch.ones(n), torch.zeros(())
        own = torch.ones(n), torch.zeros(())
        torch.testing.assert_close((compiled(*own), *own), (step(*eager), *eager))


@pytest.mark.parametrize("index", [7, -8, -1])
def test_an_index_out_of_range_raises_eagers_error(index):
    def chosen(table, i):
        return torch.nn.functional.embedding(i, table), table[i]

    compiled = tracework.compile(chosen, backend="onnxrt")
    table = torch.randn(7, 3)
    torch.testing.assert_close(compiled(table, torch.tensor([1, 6])), chosen(table, torch.tensor([1, 6])))
    with pytest.raises(IndexError) as expected:
        chosen(table, torch.tensor([1, index]))
    with pytest.raises(IndexError) as found:
        compiled(table, torch.tensor([1, index]))
    assert str(found.value) == str(expected.value)


def test_a_division_of_integers_by_zero_raises_eagers_error():
    compiled = tracework.compile(lambda a, b: a // b, backend="onnxrt")
    assert torch.equal(compiled(torch.tensor([7, -7]), torch.tensor([2, 2])), torch.tensor([3, -4]))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.tensor([7, -7]), torch.tensor([2, 0]))


def test_options_go_to_the_engine():
    options = {"providers": ["CPUExecutionProvider"], "session_options": {"intra_op_num_threads": 1}, "index_checks": False}
    made = Programs()
    compiled = tracework.compile(lambda x, i: x[i], backend="onnxrt", options=options, observe=made)
    assert torch.equal(compiled(torch.arange(3.0), torch.tensor([2])), torch.tensor([2.0]))
    assert not made.made[0].parts[0].model.checked
    with pytest.raises(tracework.errors.UnknownName, match="option of backend 'onnxrt' 'provider'. Did you mean 'providers'"):
        tracework.compile(lambda x: x, backend="onnxrt", options={"provider": []})
    with pytest.raises(tracework.errors.InvalidArgument, match="has its own"):
        tracework.compile(lambda x: x, backend="onnxrt", options={"numerics": "strict"})


def test_parameters_that_change_are_read():
    net = torch.nn.Linear(3, 2)
    compiled = tracework.compile(net, backend="onnxrt")
    x = torch.randn(4, 3)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), net(x))
        net.weight.data.mul_(-1.5)


@pytest.fixture
def tensorrt(monkeypatch):
    """The stub as the package, and its engine for tensors on the CPU."""
    import stub_tensorrt

    package = stub_tensorrt.module()
    package.__spec__ = importlib.machinery.ModuleSpec("tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt", package)
    monkeypatch.delitem(sys.modules, "tracework.onnx.engines.tensorrt", raising=False)
    engine = importlib.import_module("tracework.onnx.engines.tensorrt")
    monkeypatch.setattr(engine, "DEVICE", "cpu")
    monkeypatch.setattr(engine, "stream_of", lambda x: 0)
    stub_tensorrt.BUILT.clear()
    yield stub_tensorrt
    monkeypatch.delitem(sys.modules, "tracework.onnx.engines.tensorrt", raising=False)


def test_tensorrt_is_built_for_a_range_of_sizes(tensorrt, tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4)).eval()
    options = {"workspace_size": 1 << 20, "timing_cache": str(tmp_path / "timing"), "optimization_level": 2}
    compiled = tracework.compile(net, backend="tensorrt", options=options)
    with torch.no_grad():
        for n in (2, 3, 5, 6, 4, 13):
            x = torch.randn(n, 4)
            torch.testing.assert_close(compiled(x), net(x))
    ranges = [[v for v in b["profile"].values()] for b in tensorrt.BUILT]
    assert ranges == [[], [((1, 4), (3, 4), (6, 4))], [((1, 4), (13, 4), (26, 4))]]  # 2 alone; 3 to 6; 13
    assert all(b["workspace"] == 1 << 20 and b["builder_optimization_level"] == 2 and b["tf32"] is False for b in tensorrt.BUILT)
    assert (tmp_path / "timing").read_bytes() == b"measured" and tensorrt.BUILT[1]["timing_cache"] == b"measured"


def test_tensorrt_trains(tensorrt):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    compiled = tracework.compile(net, backend="tensorrt", options={"profile": (1, 4, 64)})
    for n in (2, 3, 40):
        x = torch.randn(n, 4)
        pairs = [torch.autograd.grad(f(x).square().sum(), list(net.parameters())) for f in (compiled, net)]
        torch.testing.assert_close(*pairs)
    assert len(tensorrt.BUILT) == 4


def test_what_tensorrts_parser_refuses_is_compiled_by_ours(tensorrt):
    compiled = tracework.compile(lambda x: x.cumsum(0) * 2, backend="tensorrt")
    with pytest.warns(tracework.UncompiledWarning, match="tensorrt refuses the inference graph.*no importer for CumSum"):
        found = compiled(torch.ones(3))
    assert torch.equal(found, torch.tensor([2.0, 4.0, 6.0]))
