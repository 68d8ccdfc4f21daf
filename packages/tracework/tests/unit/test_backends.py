"""Where backends are looked up, what they are given, and what is said where a package is missing. No engine is needed."""

import copy
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
import torch
import tracework
from tracework import backends
from tracework.errors import InvalidArgument, UnknownName
from tracework.onnx_engines import ENGINES


def doubled(x):
    return x * 2 + 1


@pytest.fixture
def nothing_installed(monkeypatch):
    """No engine's package can be found."""
    found = backends.importlib.util.find_spec
    hidden = {"onnx", *(row.package for row in ENGINES.values()), *(row.package for row in backends.RETIRED.values())}
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name in hidden else found(name, *rest))


@pytest.mark.parametrize("name", ENGINES)
def test_a_missing_package_is_named_with_its_extra(name, nothing_installed):
    with pytest.raises(InvalidArgument, match=rf"needs the package onnx: pip install 'tracework\[{name}\]'"):
        tracework.compile(doubled, backend=name)
    assert name not in tracework.list_backends() and name in tracework.list_backends(None)
    assert not backends.states()[name].installed


@pytest.mark.parametrize("name", backends.RETIRED)
def test_retired_backends_say_why_and_what_to_use(name, nothing_installed):
    row = backends.RETIRED[name]
    with pytest.raises(InvalidArgument, match="retired") as raised:
        tracework.compile(doubled, backend=name)
    assert row.last in str(raised.value) and row.instead in str(raised.value)
    assert name not in tracework.list_backends() and name in tracework.list_backends(None)


@pytest.fixture
def registry(monkeypatch):
    """A registry in the place of torch's."""
    module = types.ModuleType("torch._dynamo.backends.registry")
    module._COMPILER_FNS = {}

    def lookup_backend(name):
        return module._COMPILER_FNS[name]

    module.lookup_backend = lookup_backend
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize("name", backends.RETIRED)
def test_what_a_retired_package_registers_is_used(name, registry, monkeypatch, tmp_path):
    row = backends.RETIRED[name]
    (tmp_path / f"{row.package}.py").write_text(
        "import sys\n"
        f"sys.modules['torch._dynamo.backends.registry']._COMPILER_FNS[{name!r}] = lambda gm, inputs: lambda *args: gm(*args)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, row.package, raising=False)
    assert name in tracework.list_backends()
    assert torch.equal(tracework.compile(doubled, backend=name)(torch.ones(2)), torch.full((2,), 3.0))


def test_a_retired_package_that_registers_nothing(registry, monkeypatch, tmp_path):
    (tmp_path / "torch_xla.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch_xla", raising=False)
    with pytest.raises(InvalidArgument, match="has not registered 'openxla'"):
        tracework.compile(doubled, backend="openxla")


def test_the_order_of_lookups(registry, monkeypatch):
    used = []

    def made(where):
        def backend(gm, inputs):
            used.append(where)
            return gm.forward

        return backend

    points = {"tracework.backends": ["second"], "torch_dynamo_backends": ["second", "third", "inductor"]}

    def entry_points(group):
        return [types.SimpleNamespace(name=n, load=lambda n=n: made((group, n))) for n in points.get(group, ())]

    monkeypatch.setattr(backends, "entry_points", entry_points)
    monkeypatch.setattr(backends, "_registered", {"first": made("registered")})
    points["torch_dynamo_backends"] += ["first"]
    for name in ("first", "second", "third", "fourth", "inductor"):
        registry._COMPILER_FNS[name] = made(("torch", name))
    for name in ("first", "second", "third", "fourth"):
        tracework.compile(lambda x: x + 1, backend=name)(torch.ones(1))
    assert used == ["registered", ("tracework.backends", "second"), ("torch_dynamo_backends", "third"), ("torch", "fourth")]
    assert {"first", "second", "third", "fourth"} <= set(tracework.list_backends())
    tracework.compile(lambda x: x - 1, backend="inductor")(torch.ones(1))
    assert len(used) == 4
    with pytest.raises(UnknownName, match="'fifth'"):
        tracework.compile(doubled, backend="fifth")


def gives_its_graph(gm, example_inputs):
    return gm.forward


def cuts_ahead_of_time(gm, example_inputs, **kwargs):
    from functorch.compile import make_boxed_func
    from torch._functorch.aot_autograd import aot_module_simplified

    return aot_module_simplified(gm, example_inputs, fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward))


class Rewrites:
    """An object with options that gives another graph."""

    def __call__(self, gm, example_inputs, *, options=None):
        return torch.fx.Transformer(gm).transform()


@pytest.mark.parametrize(
    ("offered", "options"),
    [(gives_its_graph, None), (cuts_ahead_of_time, None), (cuts_ahead_of_time, {"level": 2}), (Rewrites(), {"level": 2})],
)
def test_backends_as_torchs_documentation_has_them(offered, options, monkeypatch):
    point = types.SimpleNamespace(name="theirs", load=lambda: offered)
    monkeypatch.setattr(backends, "entry_points", lambda group: [point] if group == "torch_dynamo_backends" else [])
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(1))
    eager = copy.deepcopy(net)
    compiled = tracework.compile(net, backend="theirs", options=options)
    for n in (2, 3, 5, 4):
        x = torch.randn(n, 3, 6, 6)
        results = [(model(x), model) for model in (compiled, eager)]
        torch.testing.assert_close(results[0][0], results[1][0])
        gradients = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y, model in results]
        torch.testing.assert_close(*gradients)
        torch.testing.assert_close(dict(net.named_buffers()), dict(eager.named_buffers()))


def test_torchs_compiler_is_not_imported_to_look_a_name_up():
    program = (
        "import sys, tracework\n"
        "before = 'torch._dynamo' in sys.modules\n"
        "tracework.list_backends(None)\n"
        "try:\n    tracework.compile(lambda x: x, backend='no_such_backend')\n"
        "except ValueError:\n    pass\n"
        "assert ('torch._dynamo' in sys.modules) == before, before\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_mode_and_options_go_to_a_backend_that_takes_them():
    given = []

    def both(gm, inputs, *, mode=None, options=None):
        given.append((mode, options))
        return gm.forward

    def everything(gm, inputs, **kwargs):
        given.append(kwargs)
        return gm.forward

    x = torch.ones(2)
    tracework.compile(lambda x: x + 1, backend=both)(x)
    tracework.compile(lambda x: x + 1, backend=both, mode="default")(x)
    tracework.compile(lambda x: x + 1, backend=both, mode="a word of its own")(x)
    tracework.compile(lambda x: x + 1, backend=both, options={"trials": 3, "suppress_errors": True})(x)
    tracework.compile(lambda x: x + 1, backend=everything, options={})(x)
    tracework.compile(lambda x: x + 1, backend=everything, options={"level": 1})(x)
    assert given == [
        (None, None),
        (None, None),
        ("a word of its own", None),
        (None, {"trials": 3, "suppress_errors": True}),
        {},
        {"options": {"level": 1}},
    ]


def test_a_backend_without_options_is_given_none():
    def plain(gm, inputs):
        return gm.forward

    with pytest.raises(UnknownName, match="'trials'"):
        tracework.compile(doubled, backend=plain, options={"trials": 3})
    with pytest.raises(UnknownName, match="mode 'a word of its own'"):
        tracework.compile(doubled, backend=plain, mode="a word of its own")
    assert torch.equal(tracework.compile(doubled, backend=plain, mode="reduce-overhead")(torch.ones(2)), torch.full((2,), 3.0))


def test_a_backend_keeps_its_open_sizes_with_options():
    made = []

    def keeps(gm, inputs, options=None):
        made.append(options)
        return lambda *args: gm(*args)

    tracework.register_backend(keeps, name="keeps_open_sizes", dynamic=True)
    compiled = tracework.compile(doubled, backend="keeps_open_sizes", options={"a": 1})
    for n in (2, 3, 4, 5):
        compiled(torch.ones(n))
    assert made == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize("name", ["tracework", "aot_eager_decomp_partition"])
def test_names_of_torch_that_are_rows(name):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    compiled = tracework.compile(net, backend=name)
    for n in (2, 3, 4):
        x = torch.randn(n, 3)
        found = torch.autograd.grad(compiled(x).square().sum(), list(net.parameters()))
        expected = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
        torch.testing.assert_close(found, expected)


def test_prims_run_by_eager_in_the_backend_that_stops_there():
    seen = []
    compiled = tracework.compile(doubled, backend="aot_eager_decomp_partition", observe=lambda stage, product: seen.append(stage))
    compiled(torch.ones(2))
    assert "primops" in seen and "inductor" not in seen


def test_extras_are_declared():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for row in ENGINES.values():
        assert any(requirement.startswith(row.distribution) for requirement in project["optional-dependencies"][row.extra])
