"""The plugin for accelerate: what it gives to torch.compile. Where accelerate is not installed, a stub stands for it."""

import dataclasses
import enum
import importlib.util
import os
import sys
import types

import pytest
import torch
import tracework


class DynamoBackend(enum.StrEnum):
    NO = "NO"
    EAGER = "EAGER"
    INDUCTOR = "INDUCTOR"


@dataclasses.dataclass
class TorchDynamoPlugin:
    """What of accelerate's class the plugin relies on: fields, variables, and the kwargs that are not the default."""

    backend: str | None = None
    mode: str | None = None
    fullgraph: bool | None = None
    dynamic: bool | None = None
    options: dict | None = None
    disable: bool = False
    use_regional_compilation: bool | None = None

    def __post_init__(self):
        self.backend = DynamoBackend((self.backend or os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no")).upper())
        self.mode = self.mode or os.environ.get("ACCELERATE_DYNAMO_MODE", "default")
        for name in ("fullgraph", "use_regional_compilation"):
            if getattr(self, name) is None:
                setattr(self, name, os.environ.get(f"ACCELERATE_DYNAMO_USE_{name.removeprefix('use_').upper()}") == "True")
        if self.dynamic is None and "ACCELERATE_DYNAMO_USE_DYNAMIC" in os.environ:
            self.dynamic = os.environ["ACCELERATE_DYNAMO_USE_DYNAMIC"] == "True"

    def to_dict(self):
        return {**vars(self), "backend": self.backend.value.lower()}

    def to_kwargs(self):
        kept = dict(os.environ)
        for name in [name for name in os.environ if name.startswith("ACCELERATE_DYNAMO_")]:
            del os.environ[name]
        default = type(self)().to_dict()
        os.environ.update(kept)
        return {n: v for n, v in self.to_dict().items() if v != default[n] and n != "use_regional_compilation"}


@pytest.fixture
def plugin(monkeypatch):
    """The class, imported with accelerate or with a stub of it."""
    if importlib.util.find_spec("accelerate") is None:
        utils = types.ModuleType("accelerate.utils")
        utils.TorchDynamoPlugin = TorchDynamoPlugin
        monkeypatch.setitem(sys.modules, "accelerate", types.ModuleType("accelerate"))
        monkeypatch.setitem(sys.modules, "accelerate.utils", utils)
    monkeypatch.delitem(sys.modules, "tracework.accelerate", raising=False)
    return importlib.import_module("tracework.accelerate").TraceworkPlugin


FIELDS = {
    "mode": "reduce-overhead",
    "fullgraph": True,
    "dynamic": True,
    "options": {"numerics": "strict"},
    "disable": True,
}


def test_it_compiles_by_default_whatever_the_launcher_says(plugin, monkeypatch):
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "NO")
    assert plugin().backend.value == "INDUCTOR"
    assert plugin().to_kwargs() == {"backend": "tracework"}


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_reaches_torch_compile(plugin, name):
    assert plugin(**{name: FIELDS[name]}).to_kwargs() == {"backend": "tracework", name: FIELDS[name]}


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("MODE", "max-autotune", {"mode": "max-autotune"}),
        ("USE_FULLGRAPH", "True", {"fullgraph": True}),
        ("USE_DYNAMIC", "False", {"dynamic": False}),
    ],
)
def test_each_variable_of_accelerate_reaches_torch_compile(plugin, monkeypatch, variable, text, expected):
    monkeypatch.setenv(f"ACCELERATE_DYNAMO_{variable}", text)
    assert plugin().to_kwargs() == {"backend": "tracework"} | expected


def test_regions_are_accelerates_business(plugin):
    made = plugin(use_regional_compilation=True)
    assert made.use_regional_compilation and made.to_kwargs() == {"backend": "tracework"}


@pytest.mark.parametrize(("backend", "given"), [("inductor", "tracework"), ("eager", "eager")])
def test_other_backends_stay_torchs(plugin, backend, given):
    assert plugin(backend=backend).to_kwargs() == {"backend": given}


def test_what_it_gives_compiles_here(plugin):
    with tracework.replace_torch_compile():
        net = torch.nn.Linear(2, 2)
        compiled = torch.compile(net, **plugin(fullgraph=True, dynamic=False).to_kwargs())
        assert compiled._orig_mod is net and torch.equal(compiled(torch.ones(1, 2)), net(torch.ones(1, 2)))
